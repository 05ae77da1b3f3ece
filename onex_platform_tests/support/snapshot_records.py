"""Snapshots as records, for tests of whoever reads the topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from onex_platform.base.settings import Settings
from onex_platform.domain.projection import (
    ModelRegistrationProjection,
    ModelRegistrationSnapshot,
)
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import (
    KafkaProducer,
    KafkaRecord,
    open_admin,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, create
from onex_platform.snapshots.snapshot_records import VERSION_HEADER
from onex_platform_tests.support.events import TENANT, at, number_id


def snapshot(number: int, version: int = 1, **fields: Any) -> ModelRegistrationSnapshot:
    """A snapshot of the entity with this number."""
    defaults: dict[str, Any] = {
        "entity_id": number_id(number),
        "tenant": TENANT,
        "current_state": EnumRegistrationState.ACTIVE,
        "node_type": "effect",
        "node_name": f"node-{number}",
        "last_state_change_at": at(version),
        "snapshot_version": version,
        "snapshot_created_at": at(version),
    }
    return ModelRegistrationSnapshot.model_validate(defaults | fields)


def shown_of(row: ModelRegistrationProjection, **changes: Any) -> bytes:
    """The snapshot of a row, or nearly so, in another spelling than ours."""
    shown = ModelRegistrationSnapshot.from_projection(row, snapshot_created_at=at(0))
    return shown.model_copy(update=changes).model_dump_json(indent=1).encode()


def sent(topic: str, shown: ModelRegistrationSnapshot) -> KafkaRecord:
    """The record that publishes a snapshot."""
    header = (VERSION_HEADER, b"%d" % shown.snapshot_version)
    return KafkaRecord(topic, shown.model_dump_json().encode(), shown.to_kafka_key(), [header])


def tombstone(topic: str, entity_id: UUID, version: int | None = None) -> KafkaRecord:
    headers = [] if version is None else [(VERSION_HEADER, b"%d" % version)]
    return KafkaRecord(topic, None, str(entity_id), headers)


def new_topic(settings: Settings, partitions: int = 3, **config: str) -> str:
    """A compacted topic of the test's own; `segment_ms` stands for `segment.ms`."""
    name = f"test.{uuid4().hex}"
    create_compacted(settings, name, partitions, **config)
    return name


def create_compacted(settings: Settings, name: str, partitions: int = 3, **config: str) -> None:
    given = {option.replace("_", "."): value for option, value in config.items()}
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(name, partitions, 1, {"cleanup.policy": "compact", **given})])


def send(settings: Settings, records: Iterable[KafkaRecord]) -> None:
    with open_producer(settings) as producer:
        produce_all(producer, records)


@contextmanager
def transactions(settings: Settings) -> Iterator[KafkaProducer]:
    config = {"transactional.id": uuid4().hex, "transaction.timeout.ms": 120_000}
    with open_producer(settings, **config) as producer:
        producer.init_transactions(30)
        yield producer


def by_id(*shown: ModelRegistrationSnapshot) -> dict[UUID, ModelRegistrationSnapshot]:
    return {one.entity_id: one for one in shown}

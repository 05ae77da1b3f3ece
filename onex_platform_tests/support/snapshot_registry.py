"""A registry and a snapshot topic for tests: rows that change, and what the topic made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Message

from onex_platform.base.settings import Settings
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_producer,
    produce_all,
    read_to_end,
    written_positions,
)
from onex_platform.projections.write import outbox
from onex_platform.snapshots.publish.relay import OutboxRelay, open_relay
from onex_platform.snapshots.publish.topic_setup import ensure_topic
from onex_platform.snapshots.snapshot_records import PublishedState, published_state
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform_tests.support.events import State, at, number_id, row
from onex_platform_tests.support.stored_rows import Store, open_store

_SEQUENCES = count(1)


@dataclass
class Registry:
    """Rows of the test's own database, and a snapshot topic that nobody else writes to."""

    settings: Settings
    config: ModelSnapshotTopicConfig
    store: Store
    catalogue: Catalogue

    def change(self, *nodes: int, **fields: Any) -> list[ModelRegistrationProjection]:
        """Let something happen to these nodes; their rows as they are stored then."""
        changed = []
        for node in nodes:
            values = {
                "entity_id": number_id(node),
                "registered_at": at(0),
                "node_name": f"node-{node}",
                "last_applied_sequence": next(_SEQUENCES),
                **fields,
            }
            assert self.store.projector.persist(row(values.pop("state", State.ACTIVE), **values))
            changed.append(self.store.node(number_id(node)))
        return changed

    def close(self, *nodes: int) -> list[ModelRegistrationProjection]:
        """Let these nodes deregister."""
        return self.change(*nodes, deregistered_at=at(9), liveness_deadline=None)

    @contextmanager
    def relay(self, **changes: Any) -> Iterator[OutboxRelay]:
        """A relay as another process has it."""
        snapshots = self.settings.snapshots.model_copy(update=changes)
        settings = self.settings.model_copy(update={"snapshots": snapshots})
        with open_relay(settings, self.catalogue, self.config) as opened:
            yield opened

    def forget_outbox(self) -> None:
        """Let nobody know what is to be published."""
        with self.store.database.transaction() as cursor:
            cursor.execute("DELETE FROM outbox")

    def intrude(
        self, node: int | str, value: bytes | None, *headers: tuple[str, str | None]
    ) -> None:
        """Somebody else writes to the topic, under a node's key or another one."""
        key = node if isinstance(node, str) else str(number_id(node))
        with open_producer(self.settings, partitioner="murmur2_random") as producer:
            produce_all(producer, [KafkaRecord(self.config.topic, value, key, headers)])

    def waiting(self) -> outbox.Waiting:
        with self.store.database.transaction() as cursor:
            return outbox.waiting(cursor, self.config.domain)

    def published(self) -> list[PublishedState]:
        """Every record of the topic, in the order of its partitions."""
        found = [published_state(message) for message in self.messages()]
        assert None not in found
        return [state for state in found if state is not None]

    def messages(self) -> list[Message]:
        topics = [self.config.topic]
        ends = written_positions(self.settings, topics)
        return list(read_to_end(self.settings, topics, ends=ends))

    def latest(self) -> dict[UUID, PublishedState]:
        """The last record of each key."""
        return {state.entity_id: state for state in self.published()}

    def require_topic_equals_rows(self) -> None:
        """Every row's last record has its version, and no version ever fell."""
        assert self.latest() == {
            row.entity_id: PublishedState(row.entity_id, row.row_version, row.is_closed())
            for row in self.store.reader.iter_all(include_deregistered=True)
        }
        require_rising(self.published())


def require_rising(states: Iterable[PublishedState]) -> None:
    """A reader sees no version fall; the same one may come twice."""
    seen: dict[UUID, int] = {}
    for state in states:
        assert state.version >= seen.get(state.entity_id, 0)
        seen[state.entity_id] = state.version


@contextmanager
def open_registry(settings: Settings) -> Iterator[Registry]:
    """A registry on a migrated database, with a new topic."""
    config = ModelSnapshotTopicConfig.development(load_catalogue()).model_copy(
        update={
            "topic": f"onex.snapshot.test-{uuid4().hex}.registration-snapshots.v1",
            "partition_count": 3,
        }
    )
    catalogue = load_catalogue()
    assert ensure_topic(settings, catalogue, config).created
    with open_store(settings) as store:
        yield Registry(settings, config, store, catalogue)

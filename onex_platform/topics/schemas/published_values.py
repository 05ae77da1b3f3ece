"""Values of the platform's own that are no envelopes, published by the schemas of their topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from onex_platform.base.faults import effect
from onex_platform.base.paths import project_folder
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import Catalogue, with_marks
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import StreamName, parse_logical, physical
from onex_platform.topics.policy import load_policy
from onex_platform.topics.schemas.formats import AvroSchema, read_schema
from onex_platform.topics.signals import send_soon


def publish_values(
    settings: Settings,
    catalogue: Catalogue,
    values: Iterable[tuple[StreamName, str, Mapping[str, Any]]],
    point: str,
) -> int:
    """Publish each key's value by its topic's schema, and wait for the broker, not for long; how
    many records it acknowledged. `point` is the crash point.

    Where they go follows the phases of the topics' moves; without a contract they go nowhere.
    """
    wrapper = Wrapper(settings)
    records = [
        record
        for name, key, value in values
        if str(name) in catalogue
        for record in _to_records(catalogue, name, key, value, settings.environment, wrapper)
    ]
    with effect(point):
        return send_soon(settings, records)


def topic_of(name: str, environment: str) -> str:
    """The broker's name of a topic that belongs to the operator of the platform."""
    home = load_policy().home
    return str(physical(parse_logical(name), environment=environment, tenant=home, home=home))


def _to_records(
    catalogue: Catalogue,
    name: StreamName,
    key: str,
    value: Mapping[str, Any],
    environment: str,
    wrapper: Wrapper,
) -> Iterator[KafkaRecord]:
    """What is told of a key at a moment; told again, it has the same id."""
    record_id = uuid5(NAMESPACE_URL, f"onex:{name}:{key}:{value['occurred_at']}")
    headers = [*wrapper.headers_of_record(record_id), ("ce_id", str(record_id))]
    encoded = schema_of(name).encode(value)

    def called(topic: str) -> str:
        return topic_of(topic, environment)

    for outlet, mark in with_marks(catalogue.written(str(name), called)):
        more = [*headers, *mark]
        yield KafkaRecord(called(outlet.topic), outlet.value(encoded), key, more)


@cache
def schema_of(name: StreamName) -> AvroSchema:
    """The schema of a topic's values."""
    folder = project_folder("contracts") / folder_of(name, load_policy().is_onex_entity)
    schema = read_schema(folder / "value.schema.avsc")
    assert isinstance(schema, AvroSchema)  # noqa: S101 - by the file's name
    return schema

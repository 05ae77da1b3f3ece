"""The columns of a log page, and events as rows of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onex_platform.domain.envelope import UPCASTERS, UpcasterRegistry, kept_text, read_kept
from onex_platform.domain.events import EnumEventKind, LogEvent, Provenance
from onex_platform.domain.identity import EntityKey, plain_id
from onex_platform.ingest.admission.column_values import ID, INSTANT

SCHEMA_VERSION = 1

LOG_SCHEMA = pa.schema(
    [
        pa.field("entity_id", ID, nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("event_id", ID, nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("node_id", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("occurred_at", INSTANT, nullable=False),
        pa.field("reported_at", INSTANT),
        pa.field("deadline", INSTANT),
        pa.field("correlation_id", ID),
        pa.field("cause_id", ID),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("duplicate", pa.bool_(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ]
)

PARKED_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("record_timestamp", INSTANT),
        pa.field("append_time", pa.bool_(), nullable=False),
        pa.field("legacy", pa.bool_(), nullable=False),
        pa.field("record_key", pa.binary()),
        pa.field("record_value", pa.binary()),
        pa.field("header_names", pa.list_(pa.string()), nullable=False),
        pa.field("header_values", pa.list_(pa.binary()), nullable=False),
    ]
)

# What folding heartbeats needs: their payload is archived, but never read for it.
BEAT_COLUMNS = ["entity_id", "position", "event_id", "tenant", "epoch", "occurred_at", "deadline"]
# What deciding needs beyond that, where a node beats that has no life here.
CAUSE_COLUMNS = ["node_id", "correlation_id"]


def bucket_of(entity_id: bytes, buckets: int) -> int:
    """The bucket of an entity: the same in Python and in Spark (`crc32`), for ever."""
    return zlib.crc32(entity_id) % buckets


def buckets_of(entity_ids: pa.Array, buckets: int) -> NDArray[np.int32]:
    """The bucket of each entity."""
    encoded = entity_ids.dictionary_encode()
    numbers = [bucket_of(item, buckets) for item in encoded.dictionary.to_pylist()]
    chosen: NDArray[np.int32] = np.array(numbers, np.int32)[encoded.indices.to_numpy()]
    return chosen


def by_bucket(rows: pa.Table, numbers: NDArray[np.int32]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket; not by a filter for each, which would pass all of them."""
    if not len(numbers):  # a partition without records has an empty batch, at least on clusters
        return
    if numbers.min() == numbers.max():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    rows = rows.combine_chunks()
    buckets, starts = np.unique(numbers[order], return_index=True)
    for bucket, start, end in zip(buckets, starts, [*starts[1:], len(order)], strict=True):
        yield int(bucket), rows.take(pa.array(order[start:end]))


def to_table(events: Iterable[LogEvent], upcasters: UpcasterRegistry = UPCASTERS) -> pa.Table:
    """Events as rows of a page."""
    rows = [to_row(event, upcasters) for event in events]
    return pa.Table.from_pylist(rows, schema=LOG_SCHEMA)


def to_events(
    table: pa.Table, domain: str, upcasters: UpcasterRegistry = UPCASTERS
) -> Iterator[LogEvent]:
    """The rows of a page as events."""
    for row in table.to_pylist():
        yield to_event(row, domain, upcasters)


def to_event(row: dict[str, Any], domain: str, upcasters: UpcasterRegistry = UPCASTERS) -> LogEvent:
    kind = EnumEventKind(row["kind"])
    node_id = row["node_id"]
    return LogEvent(
        position=row["position"],
        kind=kind,
        event_id=UUID(bytes=row["event_id"]),
        entity=EntityKey(domain, UUID(bytes=row["entity_id"])),
        tenant=row["tenant"],
        node_id=node_id,
        node_name=None if node_id is None else plain_id(node_id),
        epoch=row["epoch"],
        occurred_at=_instant(row["occurred_at"]),
        payload=read_kept(kind, row["payload"], upcasters),
        deadline=row["deadline"] and _instant(row["deadline"]),
        reported_at=row["reported_at"] and _instant(row["reported_at"]),
        correlation_id=uuid_of(row["correlation_id"]),
        cause_id=uuid_of(row["cause_id"]),
        provenance=provenance_of(row),
        duplicate=row["duplicate"],
    )


def to_row(event: LogEvent, upcasters: UpcasterRegistry = UPCASTERS) -> dict[str, Any]:
    """An event as a row of a page."""
    source = event.provenance
    return {
        "entity_id": event.entity.entity_id.bytes,
        "position": event.position,
        "kind": event.kind.value,
        "event_id": event.event_id.bytes,
        "tenant": event.tenant,
        "node_id": event.node_id,
        "epoch": event.epoch,
        "occurred_at": event.occurred_at,
        "reported_at": event.reported_at,
        "deadline": event.deadline,
        "correlation_id": event.correlation_id and event.correlation_id.bytes,
        "cause_id": event.cause_id and event.cause_id.bytes,
        "topic": source and source.topic,
        "partition": source and source.partition,
        "offset": source and source.offset,
        "duplicate": event.duplicate,
        "payload": kept_text(event.kind, event.payload, upcasters),
    }


def provenance_of(row: dict[str, Any]) -> Provenance | None:
    """The Kafka record a row came from; None for a fact that the platform appended itself."""
    if row["topic"] is None:
        return None
    return Provenance(topic=row["topic"], partition=row["partition"], offset=row["offset"])


def uuid_of(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


def _instant(moment: datetime) -> datetime:
    """Arrow hands out its own zone object; rows compare and print with the standard one."""
    return moment.astimezone(UTC)

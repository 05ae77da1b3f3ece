"""Kafka's columns become the log's columns, or those of the parking lot.

The rules are `domain.intake.admit`'s; this module only moves values in and out of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import IntakeRules, Parked, RawRecord, admit
from onex_platform.pages.schema import LOG_SCHEMA, bucket_of, to_row

# Spark knows no binary of fixed length; pages do.
_SPARK_FIELDS = [
    pa.field(field.name, pa.binary() if pa.types.is_fixed_size_binary(field.type) else field.type)
    for field in LOG_SCHEMA
]
_PARKED_FIELDS = [
    pa.field("reason", pa.string()),
    pa.field("detail", pa.string()),
    pa.field("record_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("append_time", pa.bool_()),
    pa.field("legacy", pa.bool_()),
    pa.field("record_key", pa.binary()),
    pa.field("record_value", pa.binary()),
    pa.field("header_names", pa.list_(pa.string())),
    pa.field("header_values", pa.list_(pa.binary())),
]
PARKED_COLUMNS = ["topic", "partition", "offset", "kind", *(f.name for f in _PARKED_FIELDS)]
# A row is an event or a parked record; which one, `reason` tells.
ENTRY_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        *(field.with_nullable(True) for field in _SPARK_FIELDS),
        *_PARKED_FIELDS,
    ]
)


class InputTopic(NamedTuple):
    """What the catalogue says about a topic that is read."""

    kind: EnumEventKind
    legacy: bool


def admit_batch(
    batch: pa.RecordBatch,
    topics: Mapping[str, InputTopic],
    rules: IntakeRules,
    read_at: datetime,
    buckets: int,
) -> pa.RecordBatch:
    """A batch of Spark's Kafka source as entries."""
    entries = [
        _entry(admit(record, rules, read_at), buckets) for record in _raw_records(batch, topics)
    ]
    return entries_batch(entries)


def event_entries(events: Iterable[LogEvent], buckets: int) -> pa.RecordBatch:
    """Facts from the inbox as entries."""
    return entries_batch([_entry(event, buckets) for event in events])


def entries_batch(entries: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(entries, schema=ENTRY_SCHEMA)


def events_of(entries: pa.Table) -> pa.Table:
    """The entries that are events, as rows of the log."""
    events = entries.filter(pa.compute.is_null(entries["reason"]))
    return events.select(LOG_SCHEMA.names).cast(LOG_SCHEMA)


def parked_of(entries: pa.Table) -> pa.Table:
    """The entries that are parked records."""
    return entries.filter(pa.compute.is_valid(entries["reason"])).select(PARKED_COLUMNS)


def _raw_records(batch: pa.RecordBatch, topics: Mapping[str, InputTopic]) -> Iterator[RawRecord]:
    for row in batch.to_pylist():
        topic = topics[row["topic"]]
        moment: datetime | None = row["timestamp"]
        yield RawRecord(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            timestamp=None if moment is None else moment.astimezone(UTC),
            append_time=row["timestampType"] == 1,
            key=row["key"],
            value=row["value"],
            headers={header["key"]: header["value"] or b"" for header in row["headers"] or ()},
            kind=topic.kind,
            legacy=topic.legacy,
        )


def _entry(item: LogEvent | Parked, buckets: int) -> dict[str, Any]:
    if isinstance(item, LogEvent):
        return {"bucket": bucket_of(item.entity.entity_id.bytes, buckets), **to_row(item)}
    record = item.record
    return {
        # Any bucket will do; the record's place spreads them.
        "bucket": record.offset % buckets,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "kind": record.kind.value,
        "reason": item.reason.value,
        "detail": item.detail,
        "record_timestamp": record.timestamp,
        "append_time": record.append_time,
        "legacy": record.legacy,
        "record_key": record.key,
        "record_value": record.value,
        "header_names": list(record.headers),
        "header_values": list(record.headers.values()),
    }

"""Kafka's columns become the log's columns, or those of the parking lot.

The rules are `domain.intake.admit`'s; this module only moves values in and out of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import IntakeRules, Parked, RawRecord, admit
from onex_platform.pages.beats import admit_beats
from onex_platform.pages.schema import (
    ENTRY_SCHEMA,
    LOG_SCHEMA,
    PARKED_COLUMNS,
    bucket_of,
    to_row,
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
) -> pa.Table:
    """A batch of Spark's Kafka source as entries."""
    records = pa.Table.from_batches([batch])
    beats = [name for name, topic in topics.items() if topic.kind is EnumEventKind.NODE_HEARTBEAT]
    is_beat = np.asarray(pc.is_in(records["topic"], pa.array(beats)))
    legacy = [name for name in beats if topics[name].legacy]
    plain, taken = admit_beats(records.filter(pa.array(is_beat)), legacy, rules, read_at, buckets)
    rest = ~is_beat
    rest[is_beat] = ~taken
    others = [
        _entry(admit(record, rules, read_at), buckets)
        for record in _raw_records(records.filter(pa.array(rest)), topics)
    ]
    return pa.concat_tables([plain, pa.Table.from_batches([entries_batch(others)])])


def event_entries(events: Iterable[LogEvent], buckets: int) -> pa.RecordBatch:
    """Facts from the inbox as entries."""
    return entries_batch([_entry(event, buckets) for event in events])


def entries_batch(entries: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(entries, schema=ENTRY_SCHEMA)


def events_of(entries: pa.Table) -> pa.Table:
    """The entries that are events, as rows of the log."""
    events = entries.filter(pc.is_null(entries["reason"]))
    return events.select(LOG_SCHEMA.names).cast(LOG_SCHEMA)


def parked_of(entries: pa.Table) -> pa.Table:
    """The entries that are parked records."""
    return entries.filter(pc.is_valid(entries["reason"])).select(PARKED_COLUMNS)


def _raw_records(records: pa.Table, topics: Mapping[str, InputTopic]) -> Iterator[RawRecord]:
    for row in records.to_pylist():
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

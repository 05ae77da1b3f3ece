"""Kafka's columns become the log's columns, or those of the parking lot.

The rules are `domain.intake.judge`'s; this module only moves values in and out of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import IntakeRules, Parked, RawRecord, judge
from onex_platform.domain.order import POSITIONS_PER_MILLISECOND
from onex_platform.engines.postgres.database import storable
from onex_platform.ingest.admission.column_values import INSTANT
from onex_platform.ingest.admission.echo import EchoRun
from onex_platform.ingest.admission.fast_path import InputTopic, admit_plain
from onex_platform.ingest.admission.header_columns import Findings
from onex_platform.ingest.event_schema import PARKED_SCHEMA, to_table

# In microseconds, as Spark and Arrow count.
_NO_MORE_POSITIONS = 2**63 // POSITIONS_PER_MILLISECOND * 1000


class Admitted(NamedTuple):
    """What became of some records: events that have no position yet, and parked records; and what
    was wrong with the headers and keys of the events. Echoes are neither."""

    events: pa.Table
    parked: pa.Table
    findings: Findings
    echoes: Sequence[EchoRun] = ()

    def size(self) -> int:
        """How many bytes this takes."""
        size: int = self.events.nbytes + self.parked.nbytes
        return size


def admit_records(
    records: pa.Table, topics: Mapping[str, InputTopic], rules: IntakeRules, read_at: datetime
) -> Admitted:
    """Records of Spark's Kafka source, admitted or parked."""
    records = dated(records)
    plain, taken, findings = admit_plain(records, topics, rules, read_at)
    if taken.all():
        return Admitted(plain, PARKED_SCHEMA.empty_table(), findings)
    events, parked = [], []
    for record in raw_records(records.filter(pa.array(~taken)), topics):
        judged = judge(record, rules, read_at)
        findings.update((record.topic, finding) for finding in judged.findings)
        if isinstance(judged.outcome, LogEvent):
            events.append(judged.outcome)
        else:
            parked.append(_parked_row(judged.outcome))
    return Admitted(
        pa.concat_tables([plain, to_table(events)]),
        pa.Table.from_pylist(parked, schema=PARKED_SCHEMA),
        findings,
    )


def dated(records: pa.Table) -> pa.Table:
    """The records without times that no position tells: what Kafka has before 1970 is no time."""
    times = records["timestamp"].cast(INSTANT).cast(pa.int64())
    is_time = pc.and_(pc.greater_equal(times, 0), pc.less(times, _NO_MORE_POSITIONS))
    if pc.all(is_time).as_py() is not False:
        return records
    place = records.schema.get_field_index("timestamp")
    told = pc.if_else(is_time, records["timestamp"], pa.scalar(None, records["timestamp"].type))
    return records.set_column(place, records.schema.field(place), told)


def raw_records(records: pa.Table, topics: Mapping[str, InputTopic]) -> Iterator[RawRecord]:
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
            headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
            kind=topic.kind,
            legacy=topic.legacy,
            asked=topic.asked,
        )


def _parked_row(item: Parked) -> dict[str, Any]:
    """A record that could not enter the log, with every byte that is needed to try again."""
    record = item.record
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "kind": record.kind.value,
        "reason": item.reason.value,
        "detail": storable(item.detail),
        "record_timestamp": record.timestamp,
        "append_time": record.append_time,
        "legacy": record.legacy,
        "record_key": record.key,
        "record_value": record.value,
        "header_names": [storable(name) for name, _ in record.headers],
        "header_values": [value for _, value in record.headers],
    }

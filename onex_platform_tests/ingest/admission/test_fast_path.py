"""The fast lane admits exactly what the intake admits, or leaves it to the intake."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.envelope import UpcasterRegistry
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import IntakeRules, RawRecord, judge
from onex_platform.ingest.admission.admit import admit_records
from onex_platform.ingest.admission.fast_path import admit_plain
from onex_platform.ingest.event_schema import to_events
from onex_platform_tests.support.arrivals import (
    BEATS,
    KINDS,
    RAW,
    READ_AT,
    STRICT_TOPICS,
    TOPICS,
    arrivals,
    as_kafka,
    beats,
    by_offset,
)
from onex_platform_tests.support.events import RULES, at, record

Kind = EnumEventKind


def plain_of(records: list[RawRecord], rules: IntakeRules = RULES) -> list[bool]:
    """Which of the records take the fast lane."""
    events, taken, _ = admit_plain(
        pa.Table.from_batches([as_kafka(records)]), TOPICS, rules, READ_AT
    )
    assert len(events) == taken.sum()
    chosen: list[bool] = taken.tolist()
    return chosen


@given(records=arrivals(), floor=st.none() | st.integers(-5, 15).map(at))
@settings(max_examples=600, deadline=None)
def test_both_lanes_agree_on_every_record(records: list[RawRecord], floor: datetime | None) -> None:
    rules = replace(RULES, ledger_floor=floor)
    judged = [judge(raw, rules, READ_AT) for raw in records]
    expected = [verdict.outcome for verdict in judged]
    arrived = pa.Table.from_batches([as_kafka(records)])
    admitted = admit_records(arrived, STRICT_TOPICS, rules, READ_AT)
    events = sorted(to_events(admitted.events, "registration"), key=by_offset)
    assert repr(events) == repr([item for item in expected if isinstance(item, LogEvent)])
    assert len(admitted.parked) == len(records) - len(events)
    assert admitted.findings == Counter(
        (raw.topic, finding)
        for raw, verdict in zip(records, judged, strict=True)
        for finding in verdict.findings
    )


def test_plain_records_take_the_fast_lane() -> None:
    for topic, kind in KINDS.items():
        records = [record(kind, n, topic=topic, offset=n) for n in range(10)]
        leaves_it = kind in (Kind.LIVENESS_EXPIRED, Kind.INTROSPECTION_REQUESTED)
        assert plain_of(records) == [not leaves_it] * 10, topic


def test_a_number_that_is_too_large_is_left_to_the_intake() -> None:
    for number in ("1e999", "100000e305", "1" * 400 + ".5"):
        raw = record(Kind.NODE_HEARTBEAT, 1, topic=BEATS, extra=RAW)
        value = (raw.value or b"").replace(json.dumps(RAW).encode(), number.encode())
        assert plain_of([replace(raw, value=value)]) == [False], number


def test_only_an_introspection_whose_next_life_has_no_number_is_left_to_the_intake() -> None:
    for topic in ("introspections", "acks", BEATS):
        for epoch, is_plain in ((2**62, True), (2**62 + 1, topic != "introspections")):
            raw = record(KINDS[topic], 1, topic=topic, epoch=epoch)
            assert plain_of([raw]) == [is_plain], (topic, epoch)


def test_an_id_in_braces_is_plain() -> None:
    braced = "{550e8400-e29b-41d4-a716-446655440000}"
    assert plain_of([record(Kind.NODE_HEARTBEAT, 1, topic=BEATS, node_id=braced)]) == [True]


def test_one_broken_record_costs_the_others_nothing() -> None:
    for spoilt in (b'{"payload":{"epoch":"one"}}', b"\xff", b'{"more":"\\n","payload":{}}'):
        records = beats(500)
        records[250] = replace(records[250], value=spoilt)
        taken = plain_of(records)
        assert not taken[250]
        assert sum(taken) > 400


def test_a_day_that_does_not_exist_is_parked_and_costs_the_others_nothing() -> None:
    days = ("2026-02-28", "2026-02-30", "2026-03-01")
    records = [_with_time(raw, f"{day}T12:00:00Z") for raw, day in zip(beats(3), days, strict=True)]
    assert plain_of(records) == [True, False, True]
    admitted = admit_records(pa.Table.from_batches([as_kafka(records)]), TOPICS, RULES, READ_AT)
    assert admitted.parked["offset"].to_pylist() == [1]


def _with_time(raw: RawRecord, text: str) -> RawRecord:
    document = json.loads(raw.value or b"")
    return replace(raw, value=json.dumps(document | {"timestamp": text}).encode())


def test_the_rules_reach_both_lanes() -> None:
    upcasters = UpcasterRegistry()
    upcasters.register(Kind.NODE_HEARTBEAT, 1, lambda payload: payload)
    assert plain_of(beats(1)) == [True]
    assert plain_of(beats(1), replace(RULES, max_event_bytes=10)) == [False]
    assert plain_of(beats(1), replace(RULES, upcasters=upcasters)) == [False]

"""The fast lane admits exactly what the intake admits, or leaves it to the intake."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.pages.beats import admit_beats
from onex_platform.pages.entry import InputTopic, admit_batch, events_of, parked_of
from onex_platform.pages.schema import to_events
from onex_platform_tests.domain.builders import RULES, at, record

Kind = EnumEventKind
READ_AT = at(500)
TOPICS = {
    "beats": InputTopic(Kind.NODE_HEARTBEAT, legacy=False),
    "old": InputTopic(Kind.NODE_HEARTBEAT, legacy=True),
    "acks": InputTopic(Kind.NODE_ACK, legacy=False),
}

_TEXT = st.text(max_size=6) | st.sampled_from(["a", "é", "x" * 300, '"', "{}", "\x00", "\\"])
_NUMBER = st.integers() | st.floats() | st.sampled_from([0, -1, 1.5, 2**70, "7", None, True])
_FIELDS = {
    "node_id": _TEXT
    | st.sampled_from(
        [
            "550E8400-E29B-41D4-A716-446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            *(None, 7, "n-1", "{n-1}", "{}"),
        ]
    ),
    "node_type": st.sampled_from(["EFFECT", "effect", "Wizard", None, 3]),
    "node_version": _TEXT | st.none(),
    "epoch": _NUMBER,
    "uptime_seconds": _NUMBER,
    "active_operations_count": _NUMBER,
    "extra": st.none() | _TEXT | st.lists(st.integers(), max_size=2) | st.just({"deep": {}}),
}
_ENVELOPES = {
    "event_id": st.sampled_from(["x", "550E8400E29B41D4A716446655440000", None]) | _TEXT,
    "event_type": st.sampled_from([Kind.NODE_ACK.event_type, "node.heartbeat", None]),
    "timestamp": st.sampled_from(
        [
            *("2026-03-01T12:00:00Z", "2026-03-01T12:00:00", "2026-02-30T12:00:00Z", 5, None),
            *("2026-03-01T12:00:00.123456+00:00", "2026-03-01T14:00:00+02:00", "2026-03-01"),
        ]
    ),
    "schema_version": st.sampled_from([1, 2, 0, "1", None]),
    "tenant": st.sampled_from(["acme", "Not A Tenant", None]),
    "correlation_id": st.sampled_from([None, "x", "550e8400-e29b-41d4-a716-446655440000"]),
    "source": st.sampled_from(["node/x", None, 4]),
    "payload": st.sampled_from([None, {}, []]),
    "trailing": st.just(1),
}
_HEADERS = st.sampled_from(
    [{}, {}, {"x-tenant": b"acme"}, {"x-tenant": b"\xff"}, {"other": b"1"}, {"x-tenant": b"B"}]
)


@st.composite
def heartbeats(draw: st.DrawFn) -> list[RawRecord]:
    """Mostly plain heartbeats, with anything at all wrong with some."""
    beats = []
    for offset in range(draw(st.integers(1, 12))):
        odd = draw(st.booleans())
        payload = draw(st.fixed_dictionaries({}, optional=_FIELDS)) if odd else {"epoch": 1}
        envelope = draw(st.fixed_dictionaries({}, optional=_ENVELOPES)) if odd else {}
        node_id = payload.pop("node_id", "550e8400-e29b-41d4-a716-446655440000")
        beats.append(
            record(
                Kind.NODE_HEARTBEAT,
                offset,
                topic=draw(st.sampled_from(["beats", "old"])),
                offset=offset,
                node_id=node_id,
                headers=draw(_HEADERS),
                append_time=draw(st.booleans()),
                value=draw(st.sampled_from([None] * 9 + [b"{", b"\xff", b"[1]"])),
                envelope=envelope,
                **payload,
            )
        )
    return beats


def as_kafka(records: list[RawRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": raw.key,
                "value": raw.value,
                "topic": raw.topic,
                "partition": raw.partition,
                "offset": raw.offset,
                "timestamp": raw.timestamp,
                "timestampType": int(raw.append_time),
                "headers": [{"key": k, "value": v} for k, v in raw.headers.items()] or None,
            }
            for raw in records
        ],
        schema=pa.schema(
            {
                "key": pa.binary(),
                "value": pa.binary(),
                "topic": pa.string(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "timestampType": pa.int32(),
                "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            }
        ),
    )


def with_legacy(records: list[RawRecord]) -> list[RawRecord]:
    return [replace(raw, legacy=TOPICS[raw.topic].legacy) for raw in records]


def by_offset(event: LogEvent) -> int:
    assert event.provenance is not None
    return event.provenance.offset


@given(records=heartbeats())
@settings(max_examples=400, deadline=None)
def test_both_lanes_agree_on_every_record(records: list[RawRecord]) -> None:
    expected = [admit(raw, RULES, READ_AT) for raw in with_legacy(records)]
    entries = admit_batch(as_kafka(records), TOPICS, RULES, READ_AT, 4)
    events = sorted(to_events(events_of(entries), "registration"), key=by_offset)
    assert events == [item for item in expected if isinstance(item, LogEvent)]
    assert len(parked_of(entries)) == len(records) - len(events)


def test_plain_heartbeats_take_the_fast_lane() -> None:
    records = [record(Kind.NODE_HEARTBEAT, n, topic="beats", offset=n) for n in range(10)]
    table = pa.Table.from_batches([as_kafka(records)])
    entries, taken = admit_beats(table, ["old"], RULES, READ_AT, 4)
    assert taken.all()
    assert len(entries) == 10


def test_one_broken_record_costs_the_others_nothing() -> None:
    records = [record(Kind.NODE_HEARTBEAT, n, topic="beats", offset=n) for n in range(500)]
    spoilt = json.loads(records[250].value or b"")
    spoilt["payload"]["epoch"] = "one"
    records[250] = record(
        Kind.NODE_HEARTBEAT, 250, topic="beats", offset=250, value=json.dumps(spoilt).encode()
    )
    _, taken = admit_beats(pa.Table.from_batches([as_kafka(records)]), ["old"], RULES, READ_AT, 4)
    assert not taken[250]
    assert taken.sum() > 400


def test_a_day_that_does_not_exist_is_parked_and_costs_the_others_nothing() -> None:
    days = ("2026-02-28", "2026-02-30", "2026-03-01")
    records = [
        record(
            Kind.NODE_HEARTBEAT,
            n,
            topic="beats",
            offset=n,
            envelope={"timestamp": f"{day}T12:00:00Z"},
        )
        for n, day in enumerate(days)
    ]
    entries = admit_batch(as_kafka(records), TOPICS, RULES, READ_AT, 4)
    assert sorted(events_of(entries)["offset"].to_pylist()) == [0, 2]
    assert parked_of(entries)["offset"].to_pylist() == [1]


def test_the_rules_reach_both_lanes() -> None:
    raw = record(Kind.NODE_HEARTBEAT, 1, topic="beats")
    entries = admit_batch(as_kafka([raw]), TOPICS, RULES, READ_AT, 4)
    small: dict[str, Any] = {"max_event_bytes": 10}
    refused = admit_batch(as_kafka([raw]), TOPICS, replace(RULES, **small), READ_AT, 4)
    assert (len(parked_of(entries)), len(parked_of(refused))) == (0, 1)

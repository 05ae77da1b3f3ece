"""Whatever is sent becomes an event that the archive gives back, or a parked row."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import CANARY_ID, CANARY_NODE, CANARY_TENANT
from onex_platform.domain.intake import Parked, RawRecord, admit
from onex_platform.domain.order import position_at
from onex_platform.ingest.admission.admit import Admitted, admit_records
from onex_platform.ingest.event_schema import to_events
from onex_platform_tests.support.arrivals import KINDS, READ_AT, TOPICS, as_kafka
from onex_platform_tests.support.events import RULES, record

_HOLE = "@hole@"
_TIMES = [
    f"{day}{offset}"
    for day in ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999")
    for offset in ("Z", "+14:00", "-14:00", "+23:59", "")
]
# Fragments of JSON text: no library would write most of them.
_HOSTILE = [
    *map(json.dumps, _TIMES),
    *("1e18", "-1e18", "253402300800", "-62135596801", "9" * 30),
    *("9" * digits for digits in (4300, 4301, 100_000)),
    *("-" + "9" * 4300, "1e308", "1e400", "-1e400", "1e-999", "-0.0", "NaN", "Infinity"),
    *("[" * depth + "]" * depth for depth in (100, 198, 199, 200, 201, 5000, 200_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (100, 197, 198, 199, 200, 5000)),
    *(r'"\u0000"', r'{"\u0000":1}', r'"\ud800"', r'"\udc00\ud800"', r'{"\ud800":1}', '"\x00"'),
    *('"\x7f\x85\u2028\ufffe\U0010ffff"', r'"\ud83d\ude00"', '"' + "\U0010ffff" * 1025 + '"'),
    *('1,"node_id":"twice"', '1,"payload":{}', '1,"timestamp":1', "", "}", "]", '"', "\\"),
    *("true", "null", "[]", "{}", '""', '" "', '"\t"', "01", "+1", ".5", "0x1", "1_000"),
]
_ENVELOPE = ["event_id", "event_type", "timestamp", "schema_version", "tenant", "payload", "more"]
_PAYLOAD = [
    *("node_id", "epoch", "node_type", "node_name", "capabilities", "endpoints", "metadata"),
    *("deadline", "registered_at", "deregistered_at", "uptime_seconds", "active_operations_count"),
    *("ack_timeout_seconds", "request_id", "target_node_ids", "retry_eligible", "extra"),
]


@st.composite
def hostile_records(draw: st.DrawFn) -> RawRecord:
    topic = draw(st.sampled_from(sorted(KINDS)))
    spots = draw(st.lists(st.sampled_from([*_ENVELOPE, *_PAYLOAD]), min_size=1, max_size=3))
    sent = record(
        KINDS[topic],
        topic=topic,
        legacy=TOPICS[topic].legacy,
        headers=draw(st.sampled_from([(), [("x-tenant", None)], [("x-tenant", b"\x00")]])),
        envelope={spot: _HOLE for spot in spots if spot in _ENVELOPE},
        **{spot: _HOLE for spot in spots if spot in _PAYLOAD and spot != "node_id"},
        **({"node_id": _HOLE} if "node_id" in spots else {}),
    )
    text = (sent.value or b"").decode()
    while json.dumps(_HOLE) in text:
        text = text.replace(json.dumps(_HOLE), draw(st.sampled_from(_HOSTILE)), 1)
    return replace(sent, value=text.encode())


@given(st.lists(hostile_records(), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_nothing_that_is_sent_stops_the_intake(records: list[RawRecord]) -> None:
    records = [replace(raw, offset=n) for n, raw in enumerate(records)]
    verdicts = [admit(raw, RULES, READ_AT) for raw in records]
    expected = [item for item in verdicts if isinstance(item, LogEvent)]
    parked = [item for item in verdicts if isinstance(item, Parked)]
    found = admitted(records)
    events = sorted(to_events(found.events, "registration"), key=_offset)
    assert repr(events) == repr(expected)
    assert sorted(found.parked["offset"].to_pylist()) == [item.record.offset for item in parked]
    for text in [event.payload.model_dump_json() for event in events]:
        assert "\\u0000" not in text
        json.loads(text, parse_constant=pytest.fail)


def _offset(event: LogEvent) -> int:
    return event.provenance.offset if event.provenance else -1


def admitted(records: list[RawRecord], **columns: pa.Array) -> Admitted:
    table = pa.Table.from_batches([as_kafka(records)])
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values)
    return admit_records(table, TOPICS, RULES, READ_AT)


def test_a_parked_record_keeps_its_headers_as_they_came() -> None:
    headers = [("a", b"1"), ("a", b"2"), ("b", None), ("c\x00", b"\x00\xff")]
    raw = record(KINDS["acks"], topic="acks", value=b"not json", headers=headers)
    [row] = admitted([raw]).parked.to_pylist()
    assert row["header_names"] == ["a", "a", "b", r"c\x00"]
    assert row["header_values"] == [b"1", b"2", None, b"\x00\xff"]


@pytest.mark.parametrize("topic", ["beats", "acks"])
def test_only_the_canary_is_the_canary(topic: str) -> None:
    claims = [
        (CANARY_NODE, CANARY_TENANT),
        (str(CANARY_ID).upper(), CANARY_TENANT),
        (CANARY_NODE, "omnibase"),
        ("another", CANARY_TENANT),
        (str(CANARY_ID), "omnibase"),
    ]
    records = [
        record(KINDS[topic], topic=topic, offset=n, node_id=node_id, envelope={"tenant": tenant})
        for n, (node_id, tenant) in enumerate(claims)
    ]
    found = admitted(records)
    events = sorted(to_events(found.events, "registration"), key=_offset)
    assert [event.entity.entity_id == CANARY_ID for event in events] == [True, True, False]
    assert sorted(found.parked["offset"].to_pylist()) == [3, 4]


@pytest.mark.parametrize("topic", ["beats", "timeouts"], ids=["fast lane", "intake"])
def test_a_time_that_no_position_tells_is_none(topic: str) -> None:
    times = [
        -1,
        -(2**60),
        2**60,
        2**63 - 1,
        int(datetime(2248, 1, 1, tzinfo=UTC).timestamp()) * 10**6,
    ]
    for appended in (True, False):
        records = [
            record(KINDS[topic], topic=topic, offset=n, append_time=appended) for n in range(5)
        ]
        stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
        found = admitted(records, timestamp=stamps).events.sort_by("offset")
        *unknown, last = found["occurred_at"].to_pylist()
        assert unknown == [READ_AT] * 4
        assert last == (datetime(2248, 1, 1, tzinfo=UTC) if appended else READ_AT)
        assert position_at(last) < 2**63
    parked = [replace(raw, value=b"") for raw in records]
    assert (
        pc.sum(pc.is_null(admitted(parked, timestamp=stamps).parked["record_timestamp"])).as_py()
        == 4
    )

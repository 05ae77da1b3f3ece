"""Records as Kafka hands them over: plain ones, and ones with anything at all wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.headers import MOST_BYTES, EnumOnRead, HeaderRules
from onex_platform.domain.intake import RawRecord
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform_tests.support.events import at, record

Kind = EnumEventKind
READ_AT = at(500)
BEATS, OLD = "beats", "old"
KINDS = {
    BEATS: Kind.NODE_HEARTBEAT,
    OLD: Kind.NODE_HEARTBEAT,
    "introspections": Kind.NODE_INTROSPECTION,
    "acks": Kind.NODE_ACK,
    "shutdowns": Kind.NODE_SHUTDOWN,
    "failures": Kind.REGISTRATION_FAILED,
    "registered": Kind.NODE_REGISTERED,
    "timeouts": Kind.LIVENESS_EXPIRED,
    "requests": Kind.INTROSPECTION_REQUESTED,
}
_REQUIRED = ("x-actor", "x-scope")
_ASKED = {
    BEATS: HeaderRules(EnumOnRead.COUNT, _REQUIRED, "node_id"),
    OLD: HeaderRules(EnumOnRead.COUNT, (), "node_id"),
    "introspections": HeaderRules(EnumOnRead.PARK, _REQUIRED, "node_id"),
    "acks": HeaderRules(EnumOnRead.PARK, (), "node_id", tenant="acme"),
    "failures": HeaderRules(EnumOnRead.COUNT, ("x-scope",), "node_id", tenant="b"),
    "requests": HeaderRules(EnumOnRead.COUNT, _REQUIRED, "request_id"),
}
TOPICS = {topic: InputTopic(kind, legacy=topic == OLD) for topic, kind in KINDS.items()}
# The same, with contracts that ask for headers.
STRICT_TOPICS = TOPICS | {
    topic: TOPICS[topic]._replace(asked=asked) for topic, asked in _ASKED.items()
}
RAW = "@raw@"  # replaced by something that Python would not write
_RAWS = [
    "1e999",
    "-1e999",
    "1" * 400 + ".5",
    "1e-400",
    "NaN",
    "-Infinity",
    "01",
    "{}",
    '"{x}"',
    "[{}]",
    "1}",
    "\x00",
    "[" * 150 + "]" * 150,
    "[" * 200 + "]" * 200,
    '{"a":' * 199 + "1" + "}" * 199,
    "[" * 100_000 + "]" * 100_000,
    "9" * 5000,
    r'"\ud800"',
]
# Both ends of the calendar, and beyond them once they are told in UTC.
_EXTREMES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00",
)
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
    "epoch": _NUMBER | st.sampled_from([2**62, 2**62 + 1, 2**63 - 1, 2**63]),
    "deadline": st.sampled_from(_EXTREMES),
    "registered_at": st.sampled_from(_EXTREMES),
    "uptime_seconds": _NUMBER,
    "active_operations_count": _NUMBER,
    "payload": _TEXT | st.just({}),
    "extra": st.none()
    | _TEXT
    | st.floats()
    | st.just(RAW)
    | st.lists(st.integers(), max_size=2)
    | st.just({"deep": {}}),
}
_ENVELOPES = {
    "event_id": st.sampled_from(["x", "550E8400E29B41D4A716446655440000", None]) | _TEXT,
    "event_type": st.sampled_from([Kind.NODE_ACK.event_type, "node.heartbeat", None]),
    "timestamp": st.sampled_from(
        [
            *("2026-03-01T12:00:00Z", "2026-03-01T12:00:00", "2026-02-30T12:00:00Z", 5, None),
            *("2026-03-01T12:00:00.123456+00:00", "2026-03-01T14:00:00+02:00", "2026-03-01"),
            *(*_EXTREMES, 1e18, -62135596800),
        ]
    ),
    "schema_version": st.sampled_from([1, 2, 0, "1", None]),
    "tenant": st.sampled_from(["acme", "Not A Tenant", None]),
    "correlation_id": st.sampled_from([None, "x", "550e8400-e29b-41d4-a716-446655440000"]),
    "source": st.sampled_from(["node/x", None, 4]),
    "payload": st.sampled_from([None, {}, []]),
    "more": st.sampled_from([1, "{", {"payload": {}}, RAW]),
}


def _oddities(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Nothing odd, one field, or any number of them."""
    alone = [values.map(lambda value, name=name: {name: value}) for name, values in fields.items()]
    return st.just({}) | st.one_of(alone) | st.fixed_dictionaries({}, optional=fields)


_PAYLOAD_ODDITIES = _oddities(_FIELDS)
_ENVELOPE_ODDITIES = _oddities(_ENVELOPES)
_HEADERS = st.lists(
    st.sampled_from(
        [
            *(("other", b"1"), ("other", None)),
            *(("x-tenant", text) for text in (b"acme", b"acme", b"\xff", b"B", None)),
            *(("x-actor", text) for text in (b"tests", b"tests", b"others", b"\xff", None)),
            *(("x-scope", text) for text in (b"s", b"\xc3", b"x" * (MOST_BYTES + 1), None)),
        ]
    ),
    max_size=4,
)
_KEYS = st.sampled_from([None, b"another", b"\xff"])


@st.composite
def arrivals(draw: st.DrawFn, topics: dict[str, InputTopic] = STRICT_TOPICS) -> list[RawRecord]:
    """Mostly plain records of any kind, with anything at all wrong with some."""
    arrived = []
    for offset in range(draw(st.integers(1, 12))):
        payload, envelope = draw(_PAYLOAD_ODDITIES), draw(_ENVELOPE_ODDITIES)
        node_id = payload.pop("node_id", "550e8400-e29b-41d4-a716-446655440000")
        topic = draw(st.sampled_from([BEATS, *KINDS]))
        sent = record(
            KINDS[topic],
            offset,
            topic=topic,
            offset=offset,
            node_id=node_id,
            headers=draw(_HEADERS),
            append_time=draw(st.booleans()),
            envelope=envelope,
            legacy=TOPICS[topic].legacy,
            **payload,
        )
        assert sent.value is not None
        value = _reordered(draw, sent.value).replace(json.dumps(RAW), draw(st.sampled_from(_RAWS)))
        broken = draw(st.sampled_from([None] * 9 + [b"{", b"\xff", b"[1]", b"", b"{}{}"]))
        sent = replace(sent, value=value.encode() if broken is None else broken)
        key = sent.key if draw(st.integers(0, 3)) else draw(_KEYS)
        arrived.append(replace(sent, key=key, asked=topics[topic].asked))
    return arrived


def _reordered(draw: st.DrawFn, value: bytes) -> str:
    """The same document with its payload at the end, as most producers write it, or anywhere."""
    document = json.loads(value)
    last = {"payload": document.pop("payload")}
    fields = document | last if draw(st.integers(0, 9)) else last | document
    return json.dumps(fields, separators=draw(st.sampled_from([(",", ":"), None])))


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
                "headers": [{"key": k, "value": v} for k, v in raw.headers] or None,
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


def by_offset(event: LogEvent) -> int:
    assert event.provenance is not None
    return event.provenance.offset


def beats(count: int) -> list[RawRecord]:
    return [record(Kind.NODE_HEARTBEAT, n, topic=BEATS, offset=n) for n in range(count)]

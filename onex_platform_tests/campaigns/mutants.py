"""Records as nobody should send them: valid ones of every kind, changed in structure and in bytes.

Everything comes from one seed. Nodes and event ids are drawn from small pools, so that lives go on,
ids repeat, and what was mutated meets what was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import LIFECYCLE_RANK
from onex_platform.ingest.admission.fast_path import InputTopic

Kind = EnumEventKind
Document = dict[str, Any]

KINDS = tuple(LIFECYCLE_RANK)
LEGACY = "legacy.heartbeats"
TOPICS = {f"onex.{kind}.v1": InputTopic(kind, legacy=False) for kind in KINDS}
TOPICS[LEGACY] = InputTopic(Kind.NODE_HEARTBEAT, legacy=True)

# As Spark's Kafka source shows them.
RECORDS = pa.schema(
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
)

_JOIN = (Kind.NODE_INTROSPECTION, Kind.NODE_ACK, Kind.NODE_HEARTBEAT)
_FREQUENT = (*_JOIN, *_JOIN, Kind.NODE_HEARTBEAT, Kind.NODE_SHUTDOWN)
_RAW = "@raw@"  # stands for a text that no library would write
_RAWS = (
    *("9" * digits for digits in (19, 100, 308, 400, 4299, 4300, 4301, 20_000)),
    *("-" + "9" * 4300, "1e308", "1.8e308", "1e999", "1e-999", "-0", "-0.0", "NaN", "-Infinity"),
    *("[" * depth + "]" * depth for depth in (100, 149, 190, 198, 201, 3000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (100, 190, 198, 201, 3000)),
    *(r'"\u0000"', r'{"\u0000":1}', r'"\ud800"', r'"\ud83d\ude00"', r'"\udc00\ud83d"', '"\x00"'),
    *('1,"node_id":"twice"', '1,"payload":{}', '1,"epoch":7', '1,"timestamp":1', "", "}", "\\"),
    *("01", "+1", ".5", "1_0", "0x1", "tru", "1 2", "\ufeff1", "\u00a01", "'a'", "//"),
)
_TIMES = (
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z"),
    *("2026-03-01T24:00:00Z", "2026-03-01T12:00:60Z", "2026-03-01T12:00:00", "2026-03-01"),
    *("2026-03-01T12:00:00.1234567Z", "2026-03-01t12:00:00z", "+12026-03-01T12:00:00Z"),
    *(0, -1, 1e18, -62135596800, -62135596801, 253402300799, 253402300800, 5.5),
)
_IDS = (
    *("{550e8400-e29b-41d4-a716-446655440000}", "URN:UUID:550E8400-E29B-41D4-A716-446655440000"),
    *("550e8400e29b41d4a716446655440000", "+50e8400e29b41d4a716446655440000", "1_" * 16),
    *("\uff11\uff12" * 16, " 50e8400e29b41d4a716446655440000", "ß" * 256, "n" * 257, "\u200f"),
    *("tab\there", "", " ", "\x7f", "\x85", "\u2028", "\U0010ffff" * 256, "'; DROP TABLE x; --"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 1.5, 2.0, 1e300, -1e300, 5e-324, 2**31, 2**53 + 1),
    *(2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**300),
    *("", " ", "1", "1.0", "true", "null", "é" * 1024, "x" * 1025, "\U0010ffff" * 1024),
    *("\ufffe\uffff", "\u202eabc", "a\u0301", "%s", "{}", '"', "\\", "\r\n", "x" * 70_000),
    *([], {}, [None], [[]], [1, "a", {}], {"": ""}, {"a": [True, {"b": None}]}, ["x"] * 3000),
    *({str(n): True for n in range(500)}, {"supported_operations": ["a", "a"]}, {"protocols": [1]}),
    *(_RAW, _RAW, _RAW, *_TIMES, *_IDS),
    *("EFFECT", "Compute", "ﬃ", "WIZARD", "omnibase", "other-tenant", "1!2.0+l", "v" + "9" * 1000),
)
_FIELDS = (
    *("node_id", "epoch", "node_type", "node_version", "node_name", "capabilities", "endpoints"),
    *("metadata", "network_id", "deadline", "reason", "error_code", "error_message", "extra"),
    *("retry_eligible", "uptime_seconds", "active_operations_count", "registered_at", "request_id"),
    *("target_node_ids", "ack_timeout_seconds", "ttl_seconds", "consul_success", "ключ", "a\u0000"),
)
_ENVELOPE = (
    *("event_id", "event_type", "source", "correlation_id", "timestamp", "schema_version"),
    *("tenant", "payload", "more"),
)
_HEADERS: tuple[list[Document], ...] = (
    [],
    [],
    [{"key": "other", "value": None}],
    [{"key": "x-tenant", "value": b"omnibase"}],
    [{"key": "x-tenant", "value": b"other"}],
    [{"key": "x-tenant", "value": b"\xff\xfe"}],
    [{"key": "x-tenant", "value": None}],
    [{"key": "x-tenant", "value": b"other"}, {"key": "x-tenant", "value": b"omnibase"}],
    [{"key": "c\x00", "value": b"\x00"}, {"key": "", "value": b""}],
)


class Mutants:
    """An endless stream of records around a moving moment."""

    def __init__(self, seed: int, nodes: int = 150, mutated: float = 0.6) -> None:
        self._random = Random(seed)
        self._nodes = [
            f"node-{n}" if n % 3 else str(UUID(int=self._random.getrandbits(128)))
            for n in range(nodes)
        ]
        self._mutated = mutated
        self._ids: list[str] = []
        self._offset = 0

    def batch(self, count: int, since: datetime, until: datetime) -> pa.Table:
        """So many records, most of them of these times."""
        rows = [self._record(since, until) for _ in range(count)]
        return pa.Table.from_pylist(rows, schema=RECORDS)

    def _record(self, since: datetime, until: datetime) -> Document:
        random = self._random
        topic = random.choice([*TOPICS, *(f"onex.{kind}.v1" for kind in _FREQUENT)])
        kind, node = TOPICS[topic].kind, random.choice(self._nodes)
        moment = since + random.random() * (until - since)
        document = self._document(kind, node, moment)
        value: bytes | None
        if random.random() < self._mutated:
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                self._change(document)
            value = self._spelled(document)
            if random.random() < 0.2:
                value = random.choice(_BYTES)(random, value)
            if random.random() < 0.01:
                value = random.choice((None, b"", b"null", b"[]", b"{}", b"\x00", b'"', b"7"))
        else:
            value = self._spelled(document)
        self._offset += 1
        odd = random.random() < 0.05
        return {
            "key": random.choice((None, b"", b"\xff" * 300)) if odd else node.encode(),
            "value": value,
            "topic": topic,
            "partition": random.choice((0, 1, 2**31 - 1)),
            "offset": self._offset + random.choice((0, 2**61)),
            "timestamp": self._stamp(moment) if odd else moment,
            "timestampType": random.choice((0, 1, 1, 1)),
            "headers": random.choice(_HEADERS) or None,
        }

    def _stamp(self, moment: datetime) -> datetime | int | None:
        """A broker's time that is none, or far off; in microseconds."""
        far = (0, -1, -(2**62), 2**62, 9_223_372_036_854_775, 8_796_093_022_208_000)
        return self._random.choice((None, moment + timedelta(days=80_000), *far))

    def _document(self, kind: EnumEventKind, node: str, moment: datetime) -> Document:
        random = self._random
        event_id = str(UUID(int=random.getrandbits(128)))
        if self._ids and random.random() < 0.05:
            event_id = random.choice(self._ids)
        self._ids = [*self._ids[-500:], event_id]
        payload: Document = {"node_id": node}
        if random.random() < 0.4:
            payload["epoch"] = random.choice((1, 1, 2, 3, 2**62, 2**62 + 1, 2**63 - 1))
        if kind is Kind.NODE_INTROSPECTION:
            payload |= {
                "node_type": random.choice(("EFFECT", "compute", "Reducer", "orchestrator")),
                "node_version": random.choice(("1.2.3", "2.0", "not a version")),
                "capabilities": {"read": random.random() < 0.7, "supported_operations": ["a"]},
                "endpoints": {"health": "http://localhost"},
                "metadata": {"rack": random.randrange(9)},
            }
        elif kind is Kind.NODE_HEARTBEAT:
            payload |= {"uptime_seconds": random.random() * 1e6, "active_operations_count": 3}
        elif kind is Kind.REGISTRATION_FAILED:
            payload |= {"error_code": "NO", "retry_eligible": random.random() < 0.5}
        elif kind in (Kind.ACK_TIMED_OUT, Kind.LIVENESS_EXPIRED):
            payload["deadline"] = (moment + timedelta(seconds=30)).isoformat()
        elif kind is Kind.INTROSPECTION_REQUESTED:
            payload = {"request_id": "request-1", "target_node_ids": [node]}
        elif kind is Kind.NODE_SHUTDOWN:
            payload["reason"] = "maintenance"
        return {
            "event_id": event_id,
            "event_type": kind.event_type,
            "source": "mutants",
            "correlation_id": str(UUID(int=random.getrandbits(128))),
            "timestamp": moment.isoformat(),
            "payload": payload,
        }

    def _change(self, document: Document) -> None:
        """One change of structure, in place."""
        random = self._random
        part = document
        fields: tuple[str, ...] = _ENVELOPE
        if isinstance(document.get("payload"), dict) and random.random() < 0.7:
            part, fields = document["payload"], _FIELDS
        do = random.random()
        if do < 0.75:
            part[random.choice(fields)] = deepcopy(random.choice(_VALUES))
        elif do < 0.85 and part:
            part.pop(random.choice(list(part)))
        elif do < 0.93 and part:
            name = random.choice(list(part))
            part[random.choice((name.upper(), f"{name} ", random.choice(_FIELDS)))] = deepcopy(
                part[name]
            )
        elif part:
            name = random.choice(list(part))
            part[name] = random.choice(([part[name]], {name: part[name]}, str(part[name])))

    def _spelled(self, document: Document) -> bytes:
        random = self._random
        if random.random() < 0.1:
            document = dict(random.sample(list(document.items()), len(document)))
        text = json.dumps(
            document,
            ensure_ascii=random.random() < 0.3,
            separators=random.choice(((",", ":"), (", ", ": "))),
        )
        for _ in range(text.count(json.dumps(_RAW))):
            text = text.replace(json.dumps(_RAW), random.choice(_RAWS), 1)
        return text.encode("utf-8", "surrogatepass")


def _flipped(random: Random, value: bytes) -> bytes:
    place = random.randrange(len(value))
    return value[:place] + bytes([random.randrange(256)]) + value[place + 1 :]


def _cut(random: Random, value: bytes) -> bytes:
    return value[: random.randrange(len(value))]


def _repeated(random: Random, value: bytes) -> bytes:
    start, end = sorted(random.randrange(len(value)) for _ in range(2))
    return value[:end] + value[start:]


def _digits(random: Random, value: bytes) -> bytes:
    """Every digit another one."""
    return bytes(random.randrange(48, 58) if 48 <= byte < 58 else byte for byte in value)


def _inserted(random: Random, value: bytes) -> bytes:
    place = random.randrange(len(value))
    odd = (b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b'"', b"{", b"}", b"\\", b"9" * 25, b" ")
    return value[:place] + random.choice(odd) + value[place:]


_BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flipped,
    _cut,
    _repeated,
    _digits,
    _inserted,
    lambda _, value: b"\xef\xbb\xbf" + value,
    lambda _, value: value + b" {}",
    lambda _, value: value.decode("utf-8", "replace").encode("utf-16"),
    lambda _, value: b"\n" + value + b"\n",
)


def moments(start: datetime, step: timedelta = timedelta(seconds=40)) -> Iterator[datetime]:
    """Where one batch ends and the next begins."""
    while True:
        yield start
        start += step

"""Records that the intake must park: one way to break an event per line, with the reason it earns.

Each spoils a healthy event of a real node: a tenant in the headers, all else in the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import TENANT
from onex_platform.domain.identity import MAX_NODE_ID_LENGTH
from onex_platform.simulate.records import Headers
from onex_platform.simulate.wire import dump

Kind = EnumEventKind
Reason = EnumParkReason
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Malformation:
    """`spoil` makes the value from a healthy document and the largest size that is still read."""

    reason: EnumParkReason
    kind: EnumEventKind
    spoil: Callable[[Document, int], bytes | None]
    headers: Headers | None = None  # None: the node's own
    weight: float = 1


def _envelope(**fields: Any) -> Callable[[Document, int], bytes]:
    return lambda document, _: dump(document | fields)


def _payload(**fields: Any) -> Callable[[Document, int], bytes]:
    return lambda document, _: dump(document | {"payload": document["payload"] | fields})


def _without(name: str) -> Callable[[Document, int], bytes]:
    return lambda document, _: dump({n: v for n, v in document.items() if n != name})


def _padded(document: Document, limit: int) -> bytes:
    return dump(document | {"padding": "x" * limit})


MALFORMATIONS: tuple[Malformation, ...] = (
    Malformation(Reason.NO_VALUE, Kind.NODE_HEARTBEAT, lambda *_: None),
    # Rare, because each weighs as much as thousands of heartbeats.
    Malformation(Reason.TOO_LARGE, Kind.NODE_INTROSPECTION, _padded, weight=0.05),
    Malformation(Reason.NOT_JSON, Kind.NODE_HEARTBEAT, lambda document, _: dump(document)[:-9]),
    Malformation(Reason.NOT_JSON, Kind.NODE_HEARTBEAT, lambda *_: b"\xff\xfe\x00 not text"),
    Malformation(Reason.BAD_ENVELOPE, Kind.NODE_INTROSPECTION, _without("event_id")),
    Malformation(Reason.BAD_ENVELOPE, Kind.NODE_HEARTBEAT, _without("payload")),
    Malformation(Reason.BAD_ENVELOPE, Kind.NODE_INTROSPECTION, _envelope(payload=None)),
    Malformation(
        Reason.BAD_ENVELOPE, Kind.NODE_INTROSPECTION, _envelope(timestamp="2025-01-15T10:30:05")
    ),
    Malformation(
        Reason.UNKNOWN_EVENT_TYPE,
        Kind.NODE_INTROSPECTION,
        _envelope(event_type="onex.node.introspection.whispered"),
    ),
    Malformation(
        Reason.WRONG_EVENT_TYPE,
        Kind.NODE_SHUTDOWN,
        _envelope(event_type=Kind.NODE_HEARTBEAT.event_type),
    ),
    Malformation(Reason.UNKNOWN_VERSION, Kind.NODE_INTROSPECTION, _envelope(schema_version=99)),
    Malformation(Reason.BAD_PAYLOAD, Kind.NODE_INTROSPECTION, _payload(node_type="ORACLE")),
    Malformation(Reason.BAD_PAYLOAD, Kind.NODE_INTROSPECTION, _payload(epoch=-1)),
    Malformation(Reason.BAD_PAYLOAD, Kind.NODE_INTROSPECTION, _payload(network_id="a\x00b")),
    Malformation(Reason.BAD_PAYLOAD, Kind.NODE_HEARTBEAT, _payload(node_id=None)),
    Malformation(
        Reason.BAD_NODE_ID, Kind.NODE_HEARTBEAT, _payload(node_id="n" * (MAX_NODE_ID_LENGTH + 44))
    ),
    Malformation(Reason.BAD_NODE_ID, Kind.NODE_HEARTBEAT, _payload(node_id="")),
    Malformation(Reason.BAD_NODE_ID, Kind.NODE_INTROSPECTION, _payload(node_id="node\u0007one")),
    Malformation(
        Reason.BAD_TENANT,
        Kind.NODE_HEARTBEAT,
        lambda document, _: dump(document),
        headers=((TENANT, b"No Tenant"),),
    ),
    Malformation(
        Reason.BAD_TENANT,
        Kind.NODE_HEARTBEAT,
        _envelope(tenant="somebody-else"),
        headers=((TENANT, b"somebody"),),
    ),
    # A clock that lost its battery. An acknowledgement that nobody awaits does no harm where the
    # reader keeps no ledger and lets it in.
    Malformation(Reason.BEYOND_LEDGER, Kind.NODE_ACK, _envelope(timestamp="1980-01-01T00:00:00Z")),
)

"""Herds: nodes to which the same happens at once, and those among them to which it does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import identify_node
from onex_platform.domain.order import POSITION_STRIDE, position_at
from onex_platform.domain.payloads import IntrospectionPayload
from onex_platform.domain.states import EnumNodeType
from onex_platform_tests.support.events import at, event, number_id

Kind = EnumEventKind

NODES = (
    *(f"node-{number}" for number in range(6)),
    *("00000000-0000-4000-8000-00000000000A", "{00000000-0000-4000-8000-00000000000b}"),
    *(
        'quo"ted',
        "back\\slash",
        "Knoten ü",
        "節点",
        "tab less",
        "\U0001f40d",
        "it's",
        "a,b;c\u2028",
    ),
    "5ca1ab1e-0000-5000-8000-000000000001",
)
TENANTS = ("omnibase", 'ten"ant, \\N')
POLICIES = (
    RegistrationPolicy(),
    RegistrationPolicy(
        tenants=frozenset({"omnibase"}),
        versions=">=1.2,<3",
        required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})},
        forbidden_capabilities=frozenset({"shout", "grpc"}),
        request_interval=timedelta(seconds=20),
    ),
)
KINDS = (Kind.NODE_INTROSPECTION, Kind.NODE_ACK, Kind.NODE_SHUTDOWN)
_PASSAGES = (KINDS, KINDS, KINDS[:2], KINDS[:1], KINDS[1:])
_ODD_KINDS = (
    *(Kind.NODE_HEARTBEAT, Kind.NODE_DEREGISTERED, Kind.REGISTRATION_FAILED, Kind.ACK_TIMED_OUT),
    *(Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED, Kind.LIVENESS_EXPIRED),
)
_CAPABILITIES: tuple[dict[str, Any], ...] = (
    {},
    {"read": True, "max_concurrent_requests": 8, "more": {"deep": [1, 2.5, None]}},
    {"read": True, "protocols": ["grpc"], "supported_operations": ["run"]},
    {"read": True, "shout": True},
)
REASONS = (None, "graceful_shutdown", 'an "odd"\n reason, 5ca1ab1e-0000-5000-8000-000000000001')


class Batch(NamedTuple):
    """A part of a log, in chunks, and when it is decided."""

    now: float
    chunks: list[list[LogEvent]]

    @property
    def nodes(self) -> set[bytes]:
        return {event.entity.entity_id.bytes for chunk in self.chunks for event in chunk}


@st.composite
def herds(draw: st.DrawFn) -> list[Batch]:
    """Most nodes do the same in a batch, the other ones something else or more than one thing."""
    batches: list[Batch] = []
    moment = number = 0
    passages = st.lists(st.sampled_from(_PASSAGES), min_size=1, max_size=3)
    for kind in chain.from_iterable(draw(passages)):
        chunks = []
        decided = moment + draw(st.sampled_from([-1, 5, 5, 40]))
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            epoch = draw(st.sampled_from([None, None, None, 1, 2]))
            tenant = draw(st.sampled_from([TENANTS[0], TENANTS[0], *TENANTS]))
            said = _said(draw, kind)
            chunk = []
            absent = draw(st.sets(st.sampled_from(NODES), max_size=4))
            for node in [node for node in NODES if node not in absent]:
                number += 1
                chunk.append(_event(kind, number, moment, node, tenant, epoch, **said))
            odd = st.tuples(st.sampled_from(NODES), st.sampled_from((*KINDS, *_ODD_KINDS)))
            for node, other in draw(st.lists(odd, max_size=3)):
                number += 1
                theirs = draw(st.sampled_from(TENANTS))
                an_epoch = draw(st.sampled_from([epoch, None, 1, 2]))
                seconds = moment + draw(st.sampled_from([0, 1, 6, 50]))
                extra = _said(draw, other)
                odd_event = _event(other, number, seconds, node, theirs, an_epoch, **extra)
                chunk.append(replace(odd_event, duplicate=draw(st.integers(0, 4)) == 0))
            chunks.append(chunk)
            moment += draw(st.sampled_from([1, 35, 95]))
        batches.append(Batch(decided, chunks))
    return batches


def deed(kind: EnumEventKind, number: int, nodes: Iterable[int], **said: Any) -> list[LogEvent]:
    """What many nodes do at once; deeds are numbered in their order."""
    seconds = 100 * (number - 1)
    events = (
        _event(kind, 1000 * number + node, seconds, f"node-{node}", TENANTS[0], None, **said)
        for node in nodes
    )
    return [replace(event, correlation_id=event.event_id) for event in events]


def _said(draw: st.DrawFn, kind: EnumEventKind) -> dict[str, Any]:
    if kind is Kind.NODE_INTROSPECTION:
        return {
            "capabilities": draw(st.sampled_from(_CAPABILITIES)),
            "node_version": draw(st.sampled_from([None, "1.2.3", "0.9", "none"])),
            "node_type": draw(st.sampled_from(list(EnumNodeType))),
            "node_name": draw(st.sampled_from([None, "named", '"'])),
            "metadata": draw(st.sampled_from([{}, {"a\nb": "\\N", "n": 1e300}])),
        }
    if kind is Kind.NODE_SHUTDOWN:
        return {"reason": draw(st.sampled_from(REASONS))}
    if kind is Kind.REGISTRATION_FAILED:
        return {"retry_eligible": draw(st.booleans())}
    return {}


def _event(
    kind: EnumEventKind,
    number: int,
    seconds: float,
    node_id: str,
    tenant: str,
    epoch: int | None,
    **said: Any,
) -> LogEvent:
    entity_id, name = identify_node(node_id, TENANTS[0])
    made = event(
        kind,
        position_at(at(seconds)) + number * POSITION_STRIDE,
        seconds + number / 1000,
        event_id=number_id(number),
        node=entity_id,
        tenant=tenant,
        epoch=epoch,
        **said,
    )
    payload = made.payload
    if isinstance(payload, IntrospectionPayload):
        payload = payload.model_copy(update={"node_id": node_id})
    return replace(
        made,
        node_id=node_id,
        node_name=name,
        payload=payload,
        correlation_id=number_id(-number) if number % 3 else None,
    )

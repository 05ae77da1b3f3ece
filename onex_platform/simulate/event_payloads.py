"""What is said: the payload of each event kind, as the node or the registry would fill it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.events import EnumEventKind
from onex_platform.simulate.nodes import Node
from onex_platform.simulate.scenarios import Manner
from onex_platform.simulate.wire import (
    BeatForm,
    beat_form,
    envelope,
    event_type_of,
    time_text,
    uuid_text,
)

Kind = EnumEventKind
Payload = dict[str, Any]

# Nodes of the scenario "rejected" offer it; a policy that forbids it turns exactly them away.
UNWELCOME_CAPABILITY = "quarantined"


# What the registry says, not the node.
REGISTRYS = frozenset(kind for kind in EnumEventKind if kind.value.startswith("registry."))


def payload_of(
    kind: EnumEventKind,
    node: Node,
    time_ms: int,
    windows: Durations,
    manner: Manner = Manner.PLAIN,
) -> Payload:
    """The payload of an event about `node` that is said at this time."""
    if kind is Kind.INTROSPECTION_REQUESTED:
        return _request(node, time_ms)
    if kind not in REGISTRYS:
        return _from_node(node) | _NODE_FIELDS[kind](node, manner)
    about = {"node_id": node.traits.registry_voice.node_id, "epoch": node.epoch}
    return about | _REGISTRY_FIELDS[kind](node, time_ms, manner, windows)


def heartbeat_form(node: Node, *, old_style: bool) -> BeatForm:
    """The heartbeats of this node for as long as its life and version last."""
    fields = _from_node(node) | {"node_type": _type_text(node), "node_version": _version(node)}
    if not node.traits.epoch_in_beats:
        fields.pop("epoch", None)
    return beat_form(
        envelope(
            event_id=uuid_text(0),
            event_type=event_type_of(Kind.NODE_HEARTBEAT, old_style=old_style),
            source=node.traits.own_voice.source,
            correlation_id=node.correlation_id,
            timestamp_ms=0,
            payload=fields,
        )
    )


def _from_node(node: Node) -> Payload:
    about: Payload = {"node_id": node.traits.own_voice.node_id}
    return about | {"epoch": node.epoch} if node.names_epoch else about


def _type_text(node: Node) -> str:
    """Both spellings are about; the fleet has half of each."""
    text = node.traits.node_type.value
    return text.upper() if node.traits.index % 2 == 0 else text


def _version(node: Node) -> str:
    return f"1.{node.level}.0"


def _introspection(node: Node, manner: Manner) -> Payload:
    family = node.traits.family
    unwelcome = {UNWELCOME_CAPABILITY: True} if manner is Manner.UNWELCOME else {}
    return {
        "node_type": _type_text(node),
        "node_version": _version(node),
        "capabilities": {
            family.partition("-")[0]: True,
            "write": node.level % 2 == 1,
            "supported_operations": ["describe", "health", "run"][: 1 + node.level % 3],
            "protocols": ["http", "grpc"][: 1 + node.level % 2],
            "max_concurrent_requests": 8 * (1 + node.level % 4),
        }
        | unwelcome,
        "endpoints": {"health": f"http://{family}:8080/health"},
        "metadata": {"environment": "simulated", "region": f"region-{node.traits.index % 3}"},
        "network_id": "onex-simulated",
        "deployment_id": f"deploy-{node.traits.index:05d}",
    }


_NODE_FIELDS: Mapping[EnumEventKind, Callable[[Node, Manner], Payload]] = {
    Kind.NODE_INTROSPECTION: _introspection,
    Kind.NODE_HEARTBEAT: lambda node, _: {"node_type": _type_text(node), "uptime_seconds": 0},
    Kind.NODE_ACK: lambda _node, _: {},
    Kind.NODE_SHUTDOWN: lambda node, _: {
        "node_type": _type_text(node),
        "reason": "graceful_shutdown",
    },
}


def _failure(_node: Node, _time_ms: int, manner: Manner, _windows: Durations) -> Payload:
    if manner is Manner.PASSING:
        return {
            "error_code": "CONSUL_REGISTRATION_FAILED",
            "error_message": "the service registration timed out",
            "retry_eligible": True,
            "suggested_retry_delay_seconds": 30,
        }
    return {
        "error_code": "CAPABILITY_FORBIDDEN",
        "error_message": f"capabilities {UNWELCOME_CAPABILITY} are not allowed",
        "retry_eligible": False,
    }


def _deadline(node: Node, *_: Any) -> Payload:
    return {"deadline": time_text(node.deadline_ms)}


_REGISTRY_FIELDS: Mapping[EnumEventKind, Callable[[Node, int, Manner, Durations], Payload]] = {
    Kind.NODE_ACCEPTED: lambda *_: {},
    Kind.ACK_REQUESTED: lambda _n, _t, _m, windows: {
        "ack_timeout_seconds": windows.ack.total_seconds()
    },
    Kind.NODE_REGISTERED: lambda node, time_ms, _m, windows: {
        "registration_id": f"{node.traits.registry_voice.node_id}/{node.epoch}",
        "registered_at": time_text(time_ms),
        "ttl_seconds": windows.first_liveness.total_seconds(),
    },
    Kind.REGISTRATION_FAILED: _failure,
    Kind.ACK_TIMED_OUT: _deadline,
    Kind.LIVENESS_EXPIRED: _deadline,
    Kind.NODE_DEREGISTERED: lambda _n, time_ms, _m, _w: {
        "reason": "graceful_shutdown",
        "deregistered_at": time_text(time_ms),
    },
}


def _request(node: Node, time_ms: int) -> Payload:
    return {
        "request_id": request_id(node, time_ms),
        "target_node_ids": [node.traits.registry_voice.node_id],
        "reason": "heartbeat_without_registration",
    }


def request_id(node: Node, time_ms: int) -> str:
    """Also the key of the request's record: requests are not keyed by node."""
    return f"{node.traits.registry_voice.node_id}/{time_ms}"

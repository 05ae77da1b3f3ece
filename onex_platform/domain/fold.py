"""The reference fold: one event onto one projection, by the table and nothing else.

Pure and total: it reads no clock, knows no duration and asks no policy. Everything that was ever
decided is in the event. Therefore folding the log again gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, cast

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.payloads import (
    IntrospectionPayload,
    RegistrationFailedPayload,
    TimeoutPayload,
)
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome, EnumRegistrationState
from onex_platform.domain.transitions import (
    INFORMATIONAL,
    Effect,
    Life,
    Transition,
    When,
    find_transition,
)

FIRST_EPOCH = 1

Changes = dict[str, Any]


class Folded(NamedTuple):
    """What an event did: the row after it, the outcome, and why if it had no effect."""

    projection: ModelRegistrationProjection | None
    outcome: EnumOutcome
    reason: str = ""


def apply(projection: ModelRegistrationProjection | None, event: LogEvent) -> Folded:
    """Fold `event` onto `projection` (None: the node is unknown)."""
    if event.duplicate:
        return Folded(projection, EnumOutcome.DUPLICATE, "its event_id entered the log before")
    if projection is not None:
        if event.tenant != projection.tenant:
            return Folded(
                projection,
                EnumOutcome.PARKED,
                f"tenant {event.tenant!r} claims a node of tenant {projection.tenant!r}",
            )
        if event.position <= projection.last_applied_sequence:
            return Folded(projection, EnumOutcome.STALE, "its position is folded already")
    if event.kind in INFORMATIONAL:
        return Folded(projection, EnumOutcome.APPLIED)
    return _apply_to_life(projection, event)


def _apply_to_life(projection: ModelRegistrationProjection | None, event: LogEvent) -> Folded:
    life = _life_of(projection, event)
    if life is None:
        return Folded(projection, EnumOutcome.STALE, "it belongs to an older life")
    if life is Life.CURRENT and projection is not None:
        if _speaks_of_the_future(projection, event):
            return _illegal(projection, event, f"epoch {event.epoch} has not begun")
        if projection.is_closed():
            return _illegal(projection, event, "the node is deregistered")
        if _is_outdated_introspection(projection, event):
            return Folded(projection, EnumOutcome.STALE, "a newer introspection was folded before")
    transition = _transition_for(projection, event, life)
    if transition is None:
        return _illegal(projection, event, "the transition table does not allow it")
    if transition.when is When.DEADLINE_STANDS and not _deadline_stands(projection, event):
        return Folded(projection, EnumOutcome.STALE, "the deadline it names no longer stands")
    return Folded(_changed(projection, event, transition), EnumOutcome.APPLIED)


def _life_of(projection: ModelRegistrationProjection | None, event: LogEvent) -> Life | None:
    """The life that the event speaks of; None if that life is over and another has begun."""
    introspects = event.kind is EnumEventKind.NODE_INTROSPECTION
    if projection is None:
        return Life.NEW if introspects else Life.CURRENT
    if event.epoch is None:
        if not (introspects and projection.is_life_over()):
            return Life.CURRENT
        # Without an epoch only its time tells a comeback from an echo of the life that ended.
        return None if event.occurred_at < projection.introspected_at else Life.NEW
    if event.epoch < projection.epoch:
        return None
    return Life.NEW if introspects and event.epoch > projection.epoch else Life.CURRENT


def _speaks_of_the_future(projection: ModelRegistrationProjection, event: LogEvent) -> bool:
    return event.epoch is not None and event.epoch > projection.epoch


def _is_outdated_introspection(projection: ModelRegistrationProjection, event: LogEvent) -> bool:
    return (
        event.kind is EnumEventKind.NODE_INTROSPECTION
        and event.occurred_at < projection.introspected_at
    )


def _transition_for(
    projection: ModelRegistrationProjection | None, event: LogEvent, life: Life
) -> Transition | None:
    payload = event.payload
    return find_transition(
        event.kind,
        life,
        projection.current_state if projection is not None else None,
        payload.retry_eligible if isinstance(payload, RegistrationFailedPayload) else None,
    )


def _deadline_stands(projection: ModelRegistrationProjection | None, event: LogEvent) -> bool:
    if projection is None or not isinstance(event.payload, TimeoutPayload):
        return False
    armed = {
        EnumEventKind.ACK_TIMED_OUT: projection.ack_deadline,
        EnumEventKind.LIVENESS_EXPIRED: projection.liveness_deadline,
    }[event.kind]
    return armed == event.deadline


def _illegal(projection: ModelRegistrationProjection | None, event: LogEvent, why: str) -> Folded:
    state = "unknown" if projection is None else str(projection.current_state)
    return Folded(projection, EnumOutcome.ILLEGAL, f"{event.kind} in state {state}: {why}")


def _changed(
    projection: ModelRegistrationProjection | None, event: LogEvent, transition: Transition
) -> ModelRegistrationProjection:
    changes: Changes = {"last_applied_sequence": event.position}
    if event.kind is not EnumEventKind.NODE_HEARTBEAT:
        changes |= _provenance(event)
    for effect in transition.effects:
        changes |= _EFFECTS[effect](projection, event)
    if transition.to is not None and (
        projection is None or projection.current_state is not transition.to
    ):
        changes |= {"current_state": transition.to, "last_state_change_at": event.occurred_at}
    if projection is None:
        return ModelRegistrationProjection(
            entity_id=event.entity.entity_id, domain=event.entity.domain, **changes
        )
    state = changes.get("current_state", projection.current_state)
    closed = changes.get("deregistered_at", projection.deregistered_at) is not None
    changes |= _disarmed(state, closed)
    return projection.model_copy(update=changes)


def _disarmed(state: EnumRegistrationState, closed: bool) -> Changes:
    """A deadline stands in the row only while it is armed."""
    changes: Changes = {}
    if closed or not state.awaits_ack():
        changes["ack_deadline"] = None
    if closed or not state.requires_liveness():
        changes["liveness_deadline"] = None
    return changes


def _provenance(event: LogEvent) -> Changes:
    source = event.provenance
    return {
        "last_applied_event_id": event.event_id,
        "last_applied_topic": source.topic if source else None,
        "last_applied_partition": source.partition if source else None,
        "last_applied_offset": source.offset if source else None,
        "correlation_id": event.correlation_id,
    }


def _begin_life(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    if event.epoch is not None:
        epoch = event.epoch
    else:
        epoch = FIRST_EPOCH if projection is None else projection.epoch + 1
    return {
        "tenant": event.tenant,
        "epoch": epoch,
        "ack_timeout_emitted_at": None,
        "liveness_timeout_emitted_at": None,
        "deregistered_at": None,
        "failure_code": None,
        "failure_message": None,
    }


def _describe(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    payload = cast("IntrospectionPayload", event.payload)
    return {
        "node_type": payload.node_type,
        "node_name": payload.node_name or event.node_name,
        "node_version": payload.node_version,
        "capabilities": payload.capabilities,
        "endpoints": payload.endpoints,
        "metadata": payload.metadata,
        "network_id": payload.network_id,
        "deployment_id": payload.deployment_id,
        "introspected_at": event.occurred_at,
    }


def _record_failure(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    payload = cast("RegistrationFailedPayload", event.payload)
    return {"failure_code": payload.error_code, "failure_message": payload.error_message}


def _latest(held: datetime | None, candidate: datetime | None) -> datetime | None:
    return max((moment for moment in (held, candidate) if moment is not None), default=None)


def _arm_liveness(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    first = projection.registered_at if projection is not None else None
    return {
        "liveness_deadline": event.deadline,
        "liveness_timeout_emitted_at": None,
        "registered_at": first or event.occurred_at,
    }


def _beat(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    held = projection.last_heartbeat_at if projection is not None else None
    return {"last_heartbeat_at": _latest(held, event.occurred_at)}


def _extend_liveness(projection: ModelRegistrationProjection | None, event: LogEvent) -> Changes:
    held = projection.liveness_deadline if projection is not None else None
    return {"liveness_deadline": _latest(held, event.deadline)}


_EFFECTS: dict[Effect, Callable[[ModelRegistrationProjection | None, LogEvent], Changes]] = {
    Effect.BEGIN_LIFE: _begin_life,
    Effect.DESCRIBE: _describe,
    Effect.ARM_ACK: lambda _, event: {
        "ack_deadline": event.deadline,
        "ack_timeout_emitted_at": None,
    },
    Effect.ARM_LIVENESS: _arm_liveness,
    Effect.BEAT: _beat,
    Effect.EXTEND_LIVENESS: _extend_liveness,
    Effect.RECORD_FAILURE: _record_failure,
    Effect.MARK_ACK_TIMEOUT: lambda _, event: {"ack_timeout_emitted_at": event.occurred_at},
    Effect.MARK_LIVENESS_TIMEOUT: lambda _, event: {
        "liveness_timeout_emitted_at": event.occurred_at
    },
    Effect.CLOSE: lambda _, event: {"deregistered_at": event.occurred_at},
}

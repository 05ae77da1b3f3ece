"""The fold: one event onto one projection, by the table and nothing else.

Pure and total: it reads no clock, knows no duration and asks no policy. Everything that was ever
decided is in the event. Therefore folding the log again gives the same rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from uuid import UUID

from onex_platform.domain import machine
from onex_platform.domain.events import LogEvent, Provenance
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome

# Fields that the machine and the projection call the same.
LIFE_FIELDS = (
    "tenant",
    "epoch",
    "introspected_at",
    "ack_deadline",
    "liveness_deadline",
    "ack_timeout_emitted_at",
    "liveness_timeout_emitted_at",
    "registered_at",
    "last_state_change_at",
    "last_heartbeat_at",
    "deregistered_at",
)

Changes = dict[str, Any]


class Folded(NamedTuple):
    """What an event did: the row after it, the outcome, and why if it had no effect."""

    projection: ModelRegistrationProjection | None
    outcome: EnumOutcome
    reason: str = ""


def apply(projection: ModelRegistrationProjection | None, event: LogEvent) -> Folded:
    """Fold `event` onto `projection` (None: the node is unknown)."""
    if event.duplicate:
        return Folded(projection, *machine.STEP_OUTCOMES[machine.DUPLICATE])
    life = life_of(projection)
    failure = event.payload if isinstance(event.payload, RegistrationFailedPayload) else None
    verdict = machine.step(
        life,
        machine.KIND_CODES[event.kind],
        event.position,
        event.tenant,
        event.epoch,
        event.occurred_at,
        event.deadline,
        failure is not None and failure.retry_eligible,
        event,
    )
    outcome, reason = machine.STEP_OUTCOMES[verdict]
    if outcome is not EnumOutcome.APPLIED:
        return Folded(projection, outcome, f"{event.kind} {_standing(projection)}: {reason}")
    if life.state == machine.UNKNOWN:
        return Folded(None, outcome)
    return Folded(_projection_of(life, projection, event), outcome)


def life_of(projection: ModelRegistrationProjection | None) -> machine.NodeLife:
    """The part of a row that the machine works on."""
    life = machine.NodeLife()
    if projection is not None:
        life.state = machine.STATE_CODES[projection.current_state]
        life.position = projection.last_applied_sequence
        for name in LIFE_FIELDS:
            setattr(life, name, getattr(projection, name))
        life.failed_by = projection.failure_code and projection
    return life


def described(payload: IntrospectionPayload, plain_id: str | None) -> Changes:
    """What an introspection says about its node; a plain-text id names a node that has no name."""
    return {
        "node_type": payload.node_type,
        "node_name": payload.node_name or plain_id,
        "node_version": payload.node_version,
        "capabilities": payload.capabilities,
        "endpoints": payload.endpoints,
        "metadata": payload.metadata,
        "network_id": payload.network_id,
        "deployment_id": payload.deployment_id,
    }


def failed(payload: RegistrationFailedPayload | None) -> Changes:
    """What a failed registration leaves in the row; without one, what a new life clears."""
    return {
        "failure_code": payload and payload.error_code,
        "failure_message": payload and payload.error_message,
    }


def changed(event_id: UUID, source: Provenance | None, correlation_id: UUID | None) -> Changes:
    """Where the last change of a row came from."""
    return {
        "last_applied_event_id": event_id,
        "last_applied_topic": source and source.topic,
        "last_applied_partition": source and source.partition,
        "last_applied_offset": source and source.offset,
        "correlation_id": correlation_id,
    }


def _projection_of(
    life: machine.NodeLife, before: ModelRegistrationProjection | None, event: LogEvent
) -> ModelRegistrationProjection | None:
    if before is not None and life.position == before.last_applied_sequence:
        return before  # an event that speaks to nodes, not of one
    changes: Changes = {name: getattr(life, name) for name in LIFE_FIELDS}
    changes["current_state"] = machine.STATES[life.state]
    changes["last_applied_sequence"] = life.position
    if life.changed_by is event:
        changes |= changed(event.event_id, event.provenance, event.correlation_id)
    if life.described_by is event:
        changes |= described(cast("IntrospectionPayload", event.payload), event.node_name)
    if life.failed_by is event:
        changes |= failed(cast("RegistrationFailedPayload", event.payload))
    elif life.failed_by is None:
        changes |= failed(None)
    if before is None:
        return ModelRegistrationProjection(
            entity_id=event.entity.entity_id, domain=event.entity.domain, **changes
        )
    return before.model_copy(update=changes)


def _standing(projection: ModelRegistrationProjection | None) -> str:
    return (
        "of an unknown node"
        if projection is None
        else f"in state {projection.current_state}, epoch {projection.epoch}"
    )

"""Event kinds, and the event as it stands in the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from onex_platform.domain.identity import EntityKey
from onex_platform.domain.payloads import Payload

EVENT_TYPE_PREFIX = "onex."


class EnumEventKind(StrEnum):
    """What an event says, independent of topic version and dialect."""

    NODE_INTROSPECTION = "node.introspection.published"
    NODE_HEARTBEAT = "node.heartbeat.published"
    NODE_SHUTDOWN = "node.shutdown.announced"
    NODE_ACK = "node.ack.published"
    INTROSPECTION_REQUESTED = "registry.introspection.requested"
    NODE_ACCEPTED = "registry.node.accepted"
    ACK_REQUESTED = "registry.node.ack_requested"
    NODE_REGISTERED = "registry.node.registered"
    REGISTRATION_FAILED = "registry.node.registration_failed"
    ACK_TIMED_OUT = "registry.node.ack_timed_out"
    LIVENESS_EXPIRED = "registry.node.liveness_expired"
    NODE_DEREGISTERED = "registry.node.deregistered"
    WORKFLOW_STARTED = "registry.workflow.started"
    WORKFLOW_COMPLETED = "registry.workflow.completed"
    WORKFLOW_FAILED = "registry.workflow.failed"
    BREAKER_STATE_CHANGED = "infra.circuit_breaker.state_changed"
    ERROR_DETECTED = "infra.error.detected"

    @property
    def event_type(self) -> str:
        """The `event_type` that an envelope of this kind carries."""
        return EVENT_TYPE_PREFIX + self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The Kafka record that an event came from. A cursor and a trace, never an order."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event in the log, with everything the fold needs and nothing it would have to decide.

    `position` rises within an entity and never changes. `deadline` is the deadline that the event
    grants (accepted, ack_requested, registered, heartbeat) or the one that it judges (the timeout
    facts); it is fixed on entry to the log, so a changed duration never rewrites history.
    """

    position: int
    kind: EnumEventKind
    event_id: UUID
    entity: EntityKey
    tenant: str
    node_id: str | None
    node_name: str | None = None
    epoch: int | None
    occurred_at: datetime
    payload: Payload
    deadline: datetime | None = None
    reported_at: datetime | None = None
    correlation_id: UUID | None = None
    cause_id: UUID | None = None
    provenance: Provenance | None = None
    duplicate: bool = False

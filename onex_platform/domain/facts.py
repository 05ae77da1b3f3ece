"""Facts that the platform itself appends to the log: their ids, times and places."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey, fact_id, identify_node, node_id_of
from onex_platform.domain.payloads import Payload, TimeoutPayload


@dataclass(slots=True)
class FactWriter:
    """Writes the facts behind one cause, each in the next free place of the log.

    A fact carries the later of now and its cause's time. `cause_name` stands for the cause in the
    fact's id; facts that must not be repeated share a name.
    """

    cause: LogEvent
    epoch: int
    durations: Durations
    now: datetime
    cause_name: str = ""
    _written: int = field(default=0, init=False)

    def write(self, kind: EnumEventKind, payload: Payload) -> LogEvent:
        self._written += 1
        occurred_at = max(self.now, self.cause.occurred_at)
        return LogEvent(
            position=self.cause.position + self._written,
            kind=kind,
            event_id=fact_id(
                self.cause.entity.entity_id,
                self.epoch,
                kind,
                self.cause_name or str(self.cause.event_id),
            ),
            entity=self.cause.entity,
            tenant=self.cause.tenant,
            node_id=self.cause.node_id,
            node_name=self.cause.node_name,
            epoch=self.epoch,
            occurred_at=occurred_at,
            payload=payload,
            deadline=self.durations.granted_by(kind, occurred_at),
            reported_at=occurred_at,
            correlation_id=self.cause.correlation_id,
            cause_id=self.cause.event_id,
        )


# What the platform declares by itself, or on an operator's order: these wait in the inbox for their
# place in the log, and are published once they took effect there.
DECLARED = frozenset(
    {
        EnumEventKind.ACK_TIMED_OUT,
        EnumEventKind.LIVENESS_EXPIRED,
        EnumEventKind.NODE_DEREGISTERED,
        EnumEventKind.INTROSPECTION_REQUESTED,
    }
)


def is_declared(kind: EnumEventKind, topic: str | None, cause_id: object | None) -> bool:
    """Whether an event of the log is the platform's own, and was not decided from another one."""
    return kind in DECLARED and topic is None and cause_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedDeadline:
    """A deadline that stands in a row and has passed."""

    kind: EnumEventKind  # the fact that follows from it
    entity: EntityKey
    tenant: str
    node_name: str | None
    epoch: int
    deadline: datetime
    correlation_id: UUID | None = None


def timeout_fact(passed: PassedDeadline, now: datetime, again_at: int | None = None) -> LogEvent:
    """The fact that a deadline passed, the same for everybody who finds it.

    `again_at`: this deadline was declared before, in vain, and stands again since that position.
    """
    node_id = node_id_of(passed.entity.entity_id, passed.node_name, passed.tenant)
    cause = passed.deadline.astimezone(UTC).isoformat(timespec="microseconds")
    return LogEvent(
        position=0,
        kind=passed.kind,
        event_id=fact_id(
            passed.entity.entity_id,
            passed.epoch,
            passed.kind,
            cause if again_at is None else f"{cause} again at {again_at}",
        ),
        entity=passed.entity,
        tenant=passed.tenant,
        node_id=node_id,
        node_name=identify_node(node_id, passed.tenant).node_name,
        epoch=passed.epoch,
        occurred_at=max(now, passed.deadline),
        payload=TimeoutPayload(node_id=node_id, epoch=passed.epoch, deadline=passed.deadline),
        deadline=passed.deadline,
        reported_at=max(now, passed.deadline),
        correlation_id=passed.correlation_id,
    )

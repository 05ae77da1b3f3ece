"""Facts that the platform itself appends to the log: their ids, times and places."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from onex_platform.domain.deadlines import Durations
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import fact_id
from onex_platform.domain.payloads import Payload


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

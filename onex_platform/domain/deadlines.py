"""Deadlines: how long an event lets a node live, and when that time is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from onex_platform.domain.events import EnumEventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The windows in force while events enter the log; an archived event keeps what it granted."""

    ack: timedelta = timedelta(seconds=30)
    first_liveness: timedelta = timedelta(seconds=60)
    heartbeat_liveness: timedelta = timedelta(seconds=90)

    def granted_by(self, kind: EnumEventKind, occurred_at: datetime) -> datetime | None:
        """The deadline that an event of `kind` grants, or None if it grants none."""
        window = self.window_of(kind)
        return None if window is None else occurred_at + window

    def window_of(self, kind: EnumEventKind) -> timedelta | None:
        """How long an event of `kind` lets a node live, or None if it grants nothing."""
        return {
            EnumEventKind.NODE_ACCEPTED: self.ack,
            EnumEventKind.ACK_REQUESTED: self.ack,
            EnumEventKind.NODE_REGISTERED: self.first_liveness,
            EnumEventKind.NODE_HEARTBEAT: self.heartbeat_liveness,
        }.get(kind)


def is_past(deadline: datetime, now: datetime) -> bool:
    """Strict, as in SQL: at the deadline itself the node is still in time."""
    return now > deadline

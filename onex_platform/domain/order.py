"""The order of the log: who comes first in an instant, and where decided facts find their place.

A position is the millisecond in which an event entered the log, then its rank among the events of
its entity in that millisecond. So positions order the events of one entity, do not depend on where
batches are cut, can be given in parallel, and tell what was known at a moment. What the policy
decides takes the free places right behind its cause.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from onex_platform.domain.events import EnumEventKind

# One cause and up to seven facts decided from it; the decider needs two.
POSITION_STRIDE = 8
POSITIONS_PER_MILLISECOND = 1 << 20
# Of one entity; what is more takes places of the milliseconds around it.
EVENTS_PER_MILLISECOND = POSITIONS_PER_MILLISECOND // POSITION_STRIDE

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Within one instant: a life begins before it goes on, and goes on before it ends.
LIFECYCLE_RANK = {
    kind: rank
    for rank, kind in enumerate(
        (
            EnumEventKind.NODE_INTROSPECTION,
            EnumEventKind.NODE_ACCEPTED,
            EnumEventKind.REGISTRATION_FAILED,
            EnumEventKind.ACK_REQUESTED,
            EnumEventKind.NODE_ACK,
            EnumEventKind.NODE_REGISTERED,
            EnumEventKind.NODE_HEARTBEAT,
            EnumEventKind.INTROSPECTION_REQUESTED,
            EnumEventKind.ACK_TIMED_OUT,
            EnumEventKind.LIVENESS_EXPIRED,
            EnumEventKind.NODE_SHUTDOWN,
            EnumEventKind.NODE_DEREGISTERED,
        )
    )
}


def position_at(moment: datetime) -> int:
    """The first position of `moment`'s millisecond: what entered the log earlier is below it."""
    return (moment - _ORIGIN) // _MILLISECOND * POSITIONS_PER_MILLISECOND


def moment_of(position: int) -> datetime:
    """The millisecond that a position belongs to."""
    return _ORIGIN + position // POSITIONS_PER_MILLISECOND * _MILLISECOND

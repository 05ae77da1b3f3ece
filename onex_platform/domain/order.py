"""The order of the log: how a cut is sorted, and where decided facts find their place.

A position is the millisecond in which an event entered the log, then its rank among the events of
its entity in that millisecond. So positions order the events of one entity, do not depend on where
batches are cut, can be given in parallel, and tell what was known at a moment. What the policy
decides takes the free places right behind its cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey

# One cause and up to seven facts decided from it; the decider needs two.
POSITION_STRIDE = 8
POSITIONS_PER_MILLISECOND = 1 << 20

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

CutKey = tuple[datetime, int, str, int, int, str]


def cut_key(event: LogEvent) -> CutKey:
    """What a cut is sorted by. A fact from the inbox has no topic and sorts before Kafka's."""
    source = event.provenance
    return (
        event.occurred_at,
        LIFECYCLE_RANK[event.kind],
        source.topic if source else "",
        source.partition if source else -1,
        source.offset if source else -1,
        str(event.event_id),
    )


def position_at(moment: datetime) -> int:
    """The first position of `moment`'s millisecond: what entered the log earlier is below it."""
    return (moment - _ORIGIN) // _MILLISECOND * POSITIONS_PER_MILLISECOND


def moment_of(position: int) -> datetime:
    """The millisecond that a position belongs to."""
    return _ORIGIN + position // POSITIONS_PER_MILLISECOND * _MILLISECOND


def number(events: Iterable[LogEvent], closed_before: datetime) -> Iterator[LogEvent]:
    """The events of one cut in log order, with their positions.

    The log is closed before the previous cut's instant: an event that comes from there all the same
    takes its place at the end, which is where this cut begins.
    """
    start = position_at(closed_before)
    ranks: Counter[tuple[EntityKey, int]] = Counter()
    for event in sorted(events, key=cut_key):
        slot = max(position_at(event.occurred_at), start)
        rank = ranks[event.entity, slot] * POSITION_STRIDE
        if rank >= POSITIONS_PER_MILLISECOND:
            raise OverflowError(f"more events of {event.entity} in a millisecond than have a place")
        ranks[event.entity, slot] += 1
        yield replace(event, position=slot + rank)

"""The order of the log: how a cut is sorted, and where decided facts find their place.

A position is the millisecond in which an event entered the log, then its rank among the events of
its entity in that millisecond. So positions order the events of one entity, do not depend on where
batches are cut, can be given in parallel, and tell what was known at a moment. What the policy
decides takes the free places right behind its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey

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


def number(
    events: Iterable[LogEvent], closed_before: datetime, instant: datetime
) -> Iterator[LogEvent]:
    """The events of one cut in log order, with their positions.

    The log is closed before the previous cut's instant: an event that comes from there all the same
    takes its place at the end, which is where this cut begins. It ends before `instant`.
    """
    ordered = sorted(events, key=cut_key)
    mine: dict[EntityKey, list[int]] = {}
    for place, event in enumerate(ordered):
        mine.setdefault(event.entity, []).append(place)
    positions = [0] * len(ordered)
    start, end = position_at(closed_before), position_at(instant)
    for entity, places in mine.items():
        found = _spaced([max(position_at(ordered[n].occurred_at), start) for n in places], end)
        if found[0] < start:
            raise OverflowError(f"more events of {entity} in a cut than have a place")
        for place, position in zip(places, found, strict=True):
            positions[place] = position
    return (replace(e, position=n) for e, n in zip(ordered, positions, strict=True))


def _spaced(wanted: Sequence[int], end: int) -> list[int]:
    """Positions as early as wanted, but each behind the one before it and all of them below `end`.

    Only a millisecond with more events than places moves any of them into its neighbours.
    """
    positions: list[int] = []
    for first in wanted:
        following = positions[-1] + POSITION_STRIDE if positions else first
        positions.append(max(first, following))
    last = end - len(wanted) * POSITION_STRIDE
    return [min(n, last + rank * POSITION_STRIDE) for rank, n in enumerate(positions)]

"""The order of a cut, event by event: what ingest's numbering by columns must agree with."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import is_ledgered
from onex_platform.domain.order import LIFECYCLE_RANK, POSITION_STRIDE, position_at

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


def mark_duplicates(events: Iterable[LogEvent], known: Container[UUID]) -> Iterator[LogEvent]:
    """The events in their order, each marked if its id is `known` or came earlier."""
    seen: set[UUID] = set()
    for event in events:
        if not is_ledgered(event.kind):
            yield event
        elif event.event_id in known or event.event_id in seen:
            yield replace(event, duplicate=True)
        else:
            seen.add(event.event_id)
            yield event

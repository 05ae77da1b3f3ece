"""The order of the log: how a cut is sorted, and where decided facts find their place.

Positions are multiples of a stride. What the policy decides takes the free places right behind its
cause, so a fact follows its cause directly without renumbering anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey

# One cause and up to seven facts decided from it; the decider needs two.
POSITION_STRIDE = 8

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


def number(events: Iterable[LogEvent], high_water: int) -> Iterator[LogEvent]:
    """The events of one cut in log order, with positions above `high_water`.

    Each entity is counted on its own: positions order the events of one entity, and those of a
    later cut are above all of an earlier one. So a cut can be numbered in parallel.
    """
    first = high_water // POSITION_STRIDE + 1
    counts: Counter[EntityKey] = Counter()
    for event in sorted(events, key=cut_key):
        yield replace(event, position=(first + counts[event.entity]) * POSITION_STRIDE)
        counts[event.entity] += 1

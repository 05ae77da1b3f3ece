"""Idempotency: an event_id is let into the log once; the verdict is written there.

The ledger of ids is bounded in time. What it forgets it also refuses to judge: the intake parks an
event that reports a time before the ledger's floor, so pruning can't reopen a duplicate.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from uuid import UUID

from onex_platform.domain.events import EnumEventKind, LogEvent


def is_ledgered(kind: EnumEventKind) -> bool:
    """Heartbeats merge by maximum: they are idempotent by nature and stay out of the ledger."""
    return kind is not EnumEventKind.NODE_HEARTBEAT


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

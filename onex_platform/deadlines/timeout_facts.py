"""From a passed deadline to the fact that says so, once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from onex_platform.domain.events import LogEvent
from onex_platform.domain.facts import PassedDeadline, timeout_fact
from onex_platform.domain.order import moment_of
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.cut_counts import archived_after
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.inbox import waiting_among
from onex_platform.projections import overdue
from onex_platform.projections.fold.checkpoint import fold_position


def undeclared(
    cursor: Cursor, domain: str, passed: Sequence[PassedDeadline], now: datetime
) -> list[LogEvent]:
    """The facts that follow from passed deadlines and neither wait nor stand in the log.

    A fact can stand in the log without effect, because a heartbeat came first. Should the very
    deadline that it named be granted again (a record with an old time of its own can do that), the
    next fact needs an id of its own, or it would be taken for the first one.
    """
    facts = [timeout_fact(one, now) for one in passed]
    waiting, in_log = _known(cursor, domain, facts)
    in_vain = _declared_in_vain(cursor, domain, [f for f in facts if f.event_id in in_log])
    again = [
        timeout_fact(one, now, in_vain[fact.event_id])
        for one, fact in zip(passed, facts, strict=True)
        if fact.event_id in in_vain
    ]
    known = waiting | in_log
    if again:
        known = known.union(*_known(cursor, domain, again))
    return [fact for fact in (*facts, *again) if fact.event_id not in known]


def _known(
    cursor: Cursor, domain: str, facts: Sequence[LogEvent]
) -> tuple[frozenset[UUID], frozenset[UUID]]:
    """Of facts, those that wait in the inbox and those that are in the log.

    Asked in this order: a fact that leaves the one meanwhile is found in the other.
    """
    ids = [fact.event_id for fact in facts]
    return waiting_among(cursor, domain, ids), recall(cursor, domain, ids).known


def _declared_in_vain(cursor: Cursor, domain: str, facts: Sequence[LogEvent]) -> dict[UUID, int]:
    """Of facts in the log, those without effect whose deadline stands, and the row's position."""
    if not facts:
        return {}
    # In this order: if all was folded before the rows are read, the facts were, too.
    folded = moment_of(fold_position(cursor, domain))
    if archived_after(cursor, domain, folded).events:
        return {}
    return overdue.standing(cursor, domain, facts)

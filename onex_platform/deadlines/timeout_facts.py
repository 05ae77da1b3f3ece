"""From a passed deadline to the fact that says so, once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import PassedDeadline, timeout_fact
from onex_platform.domain.order import POSITIONS_PER_MILLISECOND
from onex_platform.engines.postgres.database import Cursor
from onex_platform.ingest.deduplication import recall

_DEADLINES = {
    EnumEventKind.ACK_TIMED_OUT: "ack_deadline",
    EnumEventKind.LIVENESS_EXPIRED: "liveness_deadline",
}
# Of facts that are in the log: those whose row stands as if they were not, though all is folded.
_IN_VAIN = """
    SELECT event_id, last_applied_sequence AS position
    FROM unnest(%(ids)s::uuid[], %(entities)s::uuid[], %(deadlines)s::timestamptz[])
        AS fact (event_id, entity_id, deadline)
    JOIN registrations AS r ON r.entity_id = fact.entity_id AND r.{column} = fact.deadline
    WHERE r.domain = %(domain)s AND NOT EXISTS (
        SELECT FROM log_cuts AS cut JOIN fold_cursors AS fold USING (domain)
        WHERE cut.domain = %(domain)s AND cut.archived > 0
            AND cut.instant > timestamptz 'epoch'
                + (fold.position / %(per_millisecond)s) * interval '1 millisecond'
    )"""


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
    query = "SELECT event_id FROM fact_inbox WHERE domain = %s AND event_id = ANY(%s)"
    waiting = frozenset(row.event_id for row in cursor.execute(query, [domain, ids]))
    return waiting, recall(cursor, domain, ids).known


def _declared_in_vain(cursor: Cursor, domain: str, facts: Sequence[LogEvent]) -> dict[UUID, int]:
    """Of facts in the log, those without effect whose deadline stands, and the row's position."""
    if not facts:
        return {}
    parameters: dict[str, Any] = {
        "domain": domain,
        "per_millisecond": POSITIONS_PER_MILLISECOND,
        "ids": [fact.event_id for fact in facts],
        "entities": [fact.entity.entity_id for fact in facts],
        "deadlines": [fact.deadline for fact in facts],
    }
    query = _IN_VAIN.format(column=_DEADLINES[facts[0].kind])
    return {row.event_id: row.position for row in cursor.execute(query, parameters)}

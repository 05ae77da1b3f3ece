"""From the reducer's tasks to the transaction that commits their batch.

A task leaves its rows, facts and refusals under the batch's id and its own number; one that runs
again first removes what its earlier attempt left. The driver takes all that tasks reported, or
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from onex_platform.domain import machine
from onex_platform.domain.batch import RowChange
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres import Cursor, copy_rows
from onex_platform.engines.staging import (
    RowCounts,
    clear_staging,
    discard_attempt,
    require_staged,
)
from onex_platform.projections.kernel import Refused
from onex_platform.projections.outbox import envelope_of
from onex_platform.projections.rows import Written, hand_rows_over, write_handed_rows

TABLES = ("handed_projections", "handed_liveness", "handed_facts", "handed_refusals")
_MARK = {"batch_id": "uuid", "task": "integer"}
_FACT = {
    "position": "bigint",
    "domain": "text",
    "entity_id": "uuid",
    "event_kind": "text",
    "event_id": "uuid",
    "event_key": "text",
    "envelope": "jsonb",
    "reported_at": "timestamptz",
}
_REFUSAL = {
    "entity_id": "uuid",
    "domain": "text",
    "position": "bigint",
    "outcome": "text",
    "reason": "text",
    "event_id": "uuid",
    "kind": "text",
    "tenant": "text",
    "occurred_at": "timestamptz",
    "times": "bigint",
}


def hand_over(
    cursor: Cursor,
    batch_id: UUID,
    task: int,
    domain: str,
    changes: Iterable[RowChange],
    facts: Iterable[LogEvent],
    refused: Iterable[Refused],
) -> RowCounts:
    """Leave what a task came to; how many rows in each table."""
    discard_attempt(cursor, TABLES, batch_id, task)
    mark = (batch_id, task)
    return {
        **hand_rows_over(cursor, changes, batch_id, task),
        "handed_facts": copy_rows(
            cursor, "handed_facts", _MARK | _FACT, ((*mark, *_fact(fact)) for fact in facts)
        ),
        "handed_refusals": copy_rows(
            cursor,
            "handed_refusals",
            _MARK | _REFUSAL,
            ((*mark, *_refusal(domain, item)) for item in refused),
        ),
    }


def take_over(cursor: Cursor, batch_id: UUID, domain: str, reported: RowCounts) -> Written:
    """Write everything that the batch's tasks handed over, in the caller's transaction."""
    written = write_handed_rows(cursor, batch_id, reported)
    refusal = ", ".join(_REFUSAL)
    batch = {"batch": batch_id, "domain": domain}
    cursor.execute(
        "INSERT INTO outbox (entry, domain, entity_id, event_kind, event_id, event_key, envelope)"
        " SELECT 'event', domain, entity_id, event_kind, event_id, event_key, envelope"
        " FROM handed_facts WHERE batch_id = %(batch)s ORDER BY position, entity_id",
        batch,
    )
    require_staged("handed_facts", cursor.rowcount, reported)
    cursor.execute(
        "INSERT INTO event_ledger (event_id, domain, reported_at)"
        " SELECT event_id, %(domain)s, reported_at FROM handed_facts WHERE batch_id = %(batch)s"
        " ON CONFLICT DO NOTHING",
        batch,
    )
    cursor.execute(
        f"INSERT INTO illegal_events ({refusal})"  # noqa: S608 - constant columns
        f" SELECT {refusal} FROM handed_refusals WHERE batch_id = %(batch)s",
        batch,
    )
    require_staged("handed_refusals", cursor.rowcount, reported)
    clear_staging(cursor, TABLES, batch_id)
    return written


def _fact(fact: LogEvent) -> tuple[Any, ...]:
    return (
        fact.position,
        fact.entity.domain,
        fact.entity.entity_id,
        fact.kind,
        fact.event_id,
        fact.node_id,
        envelope_of(fact),
        fact.reported_at,
    )


def _refusal(domain: str, refused: Refused) -> tuple[Any, ...]:
    event = refused.event
    outcome, reason = machine.VERDICTS[refused.verdict]
    known = refused.state != machine.UNKNOWN
    state = f"in state {machine.STATES[refused.state]}" if known else "of an unknown node"
    return (
        UUID(bytes=event["entity_id"]),
        domain,
        event["position"],
        outcome,
        f"{event['kind']} {state}: {reason}",
        UUID(bytes=event["event_id"]),
        event["kind"],
        event["tenant"],
        event["occurred_at"],
        refused.times,
    )

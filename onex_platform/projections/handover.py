"""From whoever folded a batch to the transaction that commits it.

A task of the reducer leaves its rows, facts and refusals in tables that all sessions see, under the
batch's id and its own number; one that runs again first removes what its earlier attempt left. What
a caller has in hand is left in tables of the session with the same columns. From there on both are
the same: all that was reported is taken over, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from onex_platform.domain import machine
from onex_platform.domain.batch import Refusal, RowChange
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres import Cursor, copy_rows
from onex_platform.engines.staging import (
    MARK,
    RowCounts,
    clear_staging,
    discard_attempt,
    require_staged,
)
from onex_platform.pages.ledger import enter_staged
from onex_platform.projections.kernel import Refused
from onex_platform.projections.outbox import envelope_of, queue_staged
from onex_platform.projections.rows import Span, Written, stage_rows, write_staged_rows

_PARTS = ("projections", "liveness", "facts", "refusals")
_HANDED, _GIVEN = "handed", "given"
TABLES = tuple(f"{_HANDED}_{part}" for part in _PARTS)
# Made once per session and emptied by every commit: a table per batch would bloat the catalogue.
_SESSION_TABLES = ";".join(
    f"CREATE TEMPORARY TABLE IF NOT EXISTS {_GIVEN}_{part}"
    f" (LIKE {_HANDED}_{part} INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
    for part in _PARTS
)
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


class Given(NamedTuple):
    """What a batch came to, in its caller's hands."""

    changes: Iterable[RowChange] = ()
    facts: Iterable[LogEvent] = ()  # to be published
    refusals: Iterable[Refusal] = ()


class Staged(NamedTuple):
    """What a batch came to, waiting under its id: how many rows in each table."""

    batch_id: UUID
    rows: RowCounts
    where: str = _HANDED


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
    refusals = (_refused_run(domain, item) for item in refused)
    return _stage(cursor, _HANDED, batch_id, task, changes, facts, refusals)


def give(cursor: Cursor, given: Given) -> Staged:
    """Leave what a caller has in hand to its own transaction."""
    cursor.execute(_SESSION_TABLES)
    batch_id, refusals = uuid4(), map(_refused_event, given.refusals)
    rows = _stage(cursor, _GIVEN, batch_id, 0, given.changes, given.facts, refusals)
    return Staged(batch_id, rows, _GIVEN)


def take_over(cursor: Cursor, staged: Staged, span: Span) -> Written:
    """Write everything that waits for the batch, in the caller's transaction."""
    batch_id, reported, where = staged
    written = write_staged_rows(cursor, where, batch_id, reported, span)
    facts, refusals = f"{where}_facts", f"{where}_refusals"
    require_staged(facts, queue_staged(cursor, facts, batch_id), reported)
    enter_staged(cursor, span.domain, facts, batch_id)
    columns = ", ".join(_REFUSAL)
    cursor.execute(
        f"INSERT INTO illegal_events ({columns})"  # noqa: S608 - constants
        f" SELECT {columns} FROM {refusals} WHERE batch_id = %s",
        [batch_id],
    )
    require_staged(refusals, cursor.rowcount, reported)
    if where == _HANDED:
        clear_staging(cursor, TABLES, batch_id)
    return written


def _stage(
    cursor: Cursor,
    where: str,
    batch_id: UUID,
    task: int,
    changes: Iterable[RowChange],
    facts: Iterable[LogEvent],
    refusals: Iterable[tuple[Any, ...]],
) -> RowCounts:
    def copy(part: str, columns: dict[str, str], rows: Iterable[tuple[Any, ...]]) -> RowCounts:
        table, marked = f"{where}_{part}", ((batch_id, task, *row) for row in rows)
        return {table: copy_rows(cursor, table, MARK | columns, marked)}

    return {
        **stage_rows(cursor, where, changes, batch_id, task),
        **copy("facts", _FACT, map(_fact, facts)),
        **copy("refusals", _REFUSAL, refusals),
    }


def _fact(fact: LogEvent) -> tuple[Any, ...]:
    return (
        fact.position,
        fact.entity.domain,
        fact.entity.entity_id,
        fact.kind,
        fact.event_id,
        fact.node_id,
        envelope_of(fact),
        fact.reported_at or fact.occurred_at,
    )


def _refused_event(refusal: Refusal) -> tuple[Any, ...]:
    event = refusal.event
    return (
        event.entity.entity_id,
        event.entity.domain,
        event.position,
        refusal.outcome,
        refusal.reason,
        event.event_id,
        event.kind,
        event.tenant,
        event.occurred_at,
        1,
    )


def _refused_run(domain: str, refused: Refused) -> tuple[Any, ...]:
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

"""From whoever folded a batch to the transaction that commits it.

A task of the reducer leaves its rows, facts and refusals, and whom it did without, in tables that
all sessions see, under the batch's id and its own number; one that runs again first removes what
its earlier attempt left. What a caller has in hand is left in tables of the session with the same
columns. From there on both are the same: all that was reported is taken over, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.domain import machine
from onex_platform.domain.batch import Refusal, RowChange
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres.database import Cursor, copy_rows
from onex_platform.engines.postgres.staging import (
    MARK,
    RowCounts,
    clear_staging,
    discard_attempt,
    require_staged,
    stage_columns,
)
from onex_platform.ingest.deduplication import enter_published
from onex_platform.projections.fold import set_aside
from onex_platform.projections.fold.column_fold import Refused
from onex_platform.projections.fold.containment import Fault, culprits_of, fault_of
from onex_platform.projections.fold.row_columns import of_nodes, to_table
from onex_platform.projections.write.outbox import fact_table, queue_staged
from onex_platform.projections.write.upsert import (
    ChangedRows,
    PositionRange,
    Written,
    stage_rows,
    write_staged_rows,
)

_PARTS = ("projections", "liveness", "facts", "refusals", "set_aside")
_HANDED, _GIVEN = "handed", "given"
TABLES = tuple(f"{_HANDED}_{part}" for part in _PARTS)
# Made once per session and emptied by every commit: a table per batch would bloat the catalogue.
_SESSION_TABLES = ";".join(
    f"CREATE TEMPORARY TABLE IF NOT EXISTS {_GIVEN}_{part}"
    f" (LIKE {_HANDED}_{part} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) ON COMMIT DELETE ROWS"
    for part in _PARTS
)
# What waits of a fact, and the column of it.
_FACT = {
    "position": "position",
    "entity_id": "entity_id",
    "event_kind": "kind",
    "event_id": "event_id",
    "event_key": "node_id",
    "envelope": "envelope",
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


class Handed(NamedTuple):
    """What a task came to."""

    changed: ChangedRows
    facts: pa.Table  # to be published
    refused: Sequence[Refused] = ()
    aside: Mapping[bytes, Refused] = {}  # whom it did without,
    faults: Mapping[bytes, Fault] = {}  # and of those the ones that were well before

    def only(self, nodes: Collection[bytes]) -> Handed:
        """The part of some nodes."""
        return Handed(
            ChangedRows(*(of_nodes(table, nodes) for table in self.changed)),
            of_nodes(self.facts, nodes),
            [item for item in self.refused if item.event["entity_id"] in nodes],
            {node: first for node, first in self.aside.items() if node in nodes},
            self.faults,
        )

    @property
    def nodes(self) -> list[bytes]:
        """Everybody whom it is about."""
        tables = (*self.changed, self.facts)
        named = {node for table in tables for node in table["entity_id"].to_pylist()}
        return sorted(named | {item.event["entity_id"] for item in self.refused})


def hand_over(cursor: Cursor, batch_id: UUID, task: int, domain: str, handed: Handed) -> RowCounts:
    """Leave what a task came to; how many rows in each table."""
    discard_attempt(cursor, TABLES, batch_id, task)
    refusals = (_refused_run(domain, item) for item in (*handed.refused, *handed.aside.values()))
    aside = set_aside.staged(domain, handed.aside, handed.faults)
    facts = _to_publish(handed.facts, domain)
    return _stage(cursor, _HANDED, batch_id, task, handed.changed, facts, refusals, aside)


def unstaged(
    cursor: Cursor, error: Exception, batch_id: UUID, task: int, domain: str, handed: Handed
) -> dict[bytes, Fault]:
    """The nodes whose part PostgreSQL refuses, or the driver can't write; raises if there are none.

    The caller has rolled back to before it handed over. Each attempt is taken back as well.
    """

    def attempt(nodes: Sequence[bytes]) -> None:
        with cursor.connection.transaction(force_rollback=True):
            hand_over(cursor, batch_id, task, domain, handed.only(frozenset(nodes)))

    found = culprits_of(error, handed.nodes, attempt)
    return {node: fault_of(theirs) for node, theirs in found.items()}


def give(cursor: Cursor, given: Given) -> Staged:
    """Leave what a caller has in hand to its own transaction."""
    cursor.execute(_SESSION_TABLES)
    batch_id, refusals = uuid4(), map(_refused_event, given.refusals)
    changes, facts = list(given.changes), list(given.facts)
    changed = ChangedRows(
        wide=to_table(change.row for change in changes if change.wide),
        liveness=to_table(change.row for change in changes if change.liveness),
    )
    published = _to_publish(fact_table(facts), facts[0].entity.domain if facts else "")
    rows = _stage(cursor, _GIVEN, batch_id, 0, changed, published, refusals, ())
    return Staged(batch_id, rows, _GIVEN)


def take_over(cursor: Cursor, staged: Staged, span: PositionRange) -> Written:
    """Write everything that waits for the batch, in the caller's transaction."""
    batch_id, reported, where = staged
    written = write_staged_rows(cursor, where, batch_id, reported, span)
    facts, refusals, aside = (f"{where}_{part}" for part in ("facts", "refusals", "set_aside"))
    did_without = set_aside.take_over_staged(cursor, span.domain, aside, batch_id)
    require_staged(aside, did_without, reported)
    require_staged(facts, queue_staged(cursor, facts, batch_id), reported)
    enter_published(cursor, span.domain, facts, batch_id)
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
    changed: ChangedRows,
    facts: pa.Table,
    refusals: Iterable[tuple[Any, ...]],
    aside: Iterable[tuple[Any, ...]],
) -> RowCounts:
    def copy(part: str, columns: dict[str, str], rows: Iterable[tuple[Any, ...]]) -> RowCounts:
        table, marked = f"{where}_{part}", ((batch_id, task, *row) for row in rows)
        return {table: copy_rows(cursor, table, MARK | columns, marked)}

    return {
        **stage_rows(cursor, where, changed, batch_id, task),
        **stage_columns(cursor, f"{where}_facts", batch_id, task, facts),
        **copy("refusals", _REFUSAL, refusals),
        **copy("set_aside", set_aside.STAGED, aside),
    }


def _to_publish(facts: pa.Table, domain: str) -> pa.Table:
    columns = {name: facts[column] for name, column in _FACT.items()}
    columns["reported_at"] = pc.coalesce(facts["reported_at"], facts["occurred_at"])
    return pa.table(columns | {"domain": pa.repeat(domain, len(facts))})


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
    outcome, reason = machine.STEP_OUTCOMES[refused.verdict]
    state = ""
    if refused.state is not None:
        known = refused.state != machine.UNKNOWN
        state = f" in state {machine.STATES[refused.state]}" if known else " of an unknown node"
    return (
        UUID(bytes=event["entity_id"]),
        domain,
        event["position"],
        outcome,
        f"{event['kind']}{state}: {reason}",
        UUID(bytes=event["event_id"]),
        event["kind"],
        event["tenant"],
        event["occurred_at"],
        refused.times,
    )

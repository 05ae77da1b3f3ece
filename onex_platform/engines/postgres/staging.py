"""Rows that tasks leave in PostgreSQL for the transaction that commits their batch.

They stand in unlogged tables, under the batch's id and the task's number. A crash of the server
empties these, and a server that takes over never had them; so a task reports how many rows it left
in each, and the commit takes as many or fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pyarrow as pa
from psycopg import sql

from onex_platform.base.errors import InfraError
from onex_platform.engines.postgres.columns import copy_table
from onex_platform.engines.postgres.database import Cursor

# Under what a staged row stands.
MARK = {"batch_id": "uuid", "task": "integer"}
# How many rows stand in each table.
RowCounts = Mapping[str, int]


class StagingLostError(InfraError):
    """What tasks staged is not what the commit found; nothing was committed."""


def discard_attempt(cursor: Cursor, tables: Iterable[str], batch_id: UUID, task: int) -> None:
    """Remove what an earlier attempt of the task staged."""
    for table in tables:
        cursor.execute(
            sql.SQL("DELETE FROM {} WHERE batch_id = %s AND task = %s").format(
                sql.Identifier(table)
            ),
            [batch_id, task],
        )


def stage_columns(
    cursor: Cursor, table: str, batch_id: UUID, task: int, rows: pa.Table
) -> RowCounts:
    """Stage rows in the table's columns of the same names; how many there are."""
    mark = {"batch_id": str(batch_id), "task": task}
    marked = [*(pa.repeat(value, len(rows)) for value in mark.values()), *rows.columns]
    return {table: copy_table(cursor, table, pa.table(marked, names=[*mark, *rows.column_names]))}


def require_staged(table: str, found: int, reported: RowCounts) -> None:
    """Make sure that a batch is whole as it is committed."""
    expected = reported.get(table, 0)
    if found != expected:
        raise StagingLostError(
            f"Tasks staged {expected} rows in {table}, and {found} are there: PostgreSQL crashed "
            "or another server took over, or a task ran twice.",
            hint="Nothing was committed; the next run does the work again.",
        )


def clear_staging(cursor: Cursor, tables: Iterable[str], batch_id: UUID) -> None:
    """Remove a batch's staged rows, and those that a crash left behind more than a day ago."""
    for table in tables:
        cursor.execute(
            sql.SQL(
                "DELETE FROM {} WHERE batch_id = %s OR staged_at < now() - interval '1 day'"
            ).format(sql.Identifier(table)),
            [batch_id],
        )

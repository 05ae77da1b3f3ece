"""How rows reach their two tables: staged by COPY, then written by one guarded statement.

The statement leaves a row alone that is not newer than what stands there, raises `row_version` of
each wide row that it changes, and queues that row's snapshot or tombstone. A row's two parts are
guarded apart; that is enough because writers of a domain take turns (`cursors.py`), each batch
begins where the last one ended, and a single `persist` writes both parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.engines.postgres.staging import RowCounts, require_staged, stage_columns

_KEY = {"entity_id": "uuid", "domain": "text"}
_POSITION = {"last_applied_sequence": "bigint"}
WIDE_COLUMNS = {
    **_KEY,
    **_POSITION,
    "tenant": "text",
    "current_state": "text",
    "epoch": "bigint",
    "node_type": "text",
    "node_name": "text",
    "node_version": "text",
    "capabilities": "jsonb",
    "endpoints": "jsonb",
    "metadata": "jsonb",
    "network_id": "text",
    "deployment_id": "text",
    "ack_deadline": "timestamptz",
    "ack_timeout_emitted_at": "timestamptz",
    "liveness_timeout_emitted_at": "timestamptz",
    "introspected_at": "timestamptz",
    "registered_at": "timestamptz",
    "last_state_change_at": "timestamptz",
    "deregistered_at": "timestamptz",
    "failure_code": "text",
    "failure_message": "text",
    "last_applied_event_id": "uuid",
    "last_applied_topic": "text",
    "last_applied_partition": "integer",
    "last_applied_offset": "bigint",
    "correlation_id": "uuid",
}
LIVENESS_COLUMNS = {
    **_KEY,
    **_POSITION,
    "last_heartbeat_at": "timestamptz",
    "liveness_deadline": "timestamptz",
}


def _names(columns: Iterable[str]) -> str:
    return ", ".join(columns)


def _replaced(columns: Iterable[str]) -> str:
    return _names(f"{name} = excluded.{name}" for name in columns if name not in _KEY)


_INSIDE = (
    "(domain = %(domain)s"
    " AND last_applied_sequence >= %(start)s AND last_applied_sequence < %(end)s)"
)

# `{wide}` and `{liveness}` say where the rows wait: in tables of all sessions, or of this one.
# In the order of their keys, neighbours in the indexes are written together: a fifth less work.
_WRITE = f"""
    WITH wide AS (
        INSERT INTO registration_projections AS held ({_names(WIDE_COLUMNS)}, row_version)
        SELECT {_names(WIDE_COLUMNS)}, coalesce(last_version, 0) + 1
        FROM (SELECT * FROM {{wide}}) LEFT JOIN retired_versions USING (entity_id, domain)
        ORDER BY entity_id
        ON CONFLICT (entity_id, domain) DO UPDATE
        SET {_replaced(WIDE_COLUMNS)}, row_version = held.row_version + 1
        WHERE held.last_applied_sequence < excluded.last_applied_sequence
        RETURNING domain, entity_id, row_version, deregistered_at
    ), liveness AS (
        INSERT INTO registration_liveness AS held ({_names(LIVENESS_COLUMNS)})
        SELECT {_names(LIVENESS_COLUMNS)} FROM {{liveness}} ORDER BY entity_id
        ON CONFLICT (entity_id, domain) DO UPDATE
        SET {_replaced(LIVENESS_COLUMNS)}
        WHERE held.last_applied_sequence < excluded.last_applied_sequence
        RETURNING entity_id
    ), queued AS (
        INSERT INTO outbox (entry, domain, entity_id, row_version)
        SELECT
            CASE WHEN deregistered_at IS NULL THEN 'snapshot' ELSE 'tombstone' END::outbox_entry,
            domain,
            entity_id,
            row_version
        FROM wide
    )
    SELECT
        (SELECT count(*) FROM wide) AS rows,
        (SELECT count(*) FROM liveness) AS liveness,
        *
    FROM (
        SELECT count(*) AS staged_rows, count(*) FILTER (WHERE NOT {_INSIDE}) AS strange_rows
        FROM {{wide}}
    ) AS staged_wide, (
        SELECT
            count(*) AS staged_liveness,
            count(*) FILTER (WHERE NOT {_INSIDE}) AS strange_liveness
        FROM {{liveness}}
    ) AS staged_liveness"""  # noqa: S608


class ChangedRows(NamedTuple):
    """Rows after a batch, as columns: those that something other than heartbeats was applied to,
    and of those whose last heartbeat or liveness deadline may have moved, that part."""

    wide: pa.Table
    liveness: pa.Table


class PositionRange(NamedTuple):
    """A part of a log: the positions from `start` on and below `end`."""

    domain: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the guarded statement did; a stale part was already there, or newer."""

    rows: int = 0
    liveness: int = 0
    stale: int = 0


def stage_rows(
    cursor: Cursor, where: str, changed: ChangedRows, batch_id: UUID, task: int
) -> RowCounts:
    """Stage the touched parts of rows; how many rows in each table."""
    wide, liveness = _tables(where)
    rows, beaten = (
        changed.wide.select(list(WIDE_COLUMNS)),
        changed.liveness.select(list(LIVENESS_COLUMNS)),
    )
    return {
        **stage_columns(cursor, wide, batch_id, task, rows),
        **stage_columns(cursor, liveness, batch_id, task, beaten),
    }


def write_staged_rows(
    cursor: Cursor, where: str, batch_id: UUID, reported: RowCounts, span: PositionRange
) -> Written:
    """Write a batch's staged rows, unless newer ones stand there, and queue what changed.

    Raises if they are not all there, or if one is not of the batch's part of the log: that would
    break the order of writes.
    """
    wide, liveness = _tables(where)
    ours = " WHERE batch_id = %(batch)s"
    found = fetch_one(
        cursor,
        _WRITE.format(wide=wide + ours, liveness=liveness + ours),
        {"batch": batch_id, **span._asdict()},
    )
    require_staged(wide, found.staged_rows, reported)
    require_staged(liveness, found.staged_liveness, reported)
    if strangers := found.strange_rows + found.strange_liveness:
        raise ValueError(
            f"{strangers} rows are not of {span.domain!r}, positions {span.start} up to {span.end}"
        )
    return Written(
        rows=found.rows,
        liveness=found.liveness,
        stale=found.staged_rows + found.staged_liveness - found.rows - found.liveness,
    )


def _tables(where: str) -> tuple[str, str]:
    return f"{where}_projections", f"{where}_liveness"

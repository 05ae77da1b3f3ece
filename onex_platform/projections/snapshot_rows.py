"""Rows on their way to the snapshot topic: as snapshots in JSON, by version, and queued again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from onex_platform.domain.projection import MOST_LIFTED_VERSION
from onex_platform.engines.postgres.database import Cursor, Database, streamed
from onex_platform.projections.fold.checkpoint import lock_checkpoint
from onex_platform.projections.write import outbox

# A row as the topic should have it: key, version, JSON, which is None for a tombstone, and tenant,
# which is None if the row is gone. A plain tuple: making anything else of each of 100,000 would
# take longer than the driver does.
RowState = tuple[str, str, str | None, str | None]

# The snapshot as JSON, written by the server: a row on its way from one server to the other need
# not become objects here. A test compares it with what the model makes of the row. `||` copies all
# that stands before it, so there are few, and what is long comes last. The sequence is that of the
# wide row, which is what the snapshot shows: heartbeats don't move it.
_JSON = """
    %(constants)s::text || ',"entity_id":"' || stored.entity_id
    || '","current_state":"' || current_state
    || '","node_type":"' || node_type
    || '","tenant":' || to_json(tenant)::text
    || ',"node_name":' || coalesce(to_json(node_name)::text, 'null')
    || ',"last_state_change_at":' || to_json(last_state_change_at)::text
    || ',"snapshot_version":' || stored.row_version
    || ',"source_projection_sequence":' || last_applied_sequence
    || ',"capabilities":' || capabilities::text || '}'"""
_VALUE = f"CASE WHEN deregistered_at IS NULL THEN {_JSON} END"

_STORED = f"SELECT stored.entity_id::text, stored.row_version::text, {_VALUE}, stored.tenant"
_CHOSEN = f"""
    {_STORED} FROM registration_projections AS stored
    WHERE domain = %(domain)s AND entity_id = ANY(%(ids)s)"""
_NEXT = f"""
    {_STORED} FROM (
        SELECT * FROM registration_projections
        WHERE domain = %(domain)s AND entity_id > %(after)s ORDER BY entity_id LIMIT %(limit)s
    ) AS stored"""  # noqa: S608 - constant parts
# In the order of ids: neighbours in the index are looked up one after the other. A row that is gone
# has no JSON either, which makes it a tombstone.
_WAITING = f"""
    WITH taken AS ({outbox.TAKE_ROWS})
    SELECT
        waiting.entity_id::text,
        coalesce(stored.row_version, waiting.row_version)::text,
        {_VALUE},
        stored.tenant,
        waiting.entries
    FROM (
        SELECT entity_id, max(row_version) AS row_version, count(*) AS entries
        FROM taken GROUP BY entity_id ORDER BY entity_id
    ) AS waiting
    LEFT JOIN registration_projections AS stored
        ON stored.entity_id = waiting.entity_id AND stored.domain = %(domain)s"""  # noqa: S608
_VERSIONS = f"""
    SELECT
        entity_id,
        row_version,
        deregistered_at IS NOT NULL AS closed,
        entity_id IN ({outbox.WAITING_ROWS}) AS waiting
    FROM registration_projections
    WHERE domain = %(domain)s AND (%(ids)s::uuid[] IS NULL OR entity_id = ANY(%(ids)s))"""  # noqa: S608
_ENTRY = "CASE WHEN deregistered_at IS NULL THEN 'snapshot' ELSE 'tombstone' END"
_LIFT = f"""
    UPDATE registration_projections AS p SET row_version = topic.version + 1
    FROM unnest(%(ids)s::uuid[], %(versions)s::bigint[]) AS topic (entity_id, version)
    WHERE p.domain = %(domain)s AND p.entity_id = topic.entity_id
        AND p.row_version <= topic.version AND topic.version < %(most)s
    RETURNING {_ENTRY}, p.entity_id, p.row_version"""  # noqa: S608 - constant parts


def read_rows(
    cursor: Cursor, domain: str, ids: Iterable[UUID | str]
) -> AbstractContextManager[Iterator[RowState]]:
    """The rows of these entities, those that exist; read while they are used, as all of these."""
    return _read(cursor, _CHOSEN, domain, ids=list(map(str, ids)))


def read_rows_after(
    cursor: Cursor, domain: str, after: str, limit: int
) -> AbstractContextManager[Iterator[RowState]]:
    """The rows behind an id, in the order of their ids."""
    return _read(cursor, _NEXT, domain, after=after, limit=limit)


def take_waiting_rows(
    cursor: Cursor, domain: str, limit: int
) -> AbstractContextManager[Iterator[tuple[str, str, str | None, str | None, int]]]:
    """Remove the oldest entries from the outbox; their rows as they are now, and how many entries
    were about each. One that is gone is to leave the topic as well.
    """
    return _read(cursor, _WAITING, domain, limit=limit)


def _read(
    cursor: Cursor, query: str, domain: str, **parameters: Any
) -> AbstractContextManager[Iterator[Any]]:
    constants = to_json({"domain": domain, "snapshot_created_at": datetime.now(UTC)})
    beginning = constants.decode().removesuffix("}")
    return streamed(cursor, query, {"domain": domain, "constants": beginning, **parameters})


def row_versions(database: Database, domain: str, ids: Iterable[UUID] | None) -> Iterator[Any]:
    """Entity, version, whether it is closed and whether it waits in the outbox: of all rows, or of
    some."""
    chosen = None if ids is None else list(ids)
    return database.stream(_VERSIONS, {"domain": domain, "ids": chosen}, rows_per_fetch=5000)


def queue_stored(cursor: Cursor, domain: str, ids: Collection[UUID]) -> set[UUID]:
    """Queue rows to be published again as they are; those that exist."""
    rows = cursor.execute(
        f"SELECT {_ENTRY}, entity_id, row_version FROM registration_projections"  # noqa: S608
        " WHERE domain = %s AND entity_id = ANY(%s)",
        [domain, list(ids)],
    ).fetchall()
    outbox.queue_rows(cursor, domain, rows)
    return {row.entity_id for row in rows}


def lift_versions(cursor: Cursor, domain: str, published: Mapping[UUID, int]) -> int:
    """Lift rows above the versions that the topic has of them, and queue them; how many.

    This changes a row without an event, but nothing that the row says. It takes the fold's lock.
    """
    lock_checkpoint(cursor, domain)
    rows = cursor.execute(
        _LIFT,
        {
            "domain": domain,
            "most": MOST_LIFTED_VERSION,
            "ids": list(published),
            "versions": list(published.values()),
        },
    ).fetchall()
    return outbox.queue_rows(cursor, domain, rows)

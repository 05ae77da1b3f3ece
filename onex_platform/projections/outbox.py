"""What waits for Kafka: snapshots and tombstones of changed rows, and the registry's own events.

A snapshot's entry is narrow: the row itself is read when it is published. An event's entry carries
its whole envelope. Entries of one entity stand in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres import Cursor, copy_rows, fetch_one

SOURCE = "onex-platform"

_ROW = {"entry": "text", "domain": "text", "entity_id": "uuid", "row_version": "bigint"}

# Removes the oldest entries for the snapshot topic. Found again by their place, which can't change
# while the statement runs, whatever the planner thinks of their number.
TAKE_ROWS = """
    DELETE FROM outbox WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM outbox WHERE domain = %(domain)s AND entry <> 'event'
        ORDER BY id LIMIT %(limit)s
    )) RETURNING entity_id, row_version"""


class Waiting(NamedTuple):
    """Entries for the snapshot topic, and events."""

    rows: int
    events: int


def queue_staged(cursor: Cursor, table: str, batch_id: UUID) -> int:
    """Queue the registry's own events that wait in the table, in the log's order; how many."""
    cursor.execute(
        "INSERT INTO outbox"  # noqa: S608 - constant
        " (entry, domain, entity_id, event_kind, event_id, event_key, envelope)"
        " SELECT 'event', domain, entity_id, event_kind, event_id, event_key, envelope"
        f" FROM {table} WHERE batch_id = %s ORDER BY position, entity_id",
        [batch_id],
    )
    return cursor.rowcount


def queue_rows(cursor: Cursor, domain: str, rows: Iterable[tuple[str, UUID, int]]) -> int:
    """Queue rows to be published again, each as (entry, entity id, version); how many."""
    entries = ((entry, domain, entity_id, version) for entry, entity_id, version in rows)
    return copy_rows(cursor, "outbox", _ROW, entries)


def waiting(cursor: Cursor, domain: str) -> Waiting:
    """How many entries no broker has acknowledged yet."""
    counts = fetch_one(
        cursor,
        "SELECT count(*) FILTER (WHERE entry <> 'event') AS rows,"
        " count(*) FILTER (WHERE entry = 'event') AS events FROM outbox WHERE domain = %s",
        [domain],
    )
    return Waiting(counts.rows, counts.events)


def pending_events(cursor: Cursor, domain: str, limit: int) -> list[Any]:
    """The oldest events, in order; envelopes are text, as they are published."""
    return cursor.execute(
        "SELECT id, entity_id, event_kind, event_id, event_key, envelope::text AS envelope"
        " FROM outbox WHERE domain = %s AND entry = 'event' ORDER BY id LIMIT %s",
        [domain, limit],
    ).fetchall()


def acknowledge(cursor: Cursor, domain: str, ids: Sequence[int]) -> None:
    """Drop the entries that the broker acknowledged."""
    cursor.execute("DELETE FROM outbox WHERE domain = %s AND id = ANY(%s)", [domain, list(ids)])


def envelope_of(fact: LogEvent) -> ModelEventEnvelope:
    """A fact as other systems read it."""
    return ModelEventEnvelope(
        event_id=fact.event_id,
        event_type=fact.kind.event_type,
        source=SOURCE,
        correlation_id=fact.correlation_id,
        timestamp=fact.reported_at or fact.occurred_at,
        schema_version=UPCASTERS.current_version(fact.kind),
        tenant=fact.tenant,
        payload=fact.payload.model_dump(mode="json", exclude_none=True),
    )

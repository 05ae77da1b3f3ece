"""What waits for Kafka: snapshots and tombstones of changed rows, and the registry's own events.

A snapshot's entry is narrow: the row itself is read when it is published. An event's entry carries
its whole envelope. Entries of one entity stand in the order in which they were written. An event
that Kafka refuses for what it is holds up those of its entity, and of nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres.database import (
    Cursor,
    array_of,
    copy_rows,
    fetch_one,
    storable,
)
from onex_platform.ingest.event_schema import LOG_SCHEMA, to_table

SOURCE = "onex-platform"
# Facts as columns: as the log has them, and as other systems read them.
FACT_SCHEMA = LOG_SCHEMA.append(pa.field("envelope", pa.string(), nullable=False))

_ROW = {"entry": "text", "domain": "text", "entity_id": "uuid", "row_version": "bigint"}

# Removes the oldest entries for the snapshot topic. Found again by their place, which can't change
# while the statement runs, whatever the planner thinks of their number.
TAKE_ROWS = """
    DELETE FROM outbox WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM outbox WHERE domain = %(domain)s AND entry <> 'event'
        ORDER BY id LIMIT %(limit)s
    )) RETURNING entity_id, row_version"""

# Whose row has an entry for the snapshot topic.
WAITING_ROWS = "SELECT entity_id FROM outbox WHERE domain = %(domain)s AND entry <> 'event'"
# A few at most, known before the first entry is looked at.
_NOT_HELD = """
    entity_id <> ALL (ARRAY(
        SELECT held.entity_id FROM held_publications AS held
        WHERE held.domain = %(domain)s AND held.next_try_at > clock_timestamp()
    ))"""
_PUBLISHED_REQUESTS = """
    INSERT INTO published_ack_requests (domain, entity_id, published_at)
    SELECT %(domain)s, entity_id, clock_timestamp() FROM unnest(%(ids)s::uuid[]) AS entity_id
    ON CONFLICT (domain, entity_id) DO UPDATE SET published_at = excluded.published_at"""
# Half a minute, and twice as long each time, up to an hour.
_HOLD = """
    INSERT INTO held_publications AS held
        (domain, entity_id, event_id, event_kind, error, next_try_at)
    VALUES (%s, %s, %s, %s, %s, clock_timestamp() + interval '30 s')
    ON CONFLICT (domain, entity_id) DO UPDATE SET
        event_id = excluded.event_id,
        event_kind = excluded.event_kind,
        error = excluded.error,
        attempts = held.attempts + 1,
        next_try_at = clock_timestamp()
            + least(interval '30 s' * power(2, least(held.attempts, 10)), interval '1 h')"""


class Waiting(NamedTuple):
    """Entries for the snapshot topic, and events that can be tried now."""

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
    """How many entries no broker has acknowledged yet, but for events that are held back."""
    counts = fetch_one(
        cursor,
        "SELECT count(*) FILTER (WHERE entry <> 'event') AS rows,"  # noqa: S608 - constants
        f" count(*) FILTER (WHERE entry = 'event' AND {_NOT_HELD}) AS events"
        " FROM outbox WHERE domain = %(domain)s",
        {"domain": domain},
    )
    return Waiting(counts.rows, counts.events)


def waiting_among(cursor: Cursor, domain: str, nodes: Collection[UUID]) -> set[UUID]:
    """Of some nodes, those with an entry for the snapshot topic."""
    query = f"{WAITING_ROWS} AND entity_id = ANY(%(ids)s)"
    rows = cursor.execute(query, {"domain": domain, "ids": list(nodes)})
    return {row.entity_id for row in rows}


def oldest_waiting(cursor: Cursor, domain: str) -> timedelta:
    """For how long the oldest entry waits; no time if there is none."""
    query = "SELECT clock_timestamp() - min(created_at) AS age FROM outbox WHERE domain = %s"
    age: timedelta | None = fetch_one(cursor, query, [domain]).age
    return age or timedelta()


def pending_events(cursor: Cursor, domain: str, limit: int) -> list[Any]:
    """The oldest events that are not held back, in order; ids and envelopes are text, as
    published."""
    return cursor.execute(
        "SELECT id, entity_id::text, event_kind, event_id::text, event_key,"  # noqa: S608
        " envelope::text AS envelope"
        f" FROM outbox WHERE domain = %(domain)s AND entry = 'event' AND {_NOT_HELD}"
        " ORDER BY id LIMIT %(limit)s",
        {"domain": domain, "limit": limit},
    ).fetchall()


@dataclass(frozen=True, slots=True)
class Held:
    """A node whose next event Kafka refuses, and how many events wait for that one."""

    entity_id: UUID
    event_id: UUID
    event_kind: str
    error: str
    attempts: int
    held_since: datetime
    events: int

    def __str__(self) -> str:
        return f"{self.entity_id} since {self.held_since.isoformat()}: {self.error}"


def hold(cursor: Cursor, domain: str, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Let the nodes wait whose events were refused: each one's first such entry, and why."""
    for entity_id, (entry, error) in refused.items():
        values = [domain, entity_id, entry.event_id, entry.event_kind, storable(error[:500])]
        cursor.execute(_HOLD, values)


def let_go(cursor: Cursor, domain: str, nodes: Iterable[str]) -> None:
    """Their events are not refused any more."""
    query = "SELECT entity_id::text FROM held_publications WHERE domain = %s"
    waiting = {row.entity_id for row in cursor.execute(query, [domain])}
    if waiting:  # seldom: all others need not be looked at
        cursor.execute(
            "DELETE FROM held_publications WHERE domain = %s AND entity_id = ANY(%s::uuid[])",
            [domain, array_of(waiting.intersection(nodes))],
        )


def held(cursor: Cursor, domain: str, *, untold: bool = False) -> list[Held]:
    """Who is held up, longest first; those not told of, or all."""
    rows = cursor.execute(
        "SELECT entity_id, event_id, event_kind, error, attempts, held_since,"
        " (SELECT count(*) FROM outbox AS o WHERE o.domain = h.domain AND o.entry = 'event'"
        " AND o.entity_id = h.entity_id) AS events"
        " FROM held_publications AS h WHERE domain = %s AND (NOT %s OR alerted_at IS NULL)"
        " ORDER BY held_since, entity_id",
        [domain, untold],
    )
    return [Held(*row) for row in rows]


def mark_told(cursor: Cursor, domain: str, nodes: Collection[UUID], now: datetime) -> None:
    """Note that others know of these."""
    cursor.execute(
        "UPDATE held_publications SET alerted_at = %s WHERE domain = %s AND entity_id = ANY(%s)",
        [now, domain, list(nodes)],
    )


def acknowledge(cursor: Cursor, domain: str, ids: Sequence[int]) -> None:
    """Drop the entries that the broker acknowledged."""
    cursor.execute(
        "DELETE FROM outbox WHERE domain = %s AND id = ANY(%s::bigint[])", [domain, array_of(ids)]
    )


def note_requests(cursor: Cursor, domain: str, nodes: Iterable[str]) -> None:
    """Note that these nodes' requests for an acknowledgement are published now."""
    cursor.execute(_PUBLISHED_REQUESTS, {"domain": domain, "ids": array_of(nodes)})


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


def fact_table(facts: Iterable[LogEvent]) -> pa.Table:
    """Facts as columns."""
    facts = list(facts)
    envelopes = [envelope_of(fact).model_dump_json() for fact in facts]
    return to_table(facts).append_column(
        FACT_SCHEMA.field("envelope"), pa.array(envelopes, pa.string())
    )

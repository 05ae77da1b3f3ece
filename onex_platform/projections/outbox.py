"""What waits for Kafka: snapshots and tombstones of changed rows, and the registry's own events.

A snapshot's entry is narrow: the row itself is read when it is published. An event's entry carries
its whole envelope. Entries of one entity stand in the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import LogEvent
from onex_platform.engines.postgres import Cursor, copy_rows

SOURCE = "onex-platform"

_EVENT = {
    "entry": "text",
    "domain": "text",
    "entity_id": "uuid",
    "event_kind": "text",
    "event_id": "uuid",
    "event_key": "text",
    "envelope": "jsonb",
}


def queue_events(cursor: Cursor, facts: Iterable[LogEvent]) -> int:
    """Queue the registry's own events; how many."""
    return copy_rows(cursor, "outbox", _EVENT, map(_event_entry, facts))


def pending(cursor: Cursor, domain: str, limit: int) -> list[Any]:
    """The oldest entries that no broker has acknowledged yet, in order."""
    return cursor.execute(
        "SELECT id, entry, domain, entity_id, row_version, event_kind, event_id, event_key,"
        " envelope, created_at FROM outbox WHERE domain = %s ORDER BY id LIMIT %s",
        [domain, limit],
    ).fetchall()


def acknowledge(cursor: Cursor, domain: str, ids: Sequence[int]) -> int:
    """Drop the entries that the broker acknowledged; how many of them still stood there."""
    cursor.execute("DELETE FROM outbox WHERE domain = %s AND id = ANY(%s)", [domain, list(ids)])
    return cursor.rowcount


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


def _event_entry(fact: LogEvent) -> tuple[Any, ...]:
    entity = fact.entity
    return (
        "event",
        entity.domain,
        entity.entity_id,
        fact.kind,
        fact.event_id,
        fact.node_id,
        envelope_of(fact),
    )

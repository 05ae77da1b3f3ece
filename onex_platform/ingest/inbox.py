"""What waits for its place in the log: timeouts, operators' acts, parked records that are replayed.

A fact's id is that of the decision, so whoever submits it twice submits it once. A replayed record
has the id that its sender gave it, and says where in Kafka it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_json

from onex_platform.domain.envelope import kept_payload, read_kept
from onex_platform.domain.events import EnumEventKind, LogEvent, Provenance
from onex_platform.domain.identity import EntityKey
from onex_platform.engines.postgres.database import Cursor, fetch_one

_COLUMNS = {
    "event_id": "uuid",
    "domain": "text",
    "entity_id": "uuid",
    "kind": "text",
    "tenant": "text",
    "node_id": "text",
    "node_name": "text",
    "epoch": "bigint",
    "occurred_at": "timestamptz",
    "deadline": "timestamptz",
    "payload": "jsonb",
    "correlation_id": "uuid",
    "cause_id": "uuid",
    "reported_at": "timestamptz",
    "topic": "text",
    "partition": "integer",
    "offset": "bigint",
}
_PLACE = ("topic", "partition", "offset")
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_TYPES = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
# One document for all facts: with arrays of texts instead, whole scans took almost twice as long.
_SUBMIT = (
    f"INSERT INTO fact_inbox ({_NAMES})"  # noqa: S608
    f" SELECT {_NAMES} FROM jsonb_to_recordset(%s::jsonb) AS fact"
    f" ({_TYPES})"
    " ON CONFLICT DO NOTHING"
)
# Letters are much larger than facts: a cut takes as many as it can hold, and always one.
_WAITING = (
    f"SELECT {_NAMES} FROM (SELECT {_NAMES},"  # noqa: S608
    " sum(octet_length(payload::text)) OVER (ORDER BY occurred_at, event_id)"
    " - octet_length(payload::text) AS bytes_before"
    f" FROM (SELECT {_NAMES} FROM fact_inbox WHERE domain = %s AND occurred_at < %s"
    " ORDER BY occurred_at, event_id LIMIT %s) AS first) AS counted"
    " WHERE bytes_before < %s ORDER BY occurred_at, event_id"
)
_MOST_BYTES = 64 * 1024**2


def submit(cursor: Cursor, facts: Iterable[LogEvent]) -> int:
    """Let facts wait for the next batch; how many were not waiting already."""
    cursor.execute(_SUBMIT, [to_json([_columns_of(fact) for fact in facts]).decode()])
    return cursor.rowcount


def waiting(
    cursor: Cursor, domain: str, before: datetime, limit: int, most_bytes: int = _MOST_BYTES
) -> list[LogEvent]:
    """Facts that occurred before the cut's instant, oldest first; they have no position yet."""
    rows = cursor.execute(_WAITING, [domain, before, limit, most_bytes])
    return [_fact_of(row) for row in rows]


def waiting_among(cursor: Cursor, domain: str, event_ids: Collection[UUID]) -> frozenset[UUID]:
    """Of some facts, those that wait."""
    query = "SELECT event_id FROM fact_inbox WHERE domain = %s AND event_id = ANY(%s)"
    return frozenset(row.event_id for row in cursor.execute(query, [domain, list(event_ids)]))


def count_waiting(cursor: Cursor, domain: str) -> int:
    """How many facts wait."""
    query = "SELECT count(*) AS facts FROM fact_inbox WHERE domain = %s"
    return int(fetch_one(cursor, query, [domain]).facts)


def remove(cursor: Cursor, domain: str, event_ids: Collection[UUID]) -> None:
    """Take facts out that have their place in the log now."""
    cursor.execute(
        "DELETE FROM fact_inbox WHERE domain = %s AND event_id = ANY(%s)",
        [domain, list(event_ids)],
    )


def _columns_of(fact: LogEvent) -> dict[str, Any]:
    special = {
        "domain": fact.entity.domain,
        "entity_id": fact.entity.entity_id,
        "kind": fact.kind,
        "payload": kept_payload(fact.kind, fact.payload),
    }
    source = fact.provenance
    special |= {name: source and getattr(source, name) for name in _PLACE}
    return special | {name: getattr(fact, name) for name in _COLUMNS if name not in special}


def _fact_of(row: Any) -> LogEvent:
    columns = row._asdict()
    kind = EnumEventKind(columns.pop("kind"))
    entity = EntityKey(columns.pop("domain"), columns.pop("entity_id"))
    place = {name: columns.pop(name) for name in _PLACE}
    return LogEvent(
        position=0,
        kind=kind,
        entity=entity,
        # A fact may have been submitted by an earlier release.
        payload=read_kept(kind, columns.pop("payload")),
        reported_at=columns.pop("reported_at") or row.occurred_at,
        provenance=None if row.topic is None else Provenance(**place),
        **columns,
    )

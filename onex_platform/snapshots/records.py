"""Rows as records of the snapshot topic, and records as snapshots again.

A record's key is the entity's id, its value the snapshot as JSON, or nothing for a tombstone. Both
carry the version as a header, so that a reader can order tombstones as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import Message

from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.engines.kafka import KafkaRecord
from onex_platform.engines.postgres import Cursor

VERSION_HEADER = "snapshot_version"

# The server writes the JSON: a row that goes from one server to the other need not become objects
# here. A test compares it with what `ModelRegistrationSnapshot.from_projection` says.
_SNAPSHOT = """
    SELECT row_to_json(snapshot)::text FROM (
        SELECT
            entity_id,
            domain,
            tenant,
            current_state,
            node_type,
            node_name,
            capabilities,
            last_state_change_at,
            row_version AS snapshot_version,
            clock_timestamp() AS snapshot_created_at,
            last_applied_sequence AS source_projection_sequence
    ) AS snapshot"""
_ROWS = f"""
    SELECT
        entity_id::text AS key,
        row_version AS version,
        CASE WHEN deregistered_at IS NULL THEN ({_SNAPSHOT}) END AS value
    FROM registrations
    WHERE domain = %(domain)s AND {{which}}"""  # noqa: S608 - constant parts
_CHOSEN = _ROWS.format(which="entity_id = ANY(%(ids)s)")
_NEXT = _ROWS.format(which="entity_id > %(after)s ORDER BY entity_id LIMIT %(limit)s")


class RowState(NamedTuple):
    """A row as the topic should have it; no value means a tombstone."""

    key: str
    version: int
    value: str | None


def read_rows(cursor: Cursor, domain: str, ids: Iterable[UUID]) -> list[RowState]:
    """The rows of these entities, those that exist."""
    return cursor.execute(_CHOSEN, {"domain": domain, "ids": list(ids)}).fetchall()


def read_next_rows(cursor: Cursor, domain: str, after: UUID, limit: int) -> list[RowState]:
    """The rows behind one, in the order of their ids."""
    return cursor.execute(_NEXT, {"domain": domain, "after": after, "limit": limit}).fetchall()


def to_records(topic: str, rows: Iterable[Any]) -> list[KafkaRecord]:
    """The rows as records of the topic."""
    return [
        KafkaRecord(
            topic,
            None if value is None else value.encode(),
            key,
            ((VERSION_HEADER, b"%d" % version),),
        )
        for key, version, value in rows
    ]


def tombstone(topic: str, entity_id: UUID, version: int) -> KafkaRecord:
    [record] = to_records(topic, [RowState(str(entity_id), version, None)])
    return record


class PublishedState(NamedTuple):
    """What a record says of its entity."""

    entity_id: UUID
    version: int
    is_tombstone: bool


def published_state(message: Message) -> PublishedState | None:
    """The record without its content; None if it is not one of ours."""
    headers: Sequence[tuple[str, bytes]] = message.headers() or ()  # type: ignore[assignment]
    try:
        entity_id = UUID((message.key() or b"").decode())
        [version] = [int(value) for name, value in headers if name == VERSION_HEADER]
    except ValueError:
        return None
    return PublishedState(entity_id, version, message.value() is None)


def to_snapshot(message: Message) -> ModelRegistrationSnapshot | None:
    """The snapshot in a record; None for a tombstone."""
    value = message.value()
    return None if value is None else ModelRegistrationSnapshot.model_validate_json(value)

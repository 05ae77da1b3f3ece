"""Rows as records of the snapshot topic, and what readers make of a record there.

A record's key is the entity's id, its value the snapshot as JSON, or nothing for a tombstone. Both
carry the version as a header, so that a reader can order tombstones as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import Message
from pydantic_core import to_json

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import MOST_VERSION
from onex_platform.engines.kafka.transactions import Outgoing
from onex_platform.engines.postgres.database import Cursor, streamed
from onex_platform.projections.write.outbox import TAKE_ROWS
from onex_platform.snapshots.read.snapshot_map import (
    MalformedSnapshotError,
    is_entity_key,
    read_entry,
)

VERSION_HEADER = "snapshot_version"
_MOST_DIGITS = len(str(MOST_VERSION))

# A row as the topic should have it: key, version and JSON, which is None for a tombstone. A plain
# tuple: making anything else of each of 100,000 would take longer than the driver does.
RowState = tuple[str, str, str | None]

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

_STORED = f"SELECT stored.entity_id::text, stored.row_version::text, {_VALUE}"
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
    WITH taken AS ({TAKE_ROWS})
    SELECT
        waiting.entity_id::text,
        coalesce(stored.row_version, waiting.row_version)::text,
        {_VALUE},
        waiting.entries
    FROM (
        SELECT entity_id, max(row_version) AS row_version, count(*) AS entries
        FROM taken GROUP BY entity_id ORDER BY entity_id
    ) AS waiting
    LEFT JOIN registration_projections AS stored
        ON stored.entity_id = waiting.entity_id AND stored.domain = %(domain)s"""  # noqa: S608


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
) -> AbstractContextManager[Iterator[tuple[str, str, str | None, int]]]:
    """Remove the oldest entries from the outbox; their rows as they are now, with how many entries
    were about each. One that is gone is to leave the topic as well.
    """
    return _read(cursor, _WAITING, domain, limit=limit)


def _read(
    cursor: Cursor, query: str, domain: str, **parameters: Any
) -> AbstractContextManager[Iterator[Any]]:
    constants = to_json({"domain": domain, "snapshot_created_at": datetime.now(UTC)})
    beginning = constants.decode().removesuffix("}")
    return streamed(cursor, query, {"domain": domain, "constants": beginning, **parameters})


def to_messages(rows: Iterable[RowState]) -> Iterator[Outgoing]:
    """The rows as the topic's messages: key, value, headers."""
    return ((key, value, [(VERSION_HEADER, version)]) for key, version, value in rows)


class PublishedState(NamedTuple):
    """What readers make of a record; version 0 if they find none in it."""

    entity_id: UUID
    version: int
    is_tombstone: bool
    has_header: bool = True


def published_state(
    message: Message, domain: str = REGISTRATION_DOMAIN, *, by_value: bool = False
) -> PublishedState | None:
    """The record without its content; None if it is under no entity's key.

    Readers go by the version in the value. The header says the same in all that we write, and so
    the value is parsed only where there is no header, or where `by_value` asks for it.
    """
    key, value = message.key(), message.value()
    if not is_entity_key(key):
        return None
    version = named = version_in(message.headers())
    if value is not None and (by_value or named is None):
        version = _version_in_value(key, value, domain) or named
    return PublishedState(UUID(key.decode()), version or 0, value is None, named is not None)


def version_in(headers: Any) -> int | None:
    """The version that a record's headers name; None if it is none that a row can have."""
    text: bytes | None = dict(headers or ()).get(VERSION_HEADER)
    if text is None or len(text) > _MOST_DIGITS or not text.isdigit():
        return None
    return int(text) or None


def _version_in_value(key: bytes, value: bytes, domain: str) -> int | None:
    try:
        return read_entry(key, value, domain).version
    except MalformedSnapshotError:
        return None

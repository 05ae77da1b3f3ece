"""Rows as records of the snapshot topic, and records as snapshots again.

A record's key is the entity's id, its value the snapshot as JSON, or nothing for a tombstone. Both
carry the version as a header, so that a reader can order tombstones as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import Message
from pydantic_core import to_json

from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.engines.kafka_transactions import Outgoing
from onex_platform.engines.postgres import Cursor, fetch_one

VERSION_HEADER = "snapshot_version"
_ROWS_AT_ONCE = 2000

# The snapshot's fields as JSON, written by the server: a row on its way from one server to the
# other need not become objects here. A test compares it with what the model makes of the row. The
# sequence is that of the wide row, which is what the snapshot shows: heartbeats don't move it.
_FIELDS = {
    "entity_id": """'"' || entity_id::text || '"'""",
    "domain": "%(domain_json)s::text",
    "tenant": "to_json(tenant)::text",
    "current_state": """'"' || current_state::text || '"'""",
    "node_type": """'"' || node_type::text || '"'""",
    "node_name": "coalesce(to_json(node_name)::text, 'null')",
    "last_state_change_at": "to_json(last_state_change_at)::text",
    "snapshot_version": "row_version::text",
    "snapshot_created_at": "%(now_json)s::text",
    "source_projection_sequence": "last_applied_sequence::text",
    "capabilities": "capabilities::text",  # last: what stands before it is copied less often
}
_JSON = " || ',' || ".join(f"""'"{name}":' || {value}""" for name, value in _FIELDS.items())

# Many rows come as one text, a line each: key, version and JSON, which is empty for a tombstone.
# JSON has neither tabs nor line ends. Making objects of every row would cost more than Kafka does.
_LINES = f"""
    SELECT string_agg(
        entity_id::text || E'\\t' || row_version::text || E'\\t'
            || CASE WHEN deregistered_at IS NULL THEN '{{{{' || {_JSON} || '}}}}' ELSE '' END,
        E'\\n' ORDER BY entity_id
    ) AS lines
    FROM (
        SELECT * FROM registration_projections WHERE domain = %(domain)s AND {{which}}
    ) AS rows"""  # noqa: S608 - constant parts
_CHOSEN = _LINES.format(which="entity_id = ANY(%(ids)s)")
_NEXT = _LINES.format(which="entity_id > %(after)s ORDER BY entity_id LIMIT %(limit)s")


class RowState(NamedTuple):
    """A row as the topic should have it; no value means a tombstone."""

    key: str
    version_text: str
    value: str

    @property
    def version(self) -> int:
        return int(self.version_text)

    @property
    def is_tombstone(self) -> bool:
        return not self.value


def tombstone_of(key: str, version: int) -> RowState:
    return RowState(key, str(version), "")


def read_rows(cursor: Cursor, domain: str, ids: Iterable[UUID | str]) -> Iterator[RowState]:
    """The rows of these entities, those that exist; read while they are used."""
    pending = iter(ids)
    while chosen := list(islice(pending, _ROWS_AT_ONCE)):
        yield from _read(cursor, _CHOSEN, domain, ids=list(map(str, chosen)))


def read_rows_after(cursor: Cursor, domain: str, after: str, limit: int) -> Iterator[RowState]:
    """The rows behind an id, in the order of their ids; read while they are used."""
    while rows := _read(cursor, _NEXT, domain, after=after, limit=min(limit, _ROWS_AT_ONCE)):
        yield from rows
        after, limit = rows[-1].key, limit - len(rows)


def _read(cursor: Cursor, query: str, domain: str, **parameters: Any) -> list[RowState]:
    lines = fetch_one(
        cursor,
        query,
        {
            "domain": domain,
            "domain_json": to_json(domain).decode(),
            "now_json": to_json(datetime.now(UTC)).decode(),
            **parameters,
        },
    ).lines
    return [RowState._make(line.split("\t")) for line in lines.split("\n")] if lines else []


def to_messages(rows: Iterable[RowState]) -> Iterator[Outgoing]:
    """The rows as the topic's messages: key, value, headers."""
    return (
        (key, value or None, [(VERSION_HEADER, version_text)]) for key, version_text, value in rows
    )


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

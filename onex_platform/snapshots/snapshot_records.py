"""Rows as records of the snapshot topic, and what readers make of a record there.

A record's key is the entity's id, its value the snapshot as JSON, or nothing for a tombstone. Both
carry the version as a header, so that a reader can order tombstones as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import Message

from onex_platform.domain import headers as h
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import MOST_VERSION
from onex_platform.engines.kafka.transactions import Outgoing
from onex_platform.projections.snapshot_rows import RowState
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.read.snapshot_map import (
    MalformedSnapshotError,
    is_entity_key,
    read_entry,
)

VERSION_HEADER = h.SNAPSHOT_VERSION
_SCHEMA = "1"
_MOST_DIGITS = len(str(MOST_VERSION))


def to_messages(rows: Iterable[RowState], wrapper: Wrapper, pii: str) -> Iterator[Outgoing]:
    """The rows as the topic's messages: key, value, headers.

    A row's changes are one trace, of which each version is a span.
    """
    shared = ((h.SCHEMA_VERSION, _SCHEMA), *wrapper.constant(pii=pii))
    home = wrapper.tenant
    ends: dict[str, str] = {}
    # Looked up once: this is the hot loop.
    tenants, correlation, trace, parent = h.TENANT, h.CORRELATION_ID, h.TRACE_ID, h.TRACEPARENT
    for key, version, value, tenant in rows:
        trace_id = key.replace("-", "")
        end = ends.get(version)
        if end is None:  # versions are small numbers, and each is met often
            end = ends[version] = f"-{int(version):016x}-01"
        yield (
            key,
            value,
            [
                (VERSION_HEADER, version),
                *shared,
                (tenants, tenant or home),
                (correlation, key),
                (trace, trace_id),
                (parent, "00-" + trace_id + end),
            ],
        )


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

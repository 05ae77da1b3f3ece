"""Rows of the registry as Arrow columns: how a state of the past is stored and travels in Spark.

The columns are the domain columns; `row_version` belongs to publication and has no past.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json, to_json

from onex_platform.domain.projection import ModelRegistrationProjection

_ID = pa.binary()  # Spark knows no binary of fixed length
_TIME = pa.timestamp("us", tz="UTC")
JSON_COLUMNS = frozenset({"capabilities", "endpoints", "metadata"})

STATE_SCHEMA = pa.schema(
    [
        pa.field("entity_id", _ID, nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("current_state", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("node_type", pa.string(), nullable=False),
        pa.field("node_name", pa.string()),
        pa.field("node_version", pa.string()),
        pa.field("capabilities", pa.string(), nullable=False),
        pa.field("endpoints", pa.string(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("network_id", pa.string()),
        pa.field("deployment_id", pa.string()),
        pa.field("ack_deadline", _TIME),
        pa.field("liveness_deadline", _TIME),
        pa.field("ack_timeout_emitted_at", _TIME),
        pa.field("liveness_timeout_emitted_at", _TIME),
        pa.field("introspected_at", _TIME, nullable=False),
        pa.field("registered_at", _TIME),
        pa.field("last_state_change_at", _TIME, nullable=False),
        pa.field("last_heartbeat_at", _TIME),
        pa.field("deregistered_at", _TIME),
        pa.field("failure_code", pa.string()),
        pa.field("failure_message", pa.string()),
        pa.field("last_applied_event_id", _ID, nullable=False),
        pa.field("last_applied_sequence", pa.int64(), nullable=False),
        pa.field("last_applied_topic", pa.string()),
        pa.field("last_applied_partition", pa.int32()),
        pa.field("last_applied_offset", pa.int64()),
        pa.field("correlation_id", _ID),
    ]
)
# The part of a row that heartbeats move.
LIVENESS_SCHEMA = pa.schema(
    STATE_SCHEMA.field(name)
    for name in (
        "entity_id",
        "domain",
        "last_applied_sequence",
        "last_heartbeat_at",
        "liveness_deadline",
    )
)


def to_table(rows: Iterable[ModelRegistrationProjection]) -> pa.Table:
    """Rows as columns, sorted by node: the same rows always give the same table."""
    ordered = sorted(rows, key=lambda row: row.entity_id.bytes)
    return pa.table(
        [
            pa.array(_stored(field, map(attrgetter(field.name), ordered)), type=field.type)
            for field in STATE_SCHEMA
        ],
        schema=STATE_SCHEMA,
    )


def from_columns(columns: Mapping[str, list[Any]], schema: pa.Schema = STATE_SCHEMA) -> pa.Table:
    """Values as the fold has them (ids as bytes, instants as microseconds), in any order."""
    return pa.table(
        [
            pa.array(
                [to_json(value).decode() for value in columns[field.name]]
                if field.name in JSON_COLUMNS
                else columns[field.name],
                type=pa.int64() if field.type == _TIME else field.type,
            ).cast(field.type)
            for field in schema
        ],
        schema=schema,
    )


def of_nodes(table: pa.Table, nodes: Collection[bytes]) -> pa.Table:
    """The rows of a table that are about some nodes."""
    column = table["entity_id"]
    return table.filter(pc.is_in(column, value_set=pa.array(sorted(nodes), column.type)))


def to_rows(table: pa.Table) -> Iterator[ModelRegistrationProjection]:
    """The rows of a table."""
    return map(to_projection, table.to_pylist())


def to_projection(columns: dict[str, Any]) -> ModelRegistrationProjection:
    """One row; times may come in any zone, ids as bytes."""
    return ModelRegistrationProjection.model_validate(
        {name: _restored(name, value) for name, value in columns.items()}
    )


def _stored(field: pa.Field, values: Iterable[Any]) -> list[Any]:
    if field.name in JSON_COLUMNS:
        return [to_json(value).decode() for value in values]
    if field.type == _ID:
        return [value and value.bytes for value in values]
    return list(values)


def _restored(name: str, value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return UUID(bytes=bytes(value))
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return from_json(value) if name in JSON_COLUMNS else value

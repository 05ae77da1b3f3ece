"""A node of a bucket while it is folded, and the row that it amounts to.

A row's texts are taken from the events that gave them last, and parsed when the row is wanted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
from pydantic_core import from_json

from onex_platform.domain import machine
from onex_platform.domain.envelope import parse_payload
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import identify_node
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.row_fields import LIFE_FIELDS, Changes, changed, described, failed
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.event_schema import provenance_of, uuid_of
from onex_platform.projections.fold.row_columns import from_columns

Kind = EnumEventKind

# Columns of the events that give a row its texts.
DESCRIPTION = ("payload", "node_id", "tenant")
FAILURE = ("payload",)
ORIGIN = ("event_id", "correlation_id", "topic", "partition", "offset")
# Stands in a life for an event whose values the node keeps already.
KEPT = object()

_TIMES = tuple(name for name in LIFE_FIELDS if name not in ("tenant", "epoch"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ORIGIN_NAMES = (
    "last_applied_event_id",
    "correlation_id",
    "last_applied_topic",
    "last_applied_partition",
    "last_applied_offset",
)
_DESCRIBED = tuple(described(IntrospectionPayload(node_id="", node_type=EnumNodeType.EFFECT), None))
# Every field that is not always set, as it stands in a row where nothing set it.
_NOTHING: dict[str, Any] = {}
_BLANK = ModelRegistrationProjection.model_construct(**_NOTHING)


class Node:
    """A node of the bucket: its life, and the texts that its last events gave it."""

    __slots__ = ("base", "beaten", "description", "failure", "life", "origin", "wide")

    def __init__(self, base: ModelRegistrationProjection | None = None) -> None:
        self.base = base
        self.life = machine.NodeLife()
        self.wide = False
        self.beaten = False
        # Values of the columns above; None: what the base row says.
        self.description: tuple[Any, ...] | None = None
        self.failure: tuple[Any, ...] | None = None
        self.origin: tuple[Any, ...] | None = None
        if base is not None:
            life = self.life
            life.state = machine.STATE_CODES[base.current_state]
            life.position = base.last_applied_sequence
            life.tenant, life.epoch = base.tenant, base.epoch
            life.failed_by = KEPT if base.failure_code is not None else None
            for name in _TIMES:
                setattr(life, name, micros(getattr(base, name)))

    @property
    def is_changed(self) -> bool:
        return self.wide or self.beaten

    @property
    def has_moved_liveness(self) -> bool:
        """Whether the row's narrow part may be another one now."""
        base = self.base
        return (
            self.beaten
            or base is None
            or micros(base.liveness_deadline) != self.life.liveness_deadline
        )


def row_of(domain: str, entity_id: bytes, node: Node) -> ModelRegistrationProjection:
    """The node's row as it stands now."""
    life = node.life
    values: Changes = {name: _instant(getattr(life, name)) for name in _TIMES}
    values["tenant"], values["epoch"] = life.tenant, life.epoch
    values["current_state"] = machine.STATES[life.state]
    values["last_applied_sequence"] = life.position
    if node.origin is not None:
        values |= _changed(*node.origin)
    if node.description is not None:
        values |= _described(*node.description)
    if life.failed_by is None or node.failure is not None:
        values |= _failed(node)
    if node.base is not None:
        return node.base.model_copy(update=values)
    # Nothing is validated again: the values come from events that were, when they were read.
    values["entity_id"], values["domain"] = UUID(bytes=entity_id), domain
    return _BLANK.model_copy(update=values)


def columns_of(domain: str, new: dict[bytes, Node]) -> pa.Table:
    """The rows of nodes that had none before, as columns: without a model for each."""
    lives = [node.life for node in new.values()]
    said = [_described(*cast("Any", node.description)) for node in new.values()]
    failures = [_failed(node) for node in new.values()]
    origins = [cast("Any", node.origin) for node in new.values()]
    columns: dict[str, list[Any]] = {
        name: [getattr(life, name) for life in lives] for name in LIFE_FIELDS
    }
    columns |= {name: [values[name] for values in said] for name in _DESCRIBED}
    columns |= {name: [values[name] for values in failures] for name in failed(None)}
    columns |= {
        name: [values[place] for values in origins] for place, name in enumerate(_ORIGIN_NAMES)
    }
    columns["entity_id"] = list(new)
    columns["domain"] = [domain] * len(new)
    columns["current_state"] = [machine.STATES[life.state] for life in lives]
    columns["last_applied_sequence"] = [life.position for life in lives]
    return from_columns(columns)


def micros(moment: datetime | None) -> int | None:
    """An instant as the machine of a bucket has it."""
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + micros * _MICROSECOND


def _changed(
    event_id: bytes,
    correlation_id: bytes | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
) -> Changes:
    source = provenance_of({"topic": topic, "partition": partition, "offset": offset})
    return changed(UUID(bytes=event_id), source, uuid_of(correlation_id))


def _failed(node: Node) -> Changes:
    """What the last failure of a node left in it; nothing if a new life began since."""
    if node.life.failed_by is None or node.failure is None:
        return failed(None)
    payload = parse_payload(Kind.REGISTRATION_FAILED, from_json(node.failure[0]))
    return failed(cast("RegistrationFailedPayload", payload))


def _described(payload: str, node_id: str, tenant: str) -> Changes:
    parsed = parse_payload(Kind.NODE_INTROSPECTION, from_json(payload))
    return described(cast("IntrospectionPayload", parsed), identify_node(node_id, tenant).node_name)

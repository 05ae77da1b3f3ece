"""A node of a bucket while it is folded, and the row that it amounts to.

A row's texts are taken from the events that gave them last, and parsed when the row is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from onex_platform.domain import machine
from onex_platform.domain.envelope import kept_text, read_kept
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import plain_id
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.row_fields import LIFE_FIELDS, Changes, changed, described, failed
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.event_schema import provenance_of, uuid_of
from onex_platform.projections.fold.row_columns import (
    LIVENESS_SCHEMA,
    from_columns,
    to_projection,
)

Kind = EnumEventKind

# Columns of the events that give a row its texts.
DESCRIPTION = ("payload", "node_id")
FAILURE = ("payload",)
ORIGIN = ("event_id", "correlation_id", "topic", "partition", "offset")
# Stands in a life for an event whose values the node keeps already.
KEPT = object()

TIMES = tuple(name for name in LIFE_FIELDS if name not in ("tenant", "epoch"))
# What a life needs of a row besides.
_STANDING = ("current_state", "last_applied_sequence", "tenant", "epoch", "failure_code")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
ORIGIN_NAMES = (
    "last_applied_event_id",
    "correlation_id",
    "last_applied_topic",
    "last_applied_partition",
    "last_applied_offset",
)
DESCRIBED = tuple(described(IntrospectionPayload(node_id="", node_type=EnumNodeType.EFFECT), None))
# Every field that is not always set, as it stands in a row where nothing set it.
_NOTHING: dict[str, Any] = {}
_BLANK = ModelRegistrationProjection.model_construct(**_NOTHING)


class Node:
    """A node of the bucket: its life, and the texts that its last events gave it."""

    __slots__ = (
        "_base",
        "_deadline",
        "_stored",
        "beaten",
        "description",
        "failure",
        "life",
        "origin",
        "wide",
    )

    def __init__(self, base: ModelRegistrationProjection | None = None) -> None:
        self._base = base
        self._stored: Callable[[], ModelRegistrationProjection] | None = None
        self._deadline: int | None = None
        self.life = machine.NodeLife()
        self.wide = False
        self.beaten = False
        # Values of the columns above; None: what the base row says.
        self.description: tuple[Any, ...] | None = None
        self.failure: tuple[Any, ...] | None = None
        self.origin: tuple[Any, ...] | None = None
        if base is not None:
            values = {name: getattr(base, name) for name in _STANDING}
            self._begin(values | {name: micros(getattr(base, name)) for name in TIMES})

    @classmethod
    def stored(
        cls, values: Mapping[str, Any], stored: Callable[[], ModelRegistrationProjection]
    ) -> Node:
        """A node whose row becomes a model when it is asked for."""
        node = cls()
        node._stored = stored
        node._begin(values)
        return node

    def _begin(self, values: Mapping[str, Any]) -> None:
        life = self.life
        life.state = machine.STATE_CODES[values["current_state"]]
        life.position = values["last_applied_sequence"]
        life.failed_by = KEPT if values["failure_code"] is not None else None
        for name in LIFE_FIELDS:
            setattr(life, name, values[name])
        self._deadline = life.liveness_deadline

    @property
    def base(self) -> ModelRegistrationProjection | None:
        """The row as it stood before."""
        if self._base is None and self._stored is not None:
            self._base = self._stored()
        return self._base

    @property
    def is_new(self) -> bool:
        return self._base is None and self._stored is None

    @property
    def is_changed(self) -> bool:
        return self.wide or self.beaten

    @property
    def has_moved_liveness(self) -> bool:
        """Whether the row's narrow part may be another one now."""
        return self.beaten or self.is_new or self._deadline != self.life.liveness_deadline


def nodes_of(rows: pa.Table) -> dict[bytes, Node]:
    """The nodes of rows in columns; what only a changed row needs is read for that."""
    whole = cache(rows.to_pylist)
    names = (*_STANDING, *TIMES)
    columns = [rows[name].to_pylist() for name in _STANDING]
    columns += [rows[name].cast(pa.int64()).to_pylist() for name in TIMES]
    standing = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))

    def stored(place: int) -> ModelRegistrationProjection:
        return to_projection(whole()[place])

    return {
        entity_id: Node.stored(values, partial(stored, place))
        for place, (entity_id, values) in enumerate(
            zip(rows["entity_id"].to_pylist(), standing, strict=True)
        )
    }


def fold_fact(node: Node, fact: LogEvent) -> int:
    """Fold what was decided about a node onto it; the verdict."""
    verdict = machine.step(
        node.life,
        machine.KIND_CODES[fact.kind],
        fact.position,
        fact.tenant,
        fact.epoch,
        micros(fact.occurred_at),
        micros(fact.deadline),
        False,
        KEPT,
    )
    if verdict != machine.APPLIED or node.life.position != fact.position:
        return verdict
    node.wide = True
    correlation_id = fact.correlation_id and fact.correlation_id.bytes
    node.origin = (fact.event_id.bytes, correlation_id, None, None, None)
    if fact.kind is Kind.REGISTRATION_FAILED:
        node.failure = (kept_text(fact.kind, fact.payload),)
    return verdict


def row_of(domain: str, entity_id: bytes, node: Node) -> ModelRegistrationProjection:
    """The node's row as it stands now."""
    life = node.life
    values: Changes = {name: _instant(getattr(life, name)) for name in TIMES}
    values["tenant"], values["epoch"] = life.tenant, life.epoch
    values["current_state"] = machine.STATES[life.state]
    values["last_applied_sequence"] = life.position
    if node.origin is not None:
        values |= _changed(*node.origin)
    if node.description is not None:
        values |= _described(*node.description)
    values |= failure_of(node) or {}
    if (base := node.base) is not None:
        return base.model_copy(update=values)
    # Nothing is validated again: the values come from events that were, when they were read.
    values["entity_id"], values["domain"] = UUID(bytes=entity_id), domain
    return _BLANK.model_copy(update=values)


def columns_of(domain: str, new: dict[bytes, Node]) -> pa.Table:
    """The rows of nodes that had none before, as columns: without a model for each."""
    lives = [node.life for node in new.values()]
    said = [_described(*cast("Any", node.description)) for node in new.values()]
    failures = [failure_of(node) or failed(None) for node in new.values()]
    origins = [cast("Any", node.origin) for node in new.values()]
    columns: dict[str, list[Any]] = {
        name: [getattr(life, name) for life in lives] for name in LIFE_FIELDS
    }
    columns |= {name: [values[name] for values in said] for name in DESCRIBED}
    columns |= {name: [values[name] for values in failures] for name in failed(None)}
    columns |= {
        name: [values[place] for values in origins] for place, name in enumerate(ORIGIN_NAMES)
    }
    columns["entity_id"] = list(new)
    columns["domain"] = [domain] * len(new)
    columns["current_state"] = [machine.STATES[life.state] for life in lives]
    columns["last_applied_sequence"] = [life.position for life in lives]
    return from_columns(columns)


def liveness_of(domain: str, nodes: dict[bytes, Node]) -> pa.Table:
    """The part of rows that heartbeats move, as columns."""
    lives = [node.life for node in nodes.values()]
    columns: dict[str, list[Any]] = {
        "entity_id": list(nodes),
        "domain": [domain] * len(nodes),
        "last_applied_sequence": [life.position for life in lives],
        "last_heartbeat_at": [life.last_heartbeat_at for life in lives],
        "liveness_deadline": [life.liveness_deadline for life in lives],
    }
    return from_columns(columns, LIVENESS_SCHEMA)


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


def failure_of(node: Node) -> Changes | None:
    """What the last failure of a node left in it, nothing if a new life began since; None: what its
    base row says."""
    if node.life.failed_by is None:
        return failed(None)
    if node.failure is None:
        return None
    payload = read_kept(Kind.REGISTRATION_FAILED, node.failure[0])
    return failed(cast("RegistrationFailedPayload", payload))


def _described(payload: str, node_id: str) -> Changes:
    parsed = read_kept(Kind.NODE_INTROSPECTION, payload)
    return described(cast("IntrospectionPayload", parsed), plain_id(node_id))

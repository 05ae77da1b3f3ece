"""The fold over columns: what the Spark reducer does with one bucket of the log.

Runs of heartbeats collapse (`steps.py`); everything else goes through the domain's state machine,
one short step per event, and only the event that described a node last is parsed. Work is linear in
the events, also for a node that has them all; memory is that of the bucket's nodes and one chunk,
however long the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
from pydantic_core import from_json

from onex_platform.domain import machine
from onex_platform.domain.batch import Decider, RowChange
from onex_platform.domain.decider import decide
from onex_platform.domain.envelope import parse_payload
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import DECLARED, is_declared
from onex_platform.domain.fold import LIFE_FIELDS, Changes, changed, described, failed
from onex_platform.domain.identity import identify_node
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType, EnumOutcome
from onex_platform.pages.schema import provenance_of, to_event, uuid_of
from onex_platform.projections.columns import from_columns, to_table
from onex_platform.projections.steps import NO_EPOCH, Chunk

Kind = EnumEventKind

_TIMES = tuple(name for name in LIFE_FIELDS if name not in ("tenant", "epoch"))
_REFUSED = frozenset(
    code
    for code, verdict in enumerate(machine.VERDICTS)
    if verdict.outcome in (EnumOutcome.ILLEGAL, EnumOutcome.PARKED)
)
_HEARTBEAT = machine.KIND_CODES[Kind.NODE_HEARTBEAT]
_DECLARED = frozenset(machine.KIND_CODES[kind] for kind in DECLARED)
_CAUSES = frozenset(
    machine.KIND_CODES[kind]
    for kind in (Kind.NODE_INTROSPECTION, Kind.NODE_ACK, Kind.NODE_SHUTDOWN)
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_KEPT = object()  # stands in a life for an event whose values the node keeps already

# Every field that is not always set, as it stands in a row where nothing set it.
_NOTHING: dict[str, Any] = {}
_BLANK = ModelRegistrationProjection.model_construct(**_NOTHING)

_DESCRIPTION = ("payload", "node_id", "tenant")
_DESCRIBED = tuple(described(IntrospectionPayload(node_id="", node_type=EnumNodeType.EFFECT), None))
_FAILURE = ("payload",)
_ORIGIN = ("event_id", "correlation_id", "topic", "partition", "offset")
_ORIGIN_NAMES = (
    "last_applied_event_id",
    "correlation_id",
    "last_applied_topic",
    "last_applied_partition",
    "last_applied_offset",
)


@dataclass(frozen=True, slots=True)
class Refused:
    """Events without effect, for the audit; a run of heartbeats is one entry with its count."""

    event: dict[str, Any]
    state: int
    verdict: int
    times: int


class _Node:
    """A node of the bucket: its life, and the texts that its last events gave it."""

    __slots__ = ("base", "beaten", "description", "failure", "life", "origin", "wide")

    def __init__(self, base: ModelRegistrationProjection | None = None) -> None:
        self.base = base
        self.life = machine.NodeLife()
        self.wide = False
        self.beaten = False
        # Values of the columns below; None: what the base row says.
        self.description: tuple[Any, ...] | None = None
        self.failure: tuple[Any, ...] | None = None
        self.origin: tuple[Any, ...] | None = None
        if base is not None:
            life = self.life
            life.state = machine.STATE_CODES[base.current_state]
            life.position = base.last_applied_sequence
            life.tenant, life.epoch = base.tenant, base.epoch
            life.failed_by = _KEPT if base.failure_code is not None else None
            for name in _TIMES:
                setattr(life, name, _micros(getattr(base, name)))


class BucketFold:
    """Folds the events of one bucket, chunk after chunk in log order.

    `rows` are the bucket's current rows, as far as the events may touch them; more may come with
    `meet`, before their first events. With a decider, what it decides is folded right behind its
    cause and collected in `facts`. A live run also collects what was refused, and which of the
    facts that were declared took effect.
    """

    def __init__(
        self,
        domain: str,
        rows: Iterable[ModelRegistrationProjection] = (),
        decider: Decider | None = None,
        *,
        live: bool = False,
    ) -> None:
        self.facts: list[LogEvent] = []
        self.announced: list[LogEvent] = []
        self.refused: list[Refused] = []
        self._domain = domain
        self._decider = decider
        self._live = live
        self._nodes: dict[bytes, _Node] = {}
        self.meet(rows)
        self._emitted: set[UUID] = set()
        self._verdicts = [0] * len(machine.VERDICTS)

    @property
    def outcomes(self) -> Counter[EnumOutcome]:
        counts: Counter[EnumOutcome] = Counter()
        for verdict, count in zip(machine.VERDICTS, self._verdicts, strict=True):
            if count:
                counts[verdict.outcome] += count
        return counts

    def strangers(self, entity_ids: Iterable[bytes]) -> set[bytes]:
        """Of nodes, those that the fold has not met."""
        return set(entity_ids) - self._nodes.keys()

    def meet(self, rows: Iterable[ModelRegistrationProjection]) -> None:
        """Take in the rows of nodes that the fold has not met."""
        self._nodes |= {row.entity_id.bytes: _Node(row) for row in rows}

    def feed(self, changes: pa.Table, beats: pa.Table) -> None:
        """Fold a chunk: the events that may change a state, and the heartbeats among them."""
        interval = None if self._decider is None else self._decider.policy.request_interval
        chunk = Chunk(changes, beats, interval)
        self._verdicts[machine.DUPLICATE] += chunk.duplicates
        self._keep_texts(chunk, self._walk(chunk))

    def changes(self) -> Iterator[RowChange]:
        """The rows that the chunks changed."""
        for entity_id, node in self._nodes.items():
            if not (node.wide or node.beaten):
                continue
            base = node.base
            yield RowChange(
                row=self._row_of(entity_id, node),
                wide=node.wide,
                liveness=node.beaten
                or base is None
                or _micros(base.liveness_deadline) != node.life.liveness_deadline,
            )

    def rows(self) -> Iterator[ModelRegistrationProjection]:
        """Every row of the bucket as it stands after the chunks, changed or not."""
        return self._rows_of(self._nodes)

    def _rows_of(self, nodes: dict[bytes, _Node]) -> Iterator[ModelRegistrationProjection]:
        for entity_id, node in nodes.items():
            if node.base is not None and not (node.wide or node.beaten):
                yield node.base
            elif node.life.state != machine.UNKNOWN:
                yield self._row_of(entity_id, node)

    def table(self) -> pa.Table:
        """`rows` as columns, sorted by node; those of new nodes without a model for each."""
        held: dict[bytes, _Node] = {}
        new: dict[bytes, _Node] = {}
        for entity_id, node in self._nodes.items():
            if node.base is not None:
                held[entity_id] = node
            elif node.life.state != machine.UNKNOWN:
                new[entity_id] = node
        tables = [to_table(self._rows_of(held)), self._columns_of(new)]
        return pa.concat_tables(tables).sort_by("entity_id")

    def _columns_of(self, new: dict[bytes, _Node]) -> pa.Table:
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
        columns["domain"] = [self._domain] * len(new)
        columns["current_state"] = [machine.STATES[life.state] for life in lives]
        columns["last_applied_sequence"] = [life.position for life in lives]
        return from_columns(columns)

    def withdraw(self, event_ids: Container[UUID]) -> None:
        """Take back requests, which changed nothing, that turn out to have been made before."""
        kept = [fact for fact in self.facts if fact.event_id not in event_ids]
        self._verdicts[machine.APPLIED] -= len(self.facts) - len(kept)
        self.facts = kept

    def _walk(self, chunk: Chunk) -> list[_Node]:
        touched: list[_Node] = []
        refused: list[tuple[int, int, int, int]] = []
        declared: list[int] = []
        verdicts, tenants, nodes = self._verdicts, chunk.tenants, self._nodes
        entity, node, entity_id = -1, _Node(), b""
        for step in chunk.steps():
            code, kind, position, tenant, epoch, occurred_at, deadline, retry, times, source = step
            if code != entity:
                entity, entity_id = code, chunk.entity_ids[code]
                node = nodes.get(entity_id) or nodes.setdefault(entity_id, _Node())
                touched.append(node)
            verdict = machine.step(
                node.life,
                kind,
                position,
                tenants[tenant],
                None if epoch == NO_EPOCH else epoch,
                occurred_at,
                deadline,
                bool(retry),
                source,
            )
            verdicts[verdict] += times
            if verdict == machine.APPLIED:
                if kind == _HEARTBEAT:
                    node.beaten = True
                elif node.life.position == position:
                    node.wide = True
                if self._live and kind in _DECLARED:
                    declared.append(source)
            elif self._live and verdict in _REFUSED:
                refused.append((source, node.life.state, verdict, times))
            if self._decider is not None and _may_decide(node.life, kind, verdict):
                self._decide(entity_id, node, chunk, source)
        for row in chunk.rows(declared):
            self._announce(row)
        rows = chunk.rows([source for source, *_ in refused])
        self.refused += [Refused(row, *how) for row, (_, *how) in zip(rows, refused, strict=True)]
        return touched

    def _announce(self, row: dict[str, Any]) -> None:
        if is_declared(Kind(row["kind"]), row["topic"], row["cause_id"]):
            self.announced.append(to_event(row, self._domain))

    def _decide(self, entity_id: bytes, node: _Node, chunk: Chunk, source: int) -> None:
        decider = cast("Decider", self._decider)
        self._keep_texts(chunk, [node])
        event = to_event(chunk.row(source), self._domain)
        row = None
        if node.life.state != machine.UNKNOWN:
            row = self._row_of(entity_id, node)
        for fact in decide(row, event, decider.policy, decider.now):
            if fact.event_id in self._emitted or fact.event_id in decider.known_facts:
                continue
            self._emitted.add(fact.event_id)
            self.facts.append(fact)
            self._fold_fact(node, fact)

    def _fold_fact(self, node: _Node, fact: LogEvent) -> None:
        verdict = machine.step(
            node.life,
            machine.KIND_CODES[fact.kind],
            fact.position,
            fact.tenant,
            fact.epoch,
            _micros(fact.occurred_at),
            _micros(fact.deadline),
            False,
            _KEPT,
        )
        self._verdicts[verdict] += 1
        if verdict != machine.APPLIED or node.life.position != fact.position:
            return
        node.wide = True
        correlation_id = fact.correlation_id and fact.correlation_id.bytes
        node.origin = (fact.event_id.bytes, correlation_id, None, None, None)
        if fact.kind is Kind.REGISTRATION_FAILED:
            node.failure = (fact.payload.model_dump_json(),)

    def _keep_texts(self, chunk: Chunk, nodes: list[_Node]) -> None:
        """Take from the chunk what its events gave to these nodes, before the chunk is dropped."""
        for node, values in _news(chunk, nodes, "described_by", _DESCRIPTION):
            node.description = values
        for node, values in _news(chunk, nodes, "failed_by", _FAILURE):
            node.failure = values
        for node, values in _news(chunk, nodes, "changed_by", _ORIGIN):
            node.origin = values

    def _row_of(self, entity_id: bytes, node: _Node) -> ModelRegistrationProjection:
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
        values["entity_id"], values["domain"] = UUID(bytes=entity_id), self._domain
        return _BLANK.model_copy(update=values)


def _may_decide(life: machine.NodeLife, kind: int, verdict: int) -> bool:
    """Whether the decider could have an answer; asking it costs a row and an event."""
    if kind == _HEARTBEAT:
        over = life.state == machine.UNKNOWN or life.is_over()
        return over and verdict != machine.FOREIGN
    return verdict == machine.APPLIED and kind in _CAUSES


def _news(
    chunk: Chunk, nodes: list[_Node], name: str, columns: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[Any, ...]]]:
    """The nodes that an event of this chunk gave new values, with the values."""
    new = [node for node in nodes if isinstance(getattr(node.life, name), int)]
    sources = [getattr(node.life, name) for node in new]
    for node, values in zip(new, chunk.values(sources, columns), strict=True):
        setattr(node.life, name, _KEPT)
        yield node, values


def _changed(
    event_id: bytes,
    correlation_id: bytes | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
) -> Changes:
    source = provenance_of({"topic": topic, "partition": partition, "offset": offset})
    return changed(UUID(bytes=event_id), source, uuid_of(correlation_id))


def _failed(node: _Node) -> Changes:
    """What the last failure of a node left in it; nothing if a new life began since."""
    if node.life.failed_by is None or node.failure is None:
        return failed(None)
    payload = parse_payload(Kind.REGISTRATION_FAILED, from_json(node.failure[0]))
    return failed(cast("RegistrationFailedPayload", payload))


def _described(payload: str, node_id: str, tenant: str) -> Changes:
    parsed = parse_payload(Kind.NODE_INTROSPECTION, from_json(payload))
    return described(cast("IntrospectionPayload", parsed), identify_node(node_id, tenant).node_name)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + micros * _MICROSECOND

"""Nodes to which the same happens are folded together: one stands in for all of them.

When a herd joins, acknowledges or leaves, its nodes differ in ids, names and instants, and nothing
that happens depends on these. So a node that stands in for the others goes through the machine and
the decider, as any node does; what comes of it is a pattern, and columns fill in what differs. An
instant that differs can be handed on by the machine, but not compared. Whoever is not plainly like
many others, and whoever raises here, is left to the walk.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json, to_json

from onex_platform.domain import machine
from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy, concern, decide
from onex_platform.domain.envelope import UPCASTERS, read_kept
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import fact_id, fact_ids, plain_id
from onex_platform.domain.payloads import IntrospectionPayload, ModelNodeCapabilities, Payload
from onex_platform.domain.row_fields import LIFE_FIELDS, described
from onex_platform.engines.postgres.columns import id_texts
from onex_platform.ingest.admission.column_values import ID
from onex_platform.ingest.event_schema import LOG_SCHEMA, to_event, to_row
from onex_platform.projections.fold.event_runs import Chunk
from onex_platform.projections.fold.node_state import (
    DESCRIBED,
    ORIGIN,
    ORIGIN_NAMES,
    TIMES,
    Node,
    failure_of,
    fold_fact,
    micros,
    row_of,
)
from onex_platform.projections.fold.row_columns import (
    JSON_COLUMNS,
    STATE_SCHEMA,
    to_projection,
)
from onex_platform.projections.write.outbox import FACT_SCHEMA, envelope_of

# A pattern costs as much as some steps of the walk.
WORTHWHILE = 16

# The fields that every description has as the log keeps it, and its capabilities among them.
_WHOLE, _CAPABLE = (
    IntrospectionPayload.model_fields.keys(),
    ModelNodeCapabilities.model_fields.keys(),
)
_CAPABILITIES = DESCRIBED.index("capabilities")

# What stands in for what differs. A text that has it already is left to the walk.
_STANDS_IN = "5ca1ab1e-0000-5000-8000-00000000000"
_NODE_ID = f"{_STANDS_IN}0 stands in"
_ENTITY, _CAUSE, _CORRELATION = (UUID(f"{_STANDS_IN}{digit}") for digit in range(1, 4))

_NOW = "occurred_at"


class _Varying(int):
    """An instant that differs from node to node, under its column's name."""

    column: str

    @classmethod
    def of(cls, value: int, column: str) -> _Varying:
        varying = cls(value)
        varying.column = column
        return varying

    def _compared(self, _: object) -> NoReturn:
        raise TypeError(f"What follows depends on {self.column}, which differs from node to node")

    __lt__ = __le__ = __gt__ = __ge__ = _compared


@dataclass(slots=True)
class _Alike:
    """Nodes that are alike: their events, their rows if they have some, what the events say."""

    sources: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    said: list[tuple[Any, ...]] = field(default_factory=list)


class Group(NamedTuple):
    """What became of nodes that are alike."""

    nodes: list[bytes]
    sources: list[int]
    rows: pa.Table
    facts: pa.Table
    verdicts: list[int]  # each once for every node
    has_moved_liveness: bool


class _Pattern(NamedTuple):
    """What became of the one that stands in: how it ends, and which facts follow."""

    event: LogEvent
    node: Node
    facts: list[LogEvent]
    verdicts: list[int]


def groups_of(
    chunk: Chunk, candidates: Sequence[int], held: pa.Table, decider: Decider, domain: str
) -> list[Group]:
    """The groups among these changes, each of which is its node's only event.

    `held` are the rows of the nodes that have one.
    """
    if not len(candidates):
        return []
    groups = []
    for key, alike in _by_likeness(chunk, candidates, held, decider).items():
        if len(alike.sources) < WORTHWHILE or _STANDS_IN in repr(key):
            continue
        try:
            groups.append(_Filling(chunk.changes, alike, held, decider, domain).group())
        except Exception:  # noqa: S112 - the walk finds out whose fault it is, if it is anyone's
            continue
    return groups


def _filled(text: str, columns: Mapping[str, pa.Array]) -> pa.Array:
    """A text of the one that stands in, as it is for each of the others."""
    parts = re.split(f"({'|'.join(map(re.escape, columns))})", text)
    spelled = pc.binary_join_element_wise(*(columns.get(part, part) for part in parts), "")
    if isinstance(spelled, pa.Scalar):
        raise ValueError("the text names nobody")
    return spelled


def _escaped(texts: pa.ChunkedArray) -> pa.Array:
    """Texts as they stand between the quotes of JSON."""
    return pa.array([to_json(text)[1:-1].decode() for text in texts.to_pylist()], pa.string())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _by_likeness(
    chunk: Chunk, candidates: Sequence[int], held: pa.Table, decider: Decider
) -> Mapping[Any, _Alike]:
    """The candidates, by all that what becomes of them depends on."""
    places = {entity: place for place, entity in enumerate(held["entity_id"].to_pylist())}
    standing = list(
        zip(
            *(held[name].to_pylist() for name in ("current_state", "tenant", "epoch")),
            *(held[name].is_null().to_pylist() for name in (*TIMES, "failure_code")),
            strict=True,
        )
    )
    positions = held["last_applied_sequence"].to_pylist()
    latest = micros(decider.now) or 0
    events = chunk.changes.take(pa.array(candidates, pa.int64()))
    names = ("kind", "tenant", "node_id", "payload", "epoch", "entity_id", "position")
    columns = [events[name].to_pylist() for name in names]
    instants = events["occurred_at"].cast(pa.int64()).to_pylist()
    odd = pc.or_(events["deadline"].is_valid(), events["node_id"].is_null()).to_pylist()
    uncorrelated = events["correlation_id"].is_null().to_pylist()
    read = _Reader(decider.policy).read
    found: defaultdict[Any, _Alike] = defaultdict(_Alike)
    for source, instant, is_odd, alone, kind, tenant, node_id, text, epoch, entity, position in zip(
        candidates, instants, odd, uncorrelated, *columns, strict=True
    ):
        place = places.get(entity)
        if is_odd or instant > latest or (place is not None and position <= positions[place]):
            continue
        try:
            concerned, said = read(kind, tenant, node_id, text)
        except Exception:  # noqa: S112 - the walk names it
            continue
        stands = None if place is None else standing[place]
        alike = found[kind, tenant, epoch, alone, stands, concerned]
        alike.sources.append(source)
        if place is not None:
            alike.places.append(place)
        if said is not None:
            alike.said.append(said)
    return found


class _Reader:
    """Reads what events say, which were validated when they entered the log: what a description
    makes the policy think is asked of a model, and once for all descriptions that are the same."""

    def __init__(self, policy: RegistrationPolicy) -> None:
        self._policy = policy
        self._concerns: dict[Any, Hashable] = {}

    def read(
        self, kind: str, tenant: str, node_id: str, text: str
    ) -> tuple[Hashable, tuple[Any, ...] | None]:
        """What of an event concerns the decider, and what an introspection says of its node."""
        fields = from_json(text)
        if kind != EnumEventKind.NODE_INTROSPECTION:
            return concern(tenant, self._model(kind, fields), self._policy), None
        # One that the log has in an older version is for the model to lift.
        newest = UPCASTERS.current_version(EnumEventKind.NODE_INTROSPECTION) == 1
        whole = newest and fields.keys() >= _WHOLE and fields["capabilities"].keys() >= _CAPABLE
        payload = SimpleNamespace(**fields) if whole else self._model(kind, fields)
        values = described(cast("IntrospectionPayload", payload), plain_id(node_id))
        said = tuple(
            to_json(value).decode() if name in JSON_COLUMNS else value
            for name, value in values.items()
        )
        judged = (tenant, values["node_type"], values["node_version"], said[_CAPABILITIES])
        if judged not in self._concerns:
            self._concerns[judged] = concern(tenant, self._model(kind, fields), self._policy)
        return self._concerns[judged], said

    def _model(self, kind: str, fields: dict[str, Any]) -> Payload:
        return read_kept(EnumEventKind(kind), fields)


class _Filling:
    """Fills the pattern of some nodes that are alike with what differs among them."""

    def __init__(
        self, changes: pa.Table, alike: _Alike, held: pa.Table, decider: Decider, domain: str
    ) -> None:
        self._alike = alike
        self._domain = domain
        self._decider = decider
        self._events = changes.take(pa.array(alike.sources, pa.int64()))
        self._held = held.take(pa.array(alike.places, pa.int64())) if alike.places else None
        self._pattern = self._stand_in()

    def group(self) -> Group:
        events, pattern = self._events, self._pattern
        texts = {
            _NODE_ID: _escaped(events["node_id"]),
            str(_ENTITY): id_texts(_whole(events["entity_id"])),
            str(_CAUSE): id_texts(_whole(events["event_id"])),
            str(_CORRELATION): id_texts(_whole(events["correlation_id"])),
        }
        ids = {fact.event_id.bytes: self._fact_ids(fact, texts) for fact in pattern.facts}
        facts = [
            self._fact_columns(fact, ids[fact.event_id.bytes], texts) for fact in pattern.facts
        ]
        return Group(
            nodes=events["entity_id"].to_pylist(),
            sources=self._alike.sources,
            rows=self._rows(ids),
            facts=pa.concat_tables([FACT_SCHEMA.empty_table(), *facts]),
            verdicts=pattern.verdicts,
            has_moved_liveness=self._moves_liveness(),
        )

    def _stand_in(self) -> _Pattern:
        """What becomes of the first of them, if its ids and instants were anybody's."""
        source = self._alike.sources[0]
        said = self._events.slice(0, 1).to_pylist()[0]
        said |= {"entity_id": _ENTITY.bytes, "event_id": _CAUSE.bytes, "node_id": _NODE_ID}
        if said["correlation_id"] is not None:
            said["correlation_id"] = _CORRELATION.bytes
        event = to_event(said, self._domain)
        node = Node()
        if self._held is not None:
            row = self._held.slice(0, 1).to_pylist()[0] | {"entity_id": _ENTITY.bytes}
            node = Node(to_projection(row))
            for name in TIMES:
                if (value := getattr(node.life, name)) is not None:
                    setattr(node.life, name, _Varying.of(value, name))
        verdict = machine.step(
            node.life,
            machine.KIND_CODES[event.kind],
            event.position,
            event.tenant,
            event.epoch,
            _Varying.of(micros(event.occurred_at) or 0, _NOW),
            ref=source,
        )
        if verdict != machine.APPLIED or node.life.position != event.position:
            raise ValueError("the event changes nothing")
        node.origin = tuple(said[name] for name in ORIGIN)
        if node.life.described_by == source:
            node.description = (said["payload"], _NODE_ID)
        row = row_of(self._domain, _ENTITY.bytes, node)
        facts = decide(row, event, self._decider.policy, self._decider.now)
        verdicts = [verdict, *(fold_fact(node, fact) for fact in facts)]
        return _Pattern(event, node, facts, verdicts)

    def _fact_ids(self, fact: LogEvent, texts: Mapping[str, pa.Array]) -> pa.Array:
        epoch = cast("int", fact.epoch)
        if fact.event_id != fact_id(_ENTITY, epoch, fact.kind, str(_CAUSE)):
            raise ValueError("the fact's id does not follow from its cause")
        entities, causes = (texts[str(name)].to_pylist() for name in (_ENTITY, _CAUSE))
        ids = fact_ids(entities, epoch, fact.kind, causes)
        known = self._decider.known_facts
        if known and any(UUID(bytes=item) in known for item in ids):
            raise ValueError("some of these facts are known")
        return pa.array(ids, ID)

    def _fact_columns(
        self, fact: LogEvent, ids: pa.Array, texts: Mapping[str, pa.Array]
    ) -> pa.Table:
        row = to_row(fact)
        columns = {name: self._repeated(value, name) for name, value in row.items()}
        columns |= {name: self._events[name] for name in ("entity_id", "node_id", "correlation_id")}
        columns["cause_id"] = self._events["event_id"]
        columns["event_id"] = ids
        columns["position"] = self._positions(fact.position)
        columns["payload"] = _filled(row["payload"], texts)
        envelope, own_id = envelope_of(fact).model_dump_json(), str(fact.event_id)
        if envelope.count(own_id) != 1:
            raise ValueError("a text has the id of the one that stands in")
        columns["envelope"] = _filled(envelope, {**texts, own_id: id_texts(ids)})
        return pa.table(columns, schema=FACT_SCHEMA)

    def _rows(self, ids: Mapping[bytes, pa.Array]) -> pa.Table:
        node, events, held = self._pattern.node, self._events, self._held
        columns = {} if held is None else dict(zip(held.column_names, held.columns, strict=True))
        for name in LIFE_FIELDS:
            value = getattr(node.life, name)
            if not isinstance(value, _Varying):
                columns[name] = self._repeated(value, name)
            elif value.column == _NOW:
                columns[name] = events[_NOW]
            elif held is not None:
                columns[name] = held[value.column]
        columns["entity_id"] = events["entity_id"]
        columns["domain"] = self._repeated(self._domain, "domain")
        columns["current_state"] = self._repeated(machine.STATES[node.life.state], "current_state")
        columns["last_applied_sequence"] = self._positions(node.life.position)
        if node.description is not None:
            said = zip(*self._alike.said, strict=True)
            columns |= {
                name: pa.array(values, pa.string())
                for name, values in zip(DESCRIBED, said, strict=True)
            }
        if (failure := failure_of(node)) is not None:
            columns |= {name: self._repeated(value, name) for name, value in failure.items()}
        origin = cast("tuple[Any, ...]", node.origin)
        for name, source, value in zip(ORIGIN_NAMES, ORIGIN, origin, strict=True):
            by_fact = origin[0] in ids
            columns[name] = self._repeated(value, name) if by_fact else events[source]
        if origin[0] in ids:
            columns["last_applied_event_id"] = ids[origin[0]]
            columns["correlation_id"] = events["correlation_id"]
        return pa.table(
            [columns[field.name].cast(field.type) for field in STATE_SCHEMA], schema=STATE_SCHEMA
        )

    def _moves_liveness(self) -> bool:
        """Whether the rows' narrow part may be another one now."""
        if self._held is None:
            return True
        deadline = self._pattern.node.life.liveness_deadline
        if deadline is None:
            return bool(self._held["liveness_deadline"][0].is_valid)
        return not isinstance(deadline, _Varying)

    def _positions(self, position: int) -> pa.ChunkedArray:
        """Places as far behind the causes as this one is behind the first's."""
        return pc.add(self._events["position"], position - self._pattern.event.position)

    def _repeated(self, value: Any, name: str) -> pa.Array:
        kind = (LOG_SCHEMA if name in LOG_SCHEMA.names else STATE_SCHEMA).field(name).type
        return pa.repeat(pa.scalar(value, kind), len(self._events))

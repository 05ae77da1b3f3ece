"""Does the topic say what the rows say? Both are read as entity and version, never as a whole.

Both move while they are compared, so the order of reading decides what is a fault:

1. the topic, up to its ends (one small entry per entity stays in memory);
2. the rows, and which of them wait in the outbox. What does not wait was published before, so
3. the topic's tail must have it. Only then is a row's record missing, or behind.
4. Rows once more, those that the topic seemed to be ahead of. Only now is it ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.engines.kafka import Positions, read_to_end, written_positions
from onex_platform.engines.postgres import Engine, stream
from onex_platform.resilience import CircuitBreaker
from onex_platform.settings import Settings
from onex_platform.snapshots.records import published_state
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig

_ROWS = """
    SELECT
        entity_id,
        row_version,
        deregistered_at IS NOT NULL AS closed,
        entity_id IN (
            SELECT entity_id FROM outbox WHERE domain = %(domain)s AND entry <> 'event'
        ) AS waiting
    FROM registration_projections
    WHERE domain = %(domain)s AND (%(ids)s::uuid[] IS NULL OR entity_id = ANY(%(ids)s))"""


class EnumSnapshotFault(StrEnum):
    """How the topic's last record of an entity can differ from its row."""

    MISSING = "missing"
    OLDER = "older"
    NOT_TOMBSTONED = "not_tombstoned"
    TOMBSTONED = "tombstoned"
    UNKNOWN = "unknown"
    AHEAD = "ahead"


class State(NamedTuple):
    """A version, and whether the entity is gone in it."""

    version: int
    closed: bool


class Fault(NamedTuple):
    """What an entity's row is, what the topic has, and what is wrong about that."""

    entity_id: UUID
    kind: EnumSnapshotFault
    row: State | None
    record: State | None


@dataclass(slots=True)
class TopicComparison:
    """What was compared and found."""

    rows: int = 0
    equal: int = 0
    waiting: int = 0
    foreign_records: int = 0
    faults: list[Fault] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Faults by kind; every kind is there."""
        found = Counter(fault.kind for fault in self.faults)
        return {kind.value: found[kind] for kind in EnumSnapshotFault}


class _Topic:
    """The last state of each key, as far as it was read; a key that was never written has none."""

    def __init__(self, settings: Settings, config: ModelSnapshotTopicConfig) -> None:
        self._settings, self._topics = settings, [config.topic]
        self._position: Positions = {}
        self.states: dict[UUID, State] = {}
        self.foreign = 0

    def read_on(self, only: Collection[UUID] | None = None) -> None:
        """Go on to the end of now; transactions that are under way are waited for."""
        ends = written_positions(self._settings, self._topics)
        for message in read_to_end(self._settings, self._topics, self._position, ends):
            state = published_state(message)
            if state is None:
                self.foreign += 1
            elif only is None or state.entity_id in only:
                self.states[state.entity_id] = State(state.version, state.is_tombstone)
        self._position = ends


def compare(
    settings: Settings,
    engine: Engine,
    breaker: CircuitBreaker,
    config: ModelSnapshotTopicConfig,
    entities: Collection[UUID] | None = None,
) -> TopicComparison:
    """Compare every row of the domain with the topic, or those of some entities."""
    topic, result = _Topic(settings, config), TopicComparison()
    topic.read_on(entities)
    suspects: dict[UUID, State | None] = {}
    unseen = set(topic.states)
    for row in _rows(engine, breaker, config.domain, entities):
        result.rows += 1
        unseen.discard(row.entity_id)
        state = State(row.row_version, row.closed)
        if _fault_of(state, topic.states.get(row.entity_id)) is None:
            result.equal += 1
        elif row.waiting:
            result.waiting += 1
        else:
            suspects[row.entity_id] = state
    suspects |= dict.fromkeys(key for key in unseen if not topic.states[key].closed)
    if suspects:
        topic.read_on(suspects.keys())
    result.foreign_records = topic.foreign
    leading = []
    for key, suspect in suspects.items():
        fault = _fault_of(suspect, record := topic.states.get(key))
        if fault is None:
            result.equal += suspect is not None
        elif fault in (EnumSnapshotFault.AHEAD, EnumSnapshotFault.UNKNOWN):
            leading.append(key)
        else:
            result.faults.append(Fault(key, fault, suspect, record))
    now = {
        row.entity_id: State(row.row_version, row.closed)
        for row in (_rows(engine, breaker, config.domain, leading) if leading else ())
    }
    for key in leading:
        present, published = now.get(key), topic.states[key]
        if present is not None and present.version >= published.version:
            result.equal += 1
            continue
        kind = EnumSnapshotFault.UNKNOWN if present is None else EnumSnapshotFault.AHEAD
        result.faults.append(Fault(key, kind, present, published))
    return result


def _rows(
    engine: Engine, breaker: CircuitBreaker, domain: str, ids: Iterable[UUID] | None
) -> Iterator[Any]:
    chosen = None if ids is None else list(ids)
    return stream(engine, breaker, _ROWS, {"domain": domain, "ids": chosen}, rows_per_fetch=5000)


def _fault_of(row: State | None, record: State | None) -> EnumSnapshotFault | None:
    """What is wrong if both were read at one moment."""
    if row is None:
        return None if record is None or record.closed else EnumSnapshotFault.UNKNOWN
    if record is None:  # Kafka drops tombstones after a while
        return None if row.closed else EnumSnapshotFault.MISSING
    if record.version > row.version:
        return EnumSnapshotFault.AHEAD
    if record.closed != row.closed:
        closed = row.closed
        return EnumSnapshotFault.NOT_TOMBSTONED if closed else EnumSnapshotFault.TOMBSTONED
    return EnumSnapshotFault.OLDER if record.version < row.version else None

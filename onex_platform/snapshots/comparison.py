"""Does the topic say what the rows say? Both are read as entity and version, and if asked for with
a digest of their contents, never as a whole.

Both move while they are compared, so the order of reading decides what is a fault:

1. the topic, up to its ends (one small entry per entity stays in memory);
2. the rows, and which of them wait in the outbox; then what they say, where versions are equal: a
   version has one content. What does not wait was published before, so
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
from onex_platform.engines.postgres import Cursor, Engine, stream, transaction
from onex_platform.resilience import CircuitBreaker
from onex_platform.settings import Settings
from onex_platform.snapshots.contents import digest_of
from onex_platform.snapshots.records import (
    RowState,
    published_state,
    read_rows,
    read_rows_after,
)
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig

_ROWS_AT_ONCE = 2000
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
    DIFFERENT = "different"  # the same version, but other contents


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
    contents: int = 0  # of how many rows the contents were compared
    foreign_records: int = 0
    faults: list[Fault] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Faults by kind; every kind is there."""
        found = Counter(fault.kind for fault in self.faults)
        return {kind.value: found[kind] for kind in EnumSnapshotFault}


class _Topic:
    """The last state of each key, as far as it was read; a key that was never written has none."""

    def __init__(
        self, settings: Settings, config: ModelSnapshotTopicConfig, *, contents: bool
    ) -> None:
        self._settings, self._topics = settings, [config.topic]
        self._contents = contents
        self._position: Positions = {}
        self.states: dict[UUID, State] = {}
        self.digests: dict[UUID, bytes] = {}
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
                if self._contents and (value := message.value()) is not None:
                    self.digests[state.entity_id] = digest_of(value)
        self._position = ends


def compare(
    settings: Settings,
    engine: Engine,
    breaker: CircuitBreaker,
    config: ModelSnapshotTopicConfig,
    entities: Collection[UUID] | None = None,
    *,
    contents: bool = False,
) -> TopicComparison:
    """Compare every row of the domain with the topic, or those of some entities.

    With `contents` also what they say, which takes some three times as long.
    """
    topic, result = _Topic(settings, config, contents=contents), TopicComparison()
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
    doubted: dict[UUID, _Said] = {}
    if contents:
        with transaction(engine, breaker) as cursor:
            rows = _whole_rows(cursor, config.domain, entities)
            doubted = _differing_contents(rows, topic, result)
    if suspects or doubted:
        topic.read_on(suspects.keys() | doubted.keys())
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
    for key, said in doubted.items():
        state = topic.states[key]
        if said.differs(state, topic.digests[key]):
            result.equal -= 1
            result.faults.append(Fault(key, EnumSnapshotFault.DIFFERENT, state, state))
    return result


class _Said(NamedTuple):
    """A row's version, and the digest of what it says then."""

    version: int
    digest: bytes

    def differs(self, record: State | None, digest: bytes | None) -> bool:
        """Whether a record of this very version says something else."""
        return record == State(self.version, closed=False) and digest != self.digest


def _differing_contents(
    rows: Iterable[RowState], topic: _Topic, result: TopicComparison
) -> dict[UUID, _Said]:
    """The open rows that the topic has in their version, but with other contents."""
    doubted = {}
    for key_text, version, value in rows:
        key = UUID(key_text)
        if value is None or topic.states.get(key) != State(int(version), closed=False):
            continue
        result.contents += 1
        said = _Said(int(version), digest_of(value))
        if said.differs(topic.states[key], topic.digests[key]):
            doubted[key] = said
    return doubted


def _whole_rows(cursor: Cursor, domain: str, ids: Collection[UUID] | None) -> Iterator[RowState]:
    """Piece by piece, and each is read before it is used: a statement has a time limit."""
    if ids is not None:
        with read_rows(cursor, domain, ids) as rows:
            chosen = list(rows)
        yield from chosen
        return
    last = str(UUID(int=0))
    while True:
        with read_rows_after(cursor, domain, last, _ROWS_AT_ONCE) as rows:
            piece = list(rows)
        if not piece:
            return
        yield from piece
        last, _, _ = piece[-1]


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

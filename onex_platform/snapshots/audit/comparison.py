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
from typing import NamedTuple, cast
from uuid import UUID

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import Positions, read_to_end, written_positions
from onex_platform.engines.postgres.database import Cursor, Database
from onex_platform.projections.snapshot_rows import (
    RowState,
    read_rows,
    read_rows_after,
    row_versions,
)
from onex_platform.projections.write import outbox
from onex_platform.snapshots.audit.topic_states import (
    EnumSnapshotFault,
    Fault,
    State,
    TopicStates,
    digest_of,
)
from onex_platform.snapshots.snapshot_records import published_state
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig

_ROWS_AT_ONCE = 2000
_LEADING = (EnumSnapshotFault.AHEAD, EnumSnapshotFault.UNKNOWN)


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
    """What the topic says, as far as it was read."""

    def __init__(
        self, settings: Settings, config: ModelSnapshotTopicConfig, *, contents: bool
    ) -> None:
        self._settings, self._config = settings, config
        self._contents = contents
        self._position: Positions = {}
        self.states = TopicStates()
        self.foreign = 0

    def read_on(self, only: Collection[UUID] | None = None) -> None:
        """Go on to the end of now; transactions that are under way are waited for."""
        topics = [self._config.topic]
        ends = written_positions(self._settings, topics)
        for message in read_to_end(self._settings, topics, self._position, ends):
            found = published_state(message, self._config.domain, by_value=self._contents)
            if found is None or not found.has_header:
                self.foreign += 1
            if found is not None and (only is None or found.entity_id in only):
                state = State(found.version, found.is_tombstone)
                value, partition = message.value(), cast("int", message.partition())
                digest = digest_of(value) if self._contents and value is not None else None
                self.states.take(found.entity_id, state, partition, digest)
        self._position = ends


def compare(
    settings: Settings,
    database: Database,
    config: ModelSnapshotTopicConfig,
    entities: Collection[UUID] | None = None,
    *,
    contents: bool = False,
) -> TopicComparison:
    """Compare every row of the domain with the topic, or those of some entities.

    With `contents` also what they say, which takes some three times as long.
    """
    topic, result = _Topic(settings, config, contents=contents), TopicComparison()
    states = topic.states
    topic.read_on(entities)
    suspects: dict[UUID, State | None] = {}
    unseen = set(states.entities())
    for row in row_versions(database, config.domain, entities):
        result.rows += 1
        unseen.discard(row.entity_id)
        state = State(row.row_version, row.closed)
        if states.fault_of(row.entity_id, state) is None:
            result.equal += 1
        elif row.waiting:
            result.waiting += 1
        else:
            suspects[row.entity_id] = state
    unknown = {key for key in unseen if states.fault_of(key, None) is not None}
    with database.transaction() as cursor:
        on_their_way = outbox.waiting_among(cursor, config.domain, unknown)
    result.waiting += len(on_their_way)
    suspects |= dict.fromkeys(unknown - on_their_way)
    doubted: dict[UUID, _Said] = {}
    if contents:
        with database.transaction() as cursor:
            rows = _whole_rows(cursor, config.domain, entities)
            doubted = _differing_contents(rows, states, result)
    if suspects or doubted:
        topic.read_on(suspects.keys() | doubted.keys())
    result.foreign_records = topic.foreign
    leading = []
    for key, suspect in suspects.items():
        fault = states.fault_of(key, suspect)
        if fault is None:
            result.equal += suspect is not None
        elif fault.kind in _LEADING:
            leading.append(key)
        else:
            result.faults.append(fault)
    now = {
        row.entity_id: State(row.row_version, row.closed)
        for row in (row_versions(database, config.domain, leading) if leading else ())
    }
    for key in leading:
        fault = states.fault_of(key, now.get(key))
        if fault is not None and fault.kind in _LEADING:
            result.faults.append(fault)
        else:  # the row has moved on, too
            result.equal += 1
    for key, said in doubted.items():
        if states.says(key, *said) is False:
            result.equal -= 1
            state = State(said.version, closed=False)
            result.faults.append(Fault(key, EnumSnapshotFault.DIFFERENT, state, state))
    return result


class _Said(NamedTuple):
    """An open row's version, and the digest of what it says then."""

    version: int
    digest: bytes


def _differing_contents(
    rows: Iterable[RowState], states: TopicStates, result: TopicComparison
) -> dict[UUID, _Said]:
    """The open rows that the topic has in their version, but with other contents."""
    doubted = {}
    for key_text, version, value, _ in rows:
        if value is None:
            continue
        key, said = UUID(key_text), _Said(int(version), digest_of(value))
        is_same = states.says(key, *said)
        result.contents += is_same is not None
        if is_same is False:
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
        last = piece[-1][0]

"""Columns become steps of the state machine: runs of heartbeats collapse, the rest stays as it is.

A run is what comes between two other events of a node, from one tenant and for one epoch: nothing
in it can change a state, so its latest time and its latest deadline say all that the fold needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import to_json

from onex_platform.domain.envelope import read_kept
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.machine import KIND_CODES, KINDS
from onex_platform.domain.payloads import RegistrationFailedPayload
from onex_platform.ingest.event_schema import BEAT_COLUMNS, LOG_SCHEMA

Integers = NDArray[np.int64]

_HEARTBEAT = KIND_CODES[EnumEventKind.NODE_HEARTBEAT]
_FAILED = KIND_CODES[EnumEventKind.REGISTRATION_FAILED]
_KIND_NAMES = pa.array([kind.value for kind in KINDS])
NO_EPOCH = -1
# What is told of an event that is left out.
_TOLD = (*BEAT_COLUMNS, "kind")
# What is not read of a heartbeat.
_BARE_BEAT: dict[str, Any] = {
    **dict.fromkeys(LOG_SCHEMA.names),
    "kind": EnumEventKind.NODE_HEARTBEAT.value,
    "duplicate": False,
}

_NOTHING = np.zeros(0, dtype=np.int64)


# One step of the machine, a plain tuple because there are millions: entity, kind, position, tenant,
# epoch (NO_EPOCH: the event names none), occurred_at, deadline, retry_eligible, how many events it
# stands for, and its source: a row of the changes or, counted down from -1, of the heartbeats (the
# first of its run).
Step = tuple[int, int, int, int, int, int, int, int, int, int]


class ChunkError(Exception):
    """The events of a chunk can't be read together; which of them is at fault is not known."""


class Chunk:
    """A chunk of one bucket's log: the events that may change a state, and the heartbeats."""

    def __init__(
        self, changes: pa.Table, beats: pa.Table, request_interval: timedelta | None = None
    ) -> None:
        """With a `request_interval`, a run ends where an interval does, so that whatever is
        decided once per interval finds its cause."""
        self.duplicates = int(pc.sum(changes["duplicate"]).as_py() or 0)
        self.changes = (
            changes.filter(pc.invert(changes["duplicate"])) if self.duplicates else changes
        )
        self.beats = beats
        self._interval = request_interval
        self._change_rows: list[dict[str, Any]] | None = None
        self.entity_ids, change_entity, beat_entity = _coded(
            self.changes["entity_id"], beats["entity_id"]
        )
        self.tenants, change_tenant, beat_tenant = _coded(self.changes["tenant"], beats["tenant"])
        self._kinds = _integers(pc.index_in(self.changes["kind"], _KIND_NAMES))
        self._change_codes = (change_entity, change_tenant)
        self._beat_codes = (beat_entity, beat_tenant)

    def row(self, source: int) -> dict[str, Any]:
        """The event behind a step, as a row of a page; of a heartbeat with what was read of it, and
        with the least that is a payload."""
        if source < 0:
            return _whole_beat(self.beats.slice(-1 - source, 1).to_pylist()[0])
        return self.change_rows()[source]

    def change_rows(self) -> list[dict[str, Any]]:
        """The events that may change a state, as rows of a page."""
        if self._change_rows is None:
            try:
                self._change_rows = self.changes.to_pylist()
            except (ValueError, OverflowError) as error:
                raise ChunkError(f"{type(error).__name__}: {error}") from error
        return self._change_rows

    def rows(self, sources: list[int]) -> list[dict[str, Any]]:
        """The events behind some steps; cheaper than one by one."""
        if self._change_rows is None:
            changes = [source for source in sources if source >= 0]
            taken = iter(self.changes.take(pa.array(changes, pa.int64())).to_pylist())
        else:
            taken = iter([self._change_rows[source] for source in sources if source >= 0])
        beats = [-1 - source for source in sources if source < 0]
        bare = iter(self.beats.take(pa.array(beats, pa.int64())).to_pylist())
        return [next(taken) if source >= 0 else _whole_beat(next(bare)) for source in sources]

    def values(self, sources: list[int], columns: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
        """Some columns of the changes at `sources`."""
        if self._change_rows is not None:
            rows = self._change_rows
            return [tuple(rows[source][name] for name in columns) for source in sources]
        taken = self.changes.select(columns).take(pa.array(sources, pa.int64()))
        return zip(*(column.to_pylist() for column in taken.columns), strict=True)

    def lone_changes(self, kinds: Collection[int], known: Collection[bytes]) -> list[int]:
        """The changes of some kinds that are all that a node has here; of no node that is known."""
        entity = self._change_codes[0]
        events = np.bincount(np.concatenate([entity, self._beat_codes[0]]))
        strange = np.array([entity_id not in known for entity_id in self.entity_ids], dtype=bool)
        lone = (events[entity] == 1) & strange[entity] & np.isin(self._kinds, list(kinds))
        sources: list[int] = np.flatnonzero(lone).tolist()
        return sources

    def steps(self, done: Integers = _NOTHING) -> Iterator[Step]:
        """All steps, entity by entity, in the order of the log; but for changes that are done."""
        left = np.ones(len(self.changes), dtype=bool)
        left[done] = False
        changes = [column[left] for column in self._change_columns()]
        beats = self._beat_columns()
        columns = [np.concatenate(pair) for pair in zip(changes, beats, strict=True)]
        order = _sorted_by(columns[0], columns[2])
        entity, kind, position, tenant, epoch, occurred_at, deadline, retry, source = (
            column[order] for column in columns
        )
        # A change stands alone: its kind and its source tell it from both neighbours.
        alone = np.where(kind == _HEARTBEAT, -1, source)
        keys = [entity, tenant, epoch, alone]
        if self._interval is not None:
            keys.append(occurred_at // (self._interval // timedelta(microseconds=1)))
        starts = _run_starts(keys)
        if not len(starts):
            return iter(())
        ends = np.append(starts[1:], len(order)) - 1
        steps = (
            entity[starts],
            kind[starts],
            position[ends],
            tenant[starts],
            epoch[starts],
            np.maximum.reduceat(occurred_at, starts),
            np.maximum.reduceat(deadline, starts),
            retry[starts],
            ends - starts + 1,
            source[starts],
        )
        return zip(*(column.tolist() for column in steps), strict=True)

    def _change_columns(self) -> tuple[Integers, ...]:
        table = self.changes
        entity, tenant = self._change_codes
        kind = self._kinds
        retry = np.zeros(len(table), dtype=np.int64)
        for row in np.flatnonzero(kind == _FAILED):
            failure = read_kept(
                EnumEventKind.REGISTRATION_FAILED, table["payload"][int(row)].as_py()
            )
            retry[row] = cast("RegistrationFailedPayload", failure).retry_eligible
        return (
            entity,
            kind,
            _integers(table["position"]),
            tenant,
            _integers(table["epoch"], NO_EPOCH),
            _integers(table["occurred_at"]),
            _integers(table["deadline"]),
            retry,
            np.arange(len(table)),
        )

    def _beat_columns(self) -> tuple[Integers, ...]:
        table = self.beats
        entity, tenant = self._beat_codes
        return (
            entity,
            np.full(len(table), _HEARTBEAT, dtype=np.int64),
            _integers(table["position"]),
            tenant,
            _integers(table["epoch"], NO_EPOCH),
            _integers(table["occurred_at"]),
            _integers(table["deadline"]),
            np.zeros(len(table), dtype=np.int64),
            -1 - np.arange(len(table)),
        )


class LeftOut(NamedTuple):
    """What is left of a chunk without some nodes, and what was theirs: how many duplicates, and of
    each node's other events the first, with how many they are."""

    changes: pa.Table
    beats: pa.Table
    duplicates: int
    firsts: list[tuple[dict[str, Any], int]]


def leave_out(changes: pa.Table, beats: pa.Table, nodes: Collection[bytes]) -> LeftOut:
    """A chunk without the events of some nodes."""
    changes, their_changes = _divided(changes, nodes)
    beats, their_beats = _divided(beats, nodes)
    duplicates = int(pc.sum(their_changes["duplicate"]).as_py() or 0)
    theirs = their_changes.filter(pc.invert(their_changes["duplicate"])).select(_TOLD)
    beat = pa.array([EnumEventKind.NODE_HEARTBEAT.value] * len(their_beats), pa.string())
    theirs = pa.concat_tables(
        [theirs, their_beats.select(BEAT_COLUMNS).append_column(theirs.schema.field("kind"), beat)]
    )
    return LeftOut(changes, beats, duplicates, _firsts(theirs))


def _firsts(events: pa.Table) -> list[tuple[dict[str, Any], int]]:
    """Each node's first event, and how many it has; of many events only these become objects."""
    if not len(events):
        return []
    codes = events["entity_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((events["position"].to_numpy(), codes))
    _, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    rows = events.take(pa.array(order[starts])).to_pylist()
    return list(zip(rows, counts.tolist(), strict=True))


def only(changes: pa.Table, beats: pa.Table, nodes: Collection[bytes]) -> tuple[pa.Table, pa.Table]:
    """The events of some nodes alone."""
    return _divided(changes, nodes)[1], _divided(beats, nodes)[1]


def _divided(table: pa.Table, nodes: Collection[bytes]) -> tuple[pa.Table, pa.Table]:
    """Without the nodes, and of them alone."""
    column = table["entity_id"]
    theirs = pc.is_in(column, value_set=pa.array(sorted(nodes), column.type))
    return table.filter(pc.invert(theirs)), table.filter(theirs)


def _whole_beat(row: dict[str, Any]) -> dict[str, Any]:
    return _BARE_BEAT | {"payload": to_json({"node_id": row.get("node_id")})} | row


def _run_starts(keys: list[Integers]) -> Integers:
    if not len(keys[0]):
        return np.zeros(0, dtype=np.int64)
    differs = np.zeros(len(keys[0]), dtype=bool)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differs)


def _sorted_by(entity: Integers, position: Integers) -> Integers:
    """The order by entity, then by position; small numbers are sorted by their digits."""
    order = np.argsort(position, kind="stable")
    codes = entity[order]
    if len(codes) and codes.max() < 1 << 16:
        codes = codes.astype(np.uint16)
    ordered: Integers = order[np.argsort(codes, kind="stable")]
    return ordered


def _coded(one: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[list[Any], Integers, Integers]:
    """Values of two columns as numbers into one list."""
    both = pa.chunked_array([*one.chunks, *other.chunks], type=one.type).combine_chunks()
    encoded = both.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), codes[: len(one)], codes[len(one) :]


def _integers(column: pa.ChunkedArray, missing: int = 0) -> Integers:
    """A column as 64-bit integers; instants become microseconds since 1970."""
    values: Integers = pc.fill_null(column.cast(pa.int64()), missing).to_numpy()
    return values.astype(np.int64, copy=False)

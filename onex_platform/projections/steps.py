"""Columns become steps of the state machine: runs of heartbeats collapse, the rest stays as it is.

A run is what comes between two other events of a node, from one tenant and for one epoch: nothing
in it can change a state, so its latest time and its latest deadline say all that the fold needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import from_json, to_json

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.machine import KIND_CODES, KINDS
from onex_platform.pages.schema import LOG_SCHEMA

Integers = NDArray[np.int64]

_HEARTBEAT = KIND_CODES[EnumEventKind.NODE_HEARTBEAT]
_FAILED = KIND_CODES[EnumEventKind.REGISTRATION_FAILED]
_KIND_NAMES = pa.array([kind.value for kind in KINDS])
NO_EPOCH = -1
# What is not read of a heartbeat.
_BARE_BEAT: dict[str, Any] = {
    **dict.fromkeys(LOG_SCHEMA.names),
    "kind": EnumEventKind.NODE_HEARTBEAT.value,
    "duplicate": False,
}


class Step(NamedTuple):
    """One step of the machine. `source` is the row it stands for: of the changes, or, counted down
    from -1, of the heartbeats (the first of its run)."""

    entity: int
    kind: int
    position: int
    tenant: int
    epoch: int  # NO_EPOCH: the event names none
    occurred_at: int
    deadline: int
    retry_eligible: int
    times: int  # how many events the step stands for
    source: int


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
        self._change_columns = (change_entity, change_tenant)
        self._beat_columns = (beat_entity, beat_tenant)

    def row(self, source: int) -> dict[str, Any]:
        """The event behind a step, as a row of a page; of a heartbeat with what was read of it, and
        with the least that is a payload."""
        if source < 0:
            row: dict[str, Any] = self.beats.slice(-1 - source, 1).to_pylist()[0]
            return _BARE_BEAT | {"payload": to_json({"node_id": row.get("node_id")})} | row
        if self._change_rows is None:
            self._change_rows = self.changes.to_pylist()
        return self._change_rows[source]

    def values(self, sources: list[int], columns: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
        """Some columns of the changes at `sources`."""
        if self._change_rows is not None:
            rows = self._change_rows
            return [tuple(rows[source][name] for name in columns) for source in sources]
        taken = self.changes.select(columns).take(pa.array(sources, pa.int64()))
        return zip(*(column.to_pylist() for column in taken.columns), strict=True)

    def steps(self) -> Iterator[Step]:
        """All steps, entity by entity, in the order of the log."""
        changes, runs = self._change_steps(), self._runs()
        columns = [np.concatenate(pair) for pair in zip(changes, runs, strict=True)]
        order = np.lexsort((columns[2], columns[0]))
        return map(Step._make, zip(*(column[order].tolist() for column in columns), strict=True))

    def _change_steps(self) -> tuple[Integers, ...]:
        table = self.changes
        entity, tenant = self._change_columns
        kind = _integers(pc.index_in(table["kind"], _KIND_NAMES))
        retry = np.zeros(len(table), dtype=np.int64)
        for row in np.flatnonzero(kind == _FAILED):
            retry[row] = bool(from_json(table["payload"][int(row)].as_py())["retry_eligible"])
        return (
            entity,
            kind,
            _integers(table["position"]),
            tenant,
            _integers(table["epoch"], NO_EPOCH),
            _integers(table["occurred_at"]),
            _integers(table["deadline"]),
            retry,
            np.ones(len(table), dtype=np.int64),
            np.arange(len(table)),
        )

    def _runs(self) -> tuple[Integers, ...]:
        entity, tenant = self._beat_columns
        position = _integers(self.beats["position"])
        order = np.lexsort((position, entity))
        entity, tenant, position = entity[order], tenant[order], position[order]
        epoch = _integers(self.beats["epoch"], NO_EPOCH)[order]
        occurred_at = _integers(self.beats["occurred_at"])[order]
        keys = [entity, tenant, epoch, self._segments(entity, position)]
        if self._interval is not None:
            keys.append(occurred_at // (self._interval // timedelta(microseconds=1)))
        starts = _run_starts(keys)
        if not len(starts):
            return tuple(np.zeros((10, 0), dtype=np.int64))
        ends = np.append(starts[1:], len(order)) - 1
        return (
            entity[starts],
            np.full(len(starts), _HEARTBEAT, dtype=np.int64),
            position[ends],
            tenant[starts],
            epoch[starts],
            np.maximum.reduceat(occurred_at, starts),
            np.maximum.reduceat(_integers(self.beats["deadline"])[order], starts),
            np.zeros(len(starts), dtype=np.int64),
            ends - starts + 1,
            -1 - order[starts],
        )

    def _segments(self, entity: Integers, position: Integers) -> Integers:
        """How many changes of its node come before each heartbeat."""
        changed_entity, _ = self._change_columns
        changed_position = _integers(self.changes["position"])
        marks = (
            np.concatenate([changed_entity, entity]),
            np.concatenate([changed_position, position]),
        )
        order = np.lexsort((marks[1], marks[0]))
        is_change = order < len(changed_entity)
        before = np.empty(len(order), dtype=np.int64)
        before[order] = np.cumsum(is_change)
        return before[len(changed_entity) :]


def _run_starts(keys: list[Integers]) -> Integers:
    if not len(keys[0]):
        return np.zeros(0, dtype=np.int64)
    differs = np.zeros(len(keys[0]), dtype=bool)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differs)


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

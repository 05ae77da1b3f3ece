"""What a log's pages look like: their rows, and what is known of a page without reading them.

The log itself knows neither who writes it nor what the events mean. Whoever writes a log supplies a
`PageLayout`, and may specialise `PageMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AwareDatetime, BaseModel, ConfigDict

# Arrow's texts are at most 2 GB in one array; payloads that may become more are widened before.
_WIDE_BYTES = 2**30


class RowGroupKey(NamedTuple):
    """What one group of rows in a page holds."""

    bucket: int
    lane: int
    events: int


class SequenceRange(NamedTuple):
    """The first and the last number that a writer gave to its events in a page."""

    first: int
    last: int


class PageMetadata(BaseModel):
    """What is known of a page without reading its events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_id: UUID
    domain: str  # the name of the log
    writer_id: str
    reason: str  # why the page was written, in the words of the log's writers
    buckets: int  # how many the log is divided into, not how many are in here
    period: AwareDatetime  # the partition of time that the page belongs to
    min_position: int
    max_position: int
    start_time: AwareDatetime
    end_time: AwareDatetime
    event_count: int
    row_groups: tuple[RowGroupKey, ...]
    packed: bool = False  # each lane is one row group of the file
    payload_bytes: int = 0  # not encoded; 0 also in pages from before they were counted
    counters: dict[str, int] = {}  # of the events, what the layout counts
    sequences: dict[str, SequenceRange] = {}  # by writer, in logs whose writers number their events
    merged_from: UUID | None = None  # one of the pages that a merged one replaces
    schema_version: int = 1
    format: str = "parquet"
    compression: str = "zstd"

    @property
    def bucket_numbers(self) -> list[int]:
        return sorted({group.bucket for group in self.row_groups})

    @property
    def lanes(self) -> list[int]:
        """The lanes that have rows here."""
        return sorted({group.lane for group in self.row_groups})


def _one_lane(rows: pa.Table) -> Sequence[pa.Table]:
    return [rows]


def _no_counters(_: pa.Table) -> Mapping[str, int]:
    return {}


class SequenceColumns(NamedTuple):
    """The columns that hold an event's writer, and the number that it gave to the event."""

    writer: str
    number: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLayout:
    """The rows of a log's pages. It travels to the workers, so its functions are module-level.

    `lanes` divides a bucket's rows into those that are read apart from each other; within a lane
    rows are sorted by the columns in `sort_by`. `moment_of` tells when a position was given.
    """

    schema: pa.Schema
    sort_by: tuple[str, ...]
    moment_of: Callable[[int], datetime]
    metadata: type[PageMetadata] = PageMetadata
    merge_reason: str = "compaction"
    position: str = "position"
    time: str = "occurred_at"
    payload: str = "payload"
    sequence: SequenceColumns | None = None
    lanes: Callable[[pa.Table], Sequence[pa.Table]] = _one_lane
    counters: Callable[[pa.Table], Mapping[str, int]] = _no_counters
    # Of unique or rising values, a dictionary would only be built and dropped.
    dictionary_columns: tuple[str, ...] = ()
    statistics_columns: tuple[str, ...] = ()

    def columns(self, names: Sequence[str] | None = None) -> pa.Schema:
        """The schema of some columns, or of all."""
        return self.schema if names is None else pa.schema([self.schema.field(n) for n in names])

    def describe(self, first: int, last: int) -> str:
        """A range of positions and of log time, for people."""
        times = [
            self.moment_of(place).isoformat(timespec="milliseconds") for place in (first, last)
        ]
        return f"positions {first} to {last}, {times[0]} to {times[1]}"

    def sorted(self, rows: pa.Table) -> pa.Table:
        """The rows in a lane's order; those that are in it already need not be copied."""
        keys = [_sort_key(rows[name].combine_chunks()) for name in reversed(self.sort_by)]
        order = np.lexsort(keys)
        in_order = (order[1:] > order[:-1]).all()
        return rows if in_order else rows.take(pa.array(order))

    def sequences(self, rows: pa.Table) -> dict[str, SequenceRange]:
        """The range of numbers of each writer's events."""
        if self.sequence is None:
            return {}
        writer, number = self.sequence
        ranges = rows.group_by(writer).aggregate([(number, "min"), (number, "max")])
        bounds = zip(
            ranges[writer].to_pylist(),
            ranges[f"{number}_min"].to_pylist(),
            ranges[f"{number}_max"].to_pylist(),
            strict=True,
        )
        return {name: SequenceRange(first, last) for name, first, last in bounds}

    def widened(self, rows: pa.Table) -> pa.Table:
        """Rows that can be gathered into one array, however large their payloads are together."""
        payloads = rows[self.payload]
        if payloads.nbytes <= _WIDE_BYTES:
            return rows
        place = rows.schema.get_field_index(self.payload)
        wide = pa.large_string() if pa.types.is_string(payloads.type) else pa.large_binary()
        return rows.set_column(place, self.payload, payloads.cast(wide))

    def stretches(self, rows: pa.Table, most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
        """The rows one after the other, in parts of so many rows and bytes of payload at most.

        A row that is larger is a part of its own.
        """
        ends = np.cumsum(pc.binary_length(rows[self.payload]).to_numpy(), dtype=np.int64)
        start = done = 0
        while start < len(rows):
            fitting = int(np.searchsorted(ends, done + most_bytes, side="right"))
            end = min(max(fitting, start + 1), start + most_rows)
            part = rows.slice(start, end - start)
            # A slice keeps the offsets of the whole, which may be too wide to be cast.
            yield part if part.schema == self.schema else _copied(part).cast(self.schema)
            start, done = end, int(ends[end - 1])


def ranks(values: pa.Array) -> NDArray[np.int64]:
    """The place of each value among the distinct ones, in their order."""
    encoded = values.dictionary_encode()
    places = np.empty(len(encoded.dictionary), np.int64)
    places[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(places))
    ranked: NDArray[np.int64] = places[encoded.indices.to_numpy()]
    return ranked


def _sort_key(values: pa.Array) -> NDArray[np.int64]:
    """Numbers by which the values are sorted; numbers serve as they are."""
    if pa.types.is_integer(values.type):
        numbers: NDArray[np.int64] = values.to_numpy()
        return numbers
    return ranks(values)


def _copied(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array(np.arange(len(rows))))

"""How many records a cut may have, so that no task has to hold too many bytes, and how a task sees
to it that it never does.

Kafka tells how many records lie between two offsets, not how large they are. So a cut is tried, and
each task tells its load: bytes needed ÷ bytes allowed. A cut with a load above
one is not taken, but a smaller one instead; and the next cuts go by what was learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

_Part = TypeVar("_Part")
# How many bytes a task may read, and how many records it has to; asked when it may be too much.
Bounds = Callable[[pa.RecordBatch], tuple[float, int]]
# Records differ: a cut that fits exactly by calculation would not fit half of the time.
_MARGIN = 0.8
# How fast cuts may grow again; the load of a small one tells little about a large one.
_GROWTH = 16


class CutSizer:
    """How many records the next cut may have."""

    def __init__(self, most_records: int) -> None:
        self._limit = most_records
        self.most_records = most_records

    def learn(self, records: int, load: float) -> None:
        """A cut of so many records was tried, and led to this load."""
        if not records:
            return
        fitting = max(1, int(_MARGIN * records / max(load, 1 / self._limit)))
        if load > 1:
            self.most_records = fitting
        elif self.most_records < self._limit:
            self.most_records = min(fitting, self.most_records * _GROWTH, self._limit)


class OverloadError(Exception):
    """A task would have to read more than it may; `load` is bytes needed ÷ bytes allowed."""

    def __init__(self, load: float) -> None:
        super().__init__(load)
        self.load = load


def watched(
    batches: Iterable[pa.RecordBatch], at_least: float, bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    """The batches, as long as they are not too many bytes; `at_least` so many are not."""
    size = records = 0
    for batch in batches:
        size += batch.nbytes
        records += len(batch)
        if len(batch) and size > at_least:
            most, expected = bounds(batch)
            if size > most:
                raise OverloadError(size / most * max(1, expected / records))
        yield batch


def sliced(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """A large batch in parts: Spark counts records, however large they are."""
    rows = max(1, len(batch) * most_bytes // max(1, batch.nbytes))
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def gathered(
    parts: Iterable[_Part], enough: int, size_of: Callable[[_Part], int]
) -> Iterator[list[_Part]]:
    """Parts in their order, as many at once as are enough bytes."""
    waiting: list[_Part] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += size_of(part)
        if size >= enough:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting

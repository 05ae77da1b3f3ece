"""Batches of records on their way through a task: sliced, gathered, and not too many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

_Part = TypeVar("_Part")
# How many bytes a task may read, and how many records it has to; asked when it may be too much.
Bounds = Callable[[pa.RecordBatch], tuple[float, int]]


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

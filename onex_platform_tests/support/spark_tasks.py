"""Spark's part without Spark: tasks run here, where a test can break the code that they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa

Work = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class _Row(dict[str, Any]):
    """What a task reported, by name or by attribute."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class _Frame:
    def __init__(self, partitions: list[list[pa.RecordBatch]]) -> None:
        self._partitions = partitions

    def mapInArrow(self, work: Work, _schema: object) -> _Frame:  # noqa: N802 - Spark's name
        return _Frame([list(work(batches)) for batches in self._partitions])

    def collect(self) -> list[_Row]:
        return list(self._rows())

    def _rows(self) -> Iterator[_Row]:
        for batches in self._partitions:
            for batch in batches:
                yield from map(_Row, batch.to_pylist())


class _Tasks:
    def range(self, start: int, end: int, step: int, partitions: int) -> _Frame:
        numbers = list(range(start, end, step))
        return _Frame(
            [
                [pa.record_batch({"id": numbers[first::partitions]})]
                for first in range(min(partitions, len(numbers)))
            ]
        )


# As much of a session as replays and the reducer use.
IN_THIS_PROCESS = cast("Any", _Tasks())

"""Histories in files, with their own times: the columns of Spark's Kafka source, Parquet or NDJSON.

Partitions and offsets are those that a broker would have given the records. In NDJSON the bytes are
in base64, which Spark's JSON reader turns back into the same binary columns. A file appears under
its name only when it is complete.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, count, islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from onex_platform.base.errors import ConfigurationError
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.records import Headers, Record, Summary
from onex_platform.simulate.wire import time_text

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
COMPRESSION = "zstd"
ROWS_PER_GROUP = 32_768


class Offsets:
    """Numbers the records of each partition from 0."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, int], Iterator[int]] = defaultdict(count)

    def take(self, topic: str, partition: int) -> int:
        return next(self._counts[topic, partition])


class _Writer(Protocol):
    def write(self, records: list[Record]) -> None: ...

    def close(self) -> None: ...


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(path, SCHEMA, compression=COMPRESSION)
        self._offsets = Offsets()

    def write(self, records: list[Record]) -> None:
        self._file.write_batch(_batch(records, self._offsets), row_group_size=ROWS_PER_GROUP)

    def close(self) -> None:
        self._file.close()


class _NdjsonWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="ascii")
        self._offsets = Offsets()

    def write(self, records: list[Record]) -> None:
        self._file.writelines(_line(record, self._offsets) for record in records)

    def close(self) -> None:
        self._file.close()


_WRITERS: Mapping[str, Callable[[Path], _Writer]] = {
    ".parquet": _ParquetWriter,
    ".ndjson": _NdjsonWriter,
    ".jsonl": _NdjsonWriter,
}


def write_file(
    fleet: Fleet, path: Path, on_progress: Callable[[Fleet], None] | None = None
) -> Summary:
    """Write the fleet's whole history to `path`; the suffix chooses the format."""
    with _complete_or_absent(path) as writer:
        for records in _groups(fleet):
            writer.write(records)
            if on_progress is not None:
                on_progress(fleet)
    return fleet.summary()


@contextmanager
def _complete_or_absent(path: Path) -> Iterator[_Writer]:
    open_writer = _WRITERS.get(path.suffix)
    if open_writer is None:
        raise ConfigurationError(
            f"{path.name} has no suffix that names a format.",
            hint=f"Call the file *{' or *'.join(_WRITERS)}.",
        )
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = open_writer(unfinished)
        try:
            try:
                yield writer
            finally:
                writer.close()
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {error.strerror or error}.",
            hint="Choose a folder that is yours and has space.",
        ) from error


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    left = iter(records)
    while group := list(islice(left, ROWS_PER_GROUP)):
        yield group


def _batch(records: list[Record], offsets: Offsets) -> pa.RecordBatch:
    taken = [offsets.take(record.topic, record.partition) for record in records]
    return pa.record_batch(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.array([record.topic for record in records], pa.string()),
            pa.array([record.partition for record in records], pa.int32()),
            pa.array(taken, pa.int64()),
            pa.array([record.time_ms for record in records], SCHEMA.field("timestamp").type),
            pa.array([record.append_time for record in records], pa.bool_()).cast(pa.int32()),
            _headers([record.headers for record in records]),
        ],
        schema=SCHEMA,
    )


def _headers(rows: Sequence[Headers]) -> pa.Array:
    """Lists of pairs, put together by their lengths; no header at all is null, as Spark has it."""
    lengths = [len(headers) for headers in rows]
    flat = list(chain.from_iterable(rows))
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        ["key", "value"],
    )
    ends = pa.array(accumulate(lengths, initial=0), pa.int32(), size=len(rows) + 1)
    return pa.ListArray.from_arrays(ends, pairs, mask=pa.array([n == 0 for n in lengths]))


def _line(record: Record, offsets: Offsets) -> str:
    """One row as JSON; nothing in it needs escaping, so it is put together by hand, for speed."""
    headers = ",".join(
        f'{{"key":"{name}","value":"{_base64(value)}"}}' for name, value in record.headers
    )
    value = "null" if record.value is None else f'"{_base64(record.value)}"'
    return (
        f'{{"key":"{_base64(record.key)}","value":{value},"topic":"{record.topic}"'
        f',"partition":{record.partition},"offset":{offsets.take(record.topic, record.partition)}'
        f',"timestamp":"{time_text(record.time_ms)}","timestampType":{record.append_time:d}'
        f',"headers":{f"[{headers}]" if headers else "null"}}}\n'
    )


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")

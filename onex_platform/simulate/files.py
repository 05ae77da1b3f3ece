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
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from onex_platform.errors import ConfigurationError
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
ROWS_PER_GROUP = 65_536
_BYTES_PER_GROUP = 64 * 1024 * 1024


class Offsets:
    """The next offset of each partition."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)

    def take(self, record: Record) -> int:
        place = record.topic, record.partition
        offset = self._next[place]
        self._next[place] = offset + 1
        return offset


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
    """Lists of records, bounded in number and in bytes."""
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.value or b"")
        if len(group) == ROWS_PER_GROUP or size > _BYTES_PER_GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _batch(records: list[Record], offsets: Offsets) -> pa.RecordBatch:
    columns = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    return pa.record_batch(
        [
            pa.array(columns["key"], pa.binary()),
            pa.array(columns["value"], pa.binary()),
            pa.array(columns["topic"], pa.string()),
            pa.array(columns["partition"], pa.int32()),
            pa.array(map(offsets.take, records), pa.int64(), size=len(records)),
            pa.array(columns["time_ms"], SCHEMA.field("timestamp").type),
            pa.array(map(int, columns["append_time"]), pa.int32(), size=len(records)),
            _headers(columns["headers"]),
        ],
        schema=SCHEMA,
    )


def _headers(rows: Sequence[Headers]) -> pa.Array:
    """Lists of pairs, put together by offsets; no header at all is null, as Spark has it."""
    ends: list[int | None] = [0]
    flat: list[tuple[str, bytes]] = []
    for headers in rows:
        flat.extend(headers)
        ends.append(len(flat))
    starts = [None if not headers else end for headers, end in zip(rows, ends, strict=False)]
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in flat], pa.string()),
            pa.array([value for _, value in flat], pa.binary()),
        ],
        ["key", "value"],
    )
    return pa.ListArray.from_arrays(pa.array([*starts, len(flat)], pa.int32()), pairs)


def _line(record: Record, offsets: Offsets) -> str:
    """One row as JSON; nothing in it needs escaping, so it is put together by hand, for speed."""
    headers = ",".join(
        f'{{"key":"{name}","value":"{_base64(value)}"}}' for name, value in record.headers
    )
    value = "null" if record.value is None else f'"{_base64(record.value)}"'
    return (
        f'{{"key":"{_base64(record.key)}","value":{value},"topic":"{record.topic}"'
        f',"partition":{record.partition},"offset":{offsets.take(record)}'
        f',"timestamp":"{time_text(record.time_ms)}","timestampType":{record.append_time:d}'
        f',"headers":{f"[{headers}]" if headers else "null"}}}\n'
    )


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")

"""A page: one immutable Parquet file with a part of the log.

Its groups of rows are keyed: each holds one lane of one bucket, in the order of the layout. So a
reader takes its bucket, skips the lanes that it does not need, and needs no shuffle, whether a page
holds one bucket or all. Each is a row group of the file; a page with few events is packed into one
per lane, because a row group costs the same whatever is in it. What RFC-023 wants to know of a page
stands in the file's own metadata, so that a page table can be rebuilt from the files.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from datetime import datetime
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onex_platform.log.page_layout import PageLayout, PageMetadata, RowGroupKey, SequenceRange

METADATA_KEY = b"onex.page"
_ROW_GROUP_ROWS = 256 * 1024
_ROW_GROUP_BYTES = 256 * 1024**2  # of payloads; else few, but large events would fill the memory
_PACKED_ROWS = 8 * 1024  # a page with no more is packed, unless its payloads are more than a group


class EncodedPage(NamedTuple):
    """A page ready to be stored."""

    metadata: PageMetadata
    data: bytes
    checksum: str

    @property
    def attributes(self) -> dict[str, str]:
        """What a store that keeps attributes with its objects is told of the page: all but the
        groups of rows and the writers' sequences, for which such stores have no room."""
        about = self.metadata.model_dump(
            mode="json", exclude={"row_groups", "counters", "sequences"}, exclude_none=True
        )
        about |= self.metadata.counters
        about |= {"encoded_bytes": len(self.data), "checksum": self.checksum}
        return {name: str(value) for name, value in about.items()}


class PageWriter:
    """Collects the parts of one page, bucket by bucket, and encodes it."""

    def __init__(self, layout: PageLayout) -> None:
        self._layout = layout
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            layout.schema,
            compression="zstd",
            use_dictionary=list(layout.dictionary_columns),
            write_statistics=list(layout.statistics_columns),
        )
        self._groups: list[RowGroupKey] = []
        self._waiting: list[tuple[RowGroupKey, pa.Table]] | None = []  # None: too many to pack
        self._ranges: list[tuple[int, int, datetime, datetime]] = []
        self._payload_bytes = 0
        self._counters: Counter[str] = Counter()
        self._sequences: dict[str, SequenceRange] = {}

    @property
    def encoded_bytes(self) -> int:
        """How large the page is so far, or at most if it is small."""
        waiting: int = sum(part.nbytes for _, part in self._waiting or ())
        return self._buffer.tell() + waiting

    def add(self, bucket: int, events: pa.Table) -> None:
        """Add one bucket's events, in any order."""
        layout = self._layout
        events = layout.widened(events).combine_chunks()  # small pages have many small chunks
        for lane, rows in enumerate(layout.lanes(events)):
            in_order = layout.sorted(rows)
            for group in layout.stretches(in_order, _ROW_GROUP_ROWS, _ROW_GROUP_BYTES):
                self._add_group(bucket, lane, group)

    def finish(self, **about: Any) -> EncodedPage:
        """The encoded page; `about` gives what the events themselves do not tell."""
        packed = self._waiting is not None
        if self._waiting is not None:
            self._pack(self._waiting)
        low, high, start, end = zip(*self._ranges, strict=True)
        metadata = self._layout.metadata(
            min_position=min(low),
            max_position=max(high),
            start_time=min(start),
            end_time=max(end),
            event_count=sum(group.events for group in self._groups),
            row_groups=tuple(self._groups),
            packed=packed,
            payload_bytes=self._payload_bytes,
            counters=dict(self._counters),
            sequences=self._sequences,
            **about,
        )
        self._writer.add_key_value_metadata({METADATA_KEY: metadata.model_dump_json().encode()})
        self._writer.close()
        data = self._buffer.getvalue()
        return EncodedPage(metadata, data, checksum_of(data))

    def _add_group(self, bucket: int, lane: int, part: pa.Table) -> None:
        layout = self._layout
        key = RowGroupKey(bucket, lane, len(part))
        self._payload_bytes += pc.sum(pc.binary_length(part[layout.payload])).as_py()
        if self._waiting is None:
            self._write([key], part)
        else:
            self._waiting.append((key, part))
            events = sum(waiting.events for waiting, _ in self._waiting)
            if events > _PACKED_ROWS or self._payload_bytes > _ROW_GROUP_BYTES:
                for waiting, rows in self._waiting:
                    self._write([waiting], rows)
                self._waiting = None
        self._counters.update(layout.counters(part))
        for writer, (first, last) in layout.sequences(part).items():
            known = self._sequences.get(writer, SequenceRange(first, last))
            self._sequences[writer] = SequenceRange(min(known.first, first), max(known.last, last))
        positions, times = pc.min_max(part[layout.position]), pc.min_max(part[layout.time])
        self._ranges.append(
            (
                positions["min"].as_py(),
                positions["max"].as_py(),
                times["min"].as_py(),
                times["max"].as_py(),
            )
        )

    def _pack(self, parts: list[tuple[RowGroupKey, pa.Table]]) -> None:
        for lane in sorted({key.lane for key, _ in parts}):
            keys, tables = zip(*(part for part in parts if part[0].lane == lane), strict=True)
            self._write(list(keys), pa.concat_tables(tables))

    def _write(self, keys: list[RowGroupKey], rows: pa.Table) -> None:
        """Write a row group of the file, in which these groups follow each other."""
        self._writer.write_table(rows, row_group_size=_ROW_GROUP_ROWS)
        self._groups += keys


def open_page(source: BinaryIO) -> pq.ParquetFile:
    """A page to read from; only its footer is read yet."""
    return pq.ParquetFile(source)


def read_metadata(layout: PageLayout, page: pq.ParquetFile) -> PageMetadata:
    """What a page says of itself."""
    return layout.metadata.model_validate_json(page.metadata.metadata[METADATA_KEY])


def read_page(
    layout: PageLayout,
    page: pq.ParquetFile,
    metadata: PageMetadata,
    *,
    lane: int = 0,
    bucket: int | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """One lane of one bucket of a page (of all buckets if None)."""
    names = layout.columns(columns).names
    wanted = [
        number
        for number, group in enumerate(metadata.row_groups)
        if group.lane == lane and bucket in (None, group.bucket)
    ]
    if not wanted:
        return layout.columns(columns).empty_table()
    if not metadata.packed:
        return page.read_row_groups(wanted, columns=names).select(names)
    stored = page.read_row_group(metadata.lanes.index(lane), columns=names)
    slices, start = [], 0
    for group in metadata.row_groups:
        if group.lane == lane:
            if bucket in (None, group.bucket):
                slices.append(stored.slice(start, group.events))
            start += group.events
    return pa.concat_tables(slices).select(names)


def read_buckets(
    page: pq.ParquetFile, metadata: PageMetadata, buckets: Set[int]
) -> Iterator[tuple[int, pa.Table]]:
    """The groups of some buckets, read at once: reading one by one takes half as long again."""
    chosen = [
        number
        for number, group in enumerate(metadata.row_groups)
        if metadata.packed or group.bucket in buckets
    ]
    stored = range(page.num_row_groups) if metadata.packed else chosen
    if not chosen:
        return
    table = page.read_row_groups(list(stored))
    start = 0
    for group in (metadata.row_groups[number] for number in chosen):
        if group.bucket in buckets:
            yield group.bucket, table.slice(start, group.events)
        start += group.events


def checksum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

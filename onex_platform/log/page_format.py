"""A page: one immutable Parquet file with a part of the log.

Its groups of rows are keyed: each holds one bucket's changes or one bucket's heartbeats, sorted by
entity and position. So a reader takes its bucket, skips the heartbeats' payloads, and needs no
shuffle, whether a page holds one bucket or all. Each is a row group of the file; a page with few
events is packed into two, all changes and all heartbeats, because a row group costs the same
whatever is in it. What RFC-023 wants to know of a page stands in the file's own metadata, so that
an index can be rebuilt from the files alone.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Set
from datetime import datetime
from enum import StrEnum
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import AwareDatetime, BaseModel, ConfigDict

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import POSITION_STRIDE
from onex_platform.ingest.admission.column_values import ranks
from onex_platform.ingest.event_schema import LOG_SCHEMA, SCHEMA_VERSION, stretches, widened

METADATA_KEY = b"onex.page"
_ROW_GROUP_ROWS = 256 * 1024
_ROW_GROUP_BYTES = 256 * 1024**2  # of payloads; else few, but large events would fill the memory
_PACKED_ROWS = 8 * 1024  # a page with no more is packed, unless its payloads are more than a group


class EnumPageReason(StrEnum):
    """Why a page was cut."""

    INGEST = "ingest"  # a cut of the input topics
    DECISION = "decision"  # facts of the registry's own policy
    COMPACTION = "compaction"  # smaller pages merged


class RowGroupKey(NamedTuple):
    """What one group of rows in a page holds."""

    bucket: int
    beats: bool
    events: int


class PageMetadata(BaseModel):
    """What is known of a page without reading its events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_id: UUID
    domain: str
    writer_id: str
    reason: EnumPageReason
    buckets: int  # how many the log is divided into, not how many are in here
    period: AwareDatetime  # the partition of time that the page belongs to
    min_position: int
    max_position: int
    start_time: AwareDatetime
    end_time: AwareDatetime
    event_count: int
    row_groups: tuple[RowGroupKey, ...]
    packed: bool = False  # all changes are one row group of the file, all heartbeats another
    payload_bytes: int = 0  # not encoded; 0 also in pages from before they were counted
    decided: int = 0  # facts of the registry's own policy among the events
    merged_from: UUID | None = None  # one of the pages that a merged one replaces
    schema_version: int = SCHEMA_VERSION
    format: str = "parquet"
    compression: str = "zstd"

    @property
    def bucket_numbers(self) -> list[int]:
        return sorted({group.bucket for group in self.row_groups})


class EncodedPage(NamedTuple):
    """A page ready to be stored."""

    metadata: PageMetadata
    data: bytes
    checksum: str

    @property
    def attributes(self) -> dict[str, str]:
        """What a store that keeps attributes with its objects is told of the page: all but the
        groups of rows, for which such stores have no room."""
        about = self.metadata.model_dump(mode="json", exclude={"row_groups"}, exclude_none=True)
        about |= {"encoded_bytes": len(self.data), "checksum": self.checksum}
        return {name: str(value) for name, value in about.items()}


class PageWriter:
    """Collects the parts of one page, bucket by bucket, and encodes it."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            LOG_SCHEMA,
            compression="zstd",
            # Ids are unique and times rise: a dictionary of them would only be built and dropped.
            use_dictionary=["kind", "tenant", "node_id", "topic", "entity_id"],
            write_statistics=["entity_id", "position", "occurred_at"],
        )
        self._groups: list[RowGroupKey] = []
        self._waiting: list[tuple[RowGroupKey, pa.Table]] | None = []  # None: too many to pack
        self._ranges: list[tuple[int, int, datetime, datetime]] = []
        self._payload_bytes = 0
        self._decided = 0

    @property
    def encoded_bytes(self) -> int:
        """How large the page is so far, or at most if it is small."""
        waiting: int = sum(part.nbytes for _, part in self._waiting or ())
        return self._buffer.tell() + waiting

    def add(self, bucket: int, events: pa.Table) -> None:
        """Add one bucket's events, in any order."""
        events = widened(events).combine_chunks()  # of many small pages there are as many chunks
        is_beat = pc.equal(events["kind"], EnumEventKind.NODE_HEARTBEAT.value)
        for beats, mask in ((False, pc.invert(is_beat)), (True, is_beat)):
            part = _sorted(events.filter(mask))
            for group in stretches(part, _ROW_GROUP_ROWS, _ROW_GROUP_BYTES):
                self._add_group(bucket, beats, group)

    def finish(self, **about: Any) -> EncodedPage:
        """The encoded page; `about` gives what the events themselves do not tell."""
        packed = self._waiting is not None
        if self._waiting is not None:
            self._pack(self._waiting)
        low, high, start, end = zip(*self._ranges, strict=True)
        metadata = PageMetadata(
            min_position=min(low),
            max_position=max(high),
            start_time=min(start),
            end_time=max(end),
            event_count=sum(group.events for group in self._groups),
            row_groups=tuple(self._groups),
            packed=packed,
            payload_bytes=self._payload_bytes,
            decided=self._decided,
            **about,
        )
        self._writer.add_key_value_metadata({METADATA_KEY: metadata.model_dump_json().encode()})
        self._writer.close()
        data = self._buffer.getvalue()
        return EncodedPage(metadata, data, checksum_of(data))

    def _add_group(self, bucket: int, beats: bool, part: pa.Table) -> None:
        key = RowGroupKey(bucket, beats, len(part))
        self._payload_bytes += pc.sum(pc.binary_length(part["payload"])).as_py()
        if self._waiting is None:
            self._write([key], part)
        else:
            self._waiting.append((key, part))
            events = sum(waiting.events for waiting, _ in self._waiting)
            if events > _PACKED_ROWS or self._payload_bytes > _ROW_GROUP_BYTES:
                for waiting, rows in self._waiting:
                    self._write([waiting], rows)
                self._waiting = None
        between = pc.bit_wise_and(part["position"], POSITION_STRIDE - 1)
        self._decided += pc.sum(pc.not_equal(between, 0)).as_py()
        positions, times = pc.min_max(part["position"]), pc.min_max(part["occurred_at"])
        self._ranges.append(
            (
                positions["min"].as_py(),
                positions["max"].as_py(),
                times["min"].as_py(),
                times["max"].as_py(),
            )
        )

    def _pack(self, parts: list[tuple[RowGroupKey, pa.Table]]) -> None:
        for beats in (False, True):
            chosen = [(key, rows) for key, rows in parts if key.beats == beats]
            if chosen:
                keys, tables = zip(*chosen, strict=True)
                self._write(list(keys), pa.concat_tables(tables))

    def _write(self, keys: list[RowGroupKey], rows: pa.Table) -> None:
        """Write a row group of the file, in which these groups follow each other."""
        self._writer.write_table(rows, row_group_size=_ROW_GROUP_ROWS)
        self._groups += keys


def _sorted(events: pa.Table) -> pa.Table:
    """By entity and position; ingest's are already, and need not be copied."""
    order = np.lexsort((events["position"].to_numpy(), ranks(events["entity_id"].combine_chunks())))
    in_order = (order[1:] > order[:-1]).all()
    return events if in_order else events.take(pa.array(order))


def open_page(source: BinaryIO) -> pq.ParquetFile:
    """A page to read from; only its footer is read yet."""
    return pq.ParquetFile(source)


def read_metadata(page: pq.ParquetFile) -> PageMetadata:
    """What a page says of itself."""
    return PageMetadata.model_validate_json(page.metadata.metadata[METADATA_KEY])


def read_page(
    page: pq.ParquetFile,
    metadata: PageMetadata,
    *,
    bucket: int | None = None,
    beats: bool,
    columns: Iterable[str] | None = None,
) -> pa.Table:
    """The heartbeats, or the other events, of one bucket of a page (of all if None)."""
    names = LOG_SCHEMA.names if columns is None else list(columns)
    wanted = [
        number
        for number, group in enumerate(metadata.row_groups)
        if group.beats == beats and bucket in (None, group.bucket)
    ]
    if not wanted:
        return pa.schema([LOG_SCHEMA.field(name) for name in names]).empty_table()
    if not metadata.packed:
        return page.read_row_groups(wanted, columns=names).select(names)
    # The heartbeats are the last row group, and the first as well if there is nothing else.
    stored = page.read_row_group(page.num_row_groups - 1 if beats else 0, columns=names)
    slices, start = [], 0
    for group in metadata.row_groups:
        if group.beats == beats:
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

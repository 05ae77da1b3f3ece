"""The words of the station: an event, the metadata of a page, a page's place in store and index.

An event's identity is `(tenant, writer_id, sequence, event_id)`. The sequence alone orders the
events of a writer; the id tells two events apart if a folder with a write-ahead log was lost and a
writer's numbers began anew. All times are Unix microseconds. All sizes are encoded bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

FORMAT_VERSION = "v1"


class Durability(IntEnum):
    """How safe an event is; the numbers are those of the wire."""

    UNSPECIFIED = 0
    BUFFERED = 1
    WAL = 2
    STORED = 3
    INDEXED = 4


class CutReason(StrEnum):
    """Why a page was cut; it stands in the page, in the index and in a metric."""

    COUNT = "count"
    SIZE = "size"
    AGE = "age"
    SESSION_END = "session_end"
    FLUSH = "flush"
    REQUESTED = "requested"  # a writer waits for STORED or INDEXED
    BUDGET = "budget"
    SHUTDOWN = "shutdown"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class CapturedEvent:
    """One event as its writer published it, with the place that it was given."""

    tenant: str
    writer_id: str
    sequence: int
    event_id: str
    timestamp_us: int
    payload: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    producer_id: str = ""
    producer_sequence: int = 0


class EventColumns(NamedTuple):
    """Events column by column: the fields of `CapturedEvent`, in their order, but for the tenant,
    which all of a page share."""

    writer_ids: list[str]
    sequences: list[int]
    event_ids: list[str]
    times_us: list[int]
    payloads: list[bytes]
    attributes: list[Mapping[str, str]]
    producer_ids: list[str]
    producer_sequences: list[int]

    @classmethod
    def of(cls, events: Iterable[CapturedEvent]) -> EventColumns:
        rows = [_FIELDS(event) for event in events]
        columns: Iterable[list[Any]] = (
            map(list, zip(*rows, strict=True)) if rows else ([] for _ in cls._fields)
        )
        return cls(*columns)

    def extend(self, more: EventColumns) -> None:
        """Add events behind those that are there."""
        columns: tuple[list[Any], ...] = self
        for column, values in zip(columns, more, strict=True):
            column.extend(values)  # type: ignore[arg-type]

    def events(self, tenant: str) -> tuple[CapturedEvent, ...]:
        return tuple(CapturedEvent(tenant, *row) for row in zip(*self, strict=True))


_FIELDS = attrgetter(*(name for name in CapturedEvent.__slots__ if name != "tenant"))


@dataclass(frozen=True, slots=True)
class WriterRange:
    """What one page holds of one writer: sequences without a gap, first and last included."""

    writer_id: str
    first_sequence: int
    last_sequence: int
    first_time_us: int
    last_time_us: int
    events: int


@dataclass(frozen=True, slots=True)
class PageInfo:
    """What a page says of itself: in its own header, on the object and in the index."""

    page_id: str
    tenant: str
    writers: tuple[WriterRange, ...]
    page_sequence: int
    start_time_us: int
    end_time_us: int
    event_count: int
    format: str
    compression: str
    reason: str
    page_size_bytes: int = 0  # the encoded events before compression; known once they are encoded
    format_version: str = FORMAT_VERSION
    tags: Mapping[str, str] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()  # the pages whose events this one holds as well

    @property
    def writer_id(self) -> str:
        """001's field: the writer of a page that has only one, else nothing."""
        return self.writers[0].writer_id if len(self.writers) == 1 else ""


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One page in the index: what it holds and where its bytes are."""

    info: PageInfo
    key: str
    storage_size_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page as bytes; `info` now knows its size."""

    info: PageInfo
    data: bytes


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """What a page's bytes say."""

    info: PageInfo
    events: tuple[CapturedEvent, ...]


def ranges_of(events: Iterable[CapturedEvent]) -> tuple[WriterRange, ...]:
    """The ranges of events that are sorted by writer, then by sequence."""
    return ranges_in((event.writer_id, event.sequence, event.timestamp_us) for event in events)


def ranges_in(places: Iterable[tuple[str, int, int]]) -> tuple[WriterRange, ...]:
    """The same, of each event's writer, sequence and time."""
    return tuple(
        _range_of(writer, list(some)) for writer, some in groupby(places, key=itemgetter(0))
    )


def _range_of(writer_id: str, places: Sequence[tuple[str, int, int]]) -> WriterRange:
    times = [time for _, _, time in places]
    return WriterRange(
        writer_id=writer_id,
        first_sequence=places[0][1],
        last_sequence=places[-1][1],
        first_time_us=min(times),
        last_time_us=max(times),
        events=len(places),
    )

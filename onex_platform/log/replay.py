"""Reading the log back: which pages belong together, and one bucket's events of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.log.page_format import open_page, read_page
from onex_platform.log.page_layout import PageLayout, PageMetadata
from onex_platform.log.store import PageStore, StoredPage

_Item = TypeVar("_Item")

# Small pages are read together: a chunk of its own for each would cost more than its events.
_CHUNK_EVENTS = 1 << 18
_CHUNK_BYTES = 256 * 1024**2  # of payloads


class PageRef(NamedTuple):
    """A page, as far as a task must know it to read it."""

    key: str
    metadata: PageMetadata

    @classmethod
    def of(cls, page: StoredPage) -> PageRef:
        return cls(page.key, page.metadata)

    @property
    def events(self) -> int:
        return self.metadata.event_count

    def holds(self, bucket: int | None) -> bool:
        """Whether it has events of the bucket, or of any if None."""
        return bucket is None or any(group.bucket == bucket for group in self.metadata.row_groups)

    def bytes_of(self, bucket: int | None) -> int:
        """How large the payloads of the bucket's events are, if all buckets' are alike."""
        return self.metadata.payload_bytes * self.events_of(bucket) // self.events

    def lies_within(self, start: int, end: int) -> bool:
        """Whether all its positions are from `start` on and below `end`."""
        return start <= self.metadata.min_position and self.metadata.max_position < end

    def events_of(self, bucket: int | None) -> int:
        """How many events of the bucket it has, or of all if None."""
        return sum(
            group.events for group in self.metadata.row_groups if bucket in (None, group.bucket)
        )


def chunks_of(pages: Iterable[PageRef]) -> Iterator[list[PageRef]]:
    """Pages in groups whose positions do not overlap, in the order of the log.

    What was derived from events stands right behind them, but in pages of its own: a group holds
    both.
    """

    def span(page: PageRef) -> tuple[int, int]:
        return page.metadata.min_position, page.metadata.max_position

    return overlapping(sorted(pages, key=span), span)


def worthwhile_chunks(
    pages: Iterable[PageRef], bucket: int | None = None
) -> Iterator[list[PageRef]]:
    """The pages of a bucket (of all if None), in log order, in groups that are worth a chunk."""
    group: list[PageRef] = []
    events = size = 0
    for together in chunks_of(page for page in pages if page.holds(bucket)):
        group += together
        events += sum(page.events_of(bucket) for page in together)
        size += sum(page.bytes_of(bucket) for page in together)
        if events >= _CHUNK_EVENTS or size >= _CHUNK_BYTES:
            yield group
            group, events, size = [], 0, 0
    if group:
        yield group


def overlapping(
    items: Iterable[_Item], span: Callable[[_Item], tuple[int, int]]
) -> Iterator[list[_Item]]:
    """Items in groups that share no position; they come in the order of their first one."""
    group: list[_Item] = []
    reach = -1
    for item in items:
        first, last = span(item)
        if group and first > reach:
            yield group
            group = []
        group.append(item)
        reach = max(reach, last)
    if group:
        yield group


def read_lanes(
    layout: PageLayout,
    store: PageStore,
    pages: list[PageRef],
    bucket: int | None,
    start: int,
    end: int,
    columns: Sequence[Sequence[str] | None] = (None,),
) -> list[pa.Table]:
    """One bucket's events (of all if None) at positions from `start` on and below `end`.

    Lane by lane, as many as `columns` has entries: the columns of each, or None for all of them.
    """
    lanes: list[list[pa.Table]] = [[layout.columns(names).empty_table()] for names in columns]
    for page in pages:
        if page.holds(bucket):
            with store.open(page.key) as source:
                file = open_page(source)
                for lane, names in enumerate(columns):
                    lanes[lane].append(
                        read_page(
                            layout, file, page.metadata, lane=lane, bucket=bucket, columns=names
                        )
                    )
    tables = [pa.concat_tables(parts) for parts in lanes]
    if all(page.lies_within(start, end) for page in pages):
        return tables
    return [_within(table, table[layout.position], start, end) for table in tables]


def _within(events: pa.Table, positions: pa.ChunkedArray, start: int, end: int) -> pa.Table:
    return events.filter(pc.and_(pc.greater_equal(positions, start), pc.less(positions, end)))

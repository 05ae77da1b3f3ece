"""Reading the log back: which pages belong together, and one bucket's events of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.pages.format import PageMetadata, open_page, read_page
from onex_platform.pages.index import StoredPage
from onex_platform.pages.schema import BEAT_COLUMNS, LOG_SCHEMA
from onex_platform.pages.store import PageStore

_Item = TypeVar("_Item")


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


class LogChunk(NamedTuple):
    """A part of one bucket's log: the events that may change a state, and the heartbeats."""

    changes: pa.Table
    beats: pa.Table


def chunks_of(pages: Iterable[PageRef]) -> Iterator[list[PageRef]]:
    """Pages in groups whose positions do not overlap, in the order of the log.

    Facts stand right behind their causes, but in pages of their own: a group holds both.
    """

    def span(page: PageRef) -> tuple[int, int]:
        return page.metadata.min_position, page.metadata.max_position

    return overlapping(sorted(pages, key=span), span)


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


def read_chunk(
    store: PageStore,
    pages: list[PageRef],
    bucket: int,
    start: int,
    end: int,
    *,
    whole_beats: bool = False,
) -> LogChunk:
    """One bucket's events at positions from `start` on and below `end`.

    Heartbeats come without their payload unless `whole_beats`.
    """
    columns = None if whole_beats else BEAT_COLUMNS
    changes, beats = [], []
    for page in pages:
        if bucket not in page.metadata.bucket_numbers:
            continue
        file = open_page(store.open(page.key))
        changes.append(read_page(file, page.metadata, bucket=bucket, beats=False))
        beats.append(read_page(file, page.metadata, bucket=bucket, beats=True, columns=columns))
    return LogChunk(_within(changes, start, end, None), _within(beats, start, end, columns))


def _within(tables: list[pa.Table], start: int, end: int, columns: list[str] | None) -> pa.Table:
    names = LOG_SCHEMA.names if columns is None else columns
    schema = pa.schema([LOG_SCHEMA.field(name) for name in names])
    events = pa.concat_tables([schema.empty_table(), *tables])
    position = events["position"]
    return events.filter(pc.and_(pc.greater_equal(position, start), pc.less(position, end)))

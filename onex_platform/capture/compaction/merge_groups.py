"""Which captured pages are worth merging, as a pure function of their entries.

A merged page must have a place in the order in which pages are read: no page outside of it may have
to come behind one part of it and before another. So pages are taken as they are read, neighbours
only. A page that stays as it is is passed over if it could as well be read before all the others
of the group: if it shares no writer with them.

A page says of a writer that it holds its sequences without a gap. So a group ends where a writer's
sequences are interrupted: the page in between may be waiting for the store.

As for the log, groups stay within one day, and a page is rewritten only with at least as much
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.read.page_selection import Selection, in_reading_order
from onex_platform.log.compaction.planning import worthwhile

_DAY_US = 86_400_000_000
# An entry names all the pages that it replaces; it must stay one that an index can hold.
MOST_PAGES = 1000

_Chunk = list[PageEntry]
_Spans = dict[str, tuple[int, int]]


class MergeLimits(NamedTuple):
    """What is merged: pages below a size, up to another one."""

    small_bytes: int
    target_bytes: int
    most_pages: int = MOST_PAGES


class MergeGroup(NamedTuple):
    """Pages to be replaced by one."""

    pages: tuple[PageEntry, ...]

    @property
    def encoded_bytes(self) -> int:
        return sum(page.info.page_size_bytes for page in self.pages)

    @property
    def events(self) -> int:
        return sum(page.info.event_count for page in self.pages)

    def __str__(self) -> str:
        return f"{len(self.pages)} pages, {self.encoded_bytes} bytes, {self.events} events"


def plan_merges(
    pages: Iterable[PageEntry], limits: MergeLimits, *, settled_us: int, now_us: int
) -> Iterator[MergeGroup]:
    """Groups of one tenant's pages; those with an event at or after `settled_us` stay."""
    pages = list(pages)
    if not pages:
        return
    everything = Selection(pages[0].info.tenant)
    for stretch in _stretches(in_reading_order(pages, everything), limits, settled_us):
        final = _day(stretch[-1]) < now_us // _DAY_US
        for group in worthwhile(stretch, _size, final=final):
            yield MergeGroup(tuple(group))


def _stretches(
    chunks: Iterable[_Chunk], limits: MergeLimits, settled_us: int
) -> Iterator[list[_Chunk]]:
    """Chunks that would make one page; a chunk is what has to be read together."""
    stretch = _Stretch(limits)
    for chunk in chunks:
        spans = _spans(chunk)
        stays = any(
            _size(page) >= limits.small_bytes or page.info.end_time_us >= settled_us
            for page in chunk
        )
        if spans is None or stays:
            if stretch.shares_a_writer_with(chunk):
                yield stretch.chunks
                stretch = _Stretch(limits)
            continue
        if not stretch.takes(chunk, spans):
            yield stretch.chunks
            stretch = _Stretch(limits)
        stretch.add(chunk, spans)
    if stretch.chunks:
        yield stretch.chunks


class _Stretch:
    """Neighbours that are about to become a group."""

    def __init__(self, limits: MergeLimits) -> None:
        self.chunks: list[_Chunk] = []
        self._limits = limits
        self._spans: _Spans = {}
        self._pages = 0
        self._bytes = 0

    def shares_a_writer_with(self, chunk: _Chunk) -> bool:
        return any(span.writer_id in self._spans for page in chunk for span in page.info.writers)

    def takes(self, chunk: _Chunk, spans: _Spans) -> bool:
        """Whether the chunk belongs to the same day, and neither leaves a gap nor is too much."""
        return not self.chunks or (
            _day(self.chunks[-1]) == _day(chunk)
            and self._pages + len(chunk) <= self._limits.most_pages
            and self._bytes + sum(map(_size, chunk)) <= self._limits.target_bytes
            and _adjoin(self._spans, spans)
        )

    def add(self, chunk: _Chunk, spans: _Spans) -> None:
        self.chunks.append(chunk)
        self._pages += len(chunk)
        self._bytes += sum(map(_size, chunk))
        _join(self._spans, spans)


def _spans(chunk: _Chunk) -> _Spans | None:
    """What a chunk holds of each writer; none if it leaves out some sequences in between."""
    spans: _Spans = {}
    for page in sorted(chunk, key=_first_sequences):
        more = {one.writer_id: (one.first_sequence, one.last_sequence) for one in page.info.writers}
        if not _adjoin(spans, more):
            return None
        _join(spans, more)
    return spans


def _first_sequences(page: PageEntry) -> list[int]:
    return [one.first_sequence for one in page.info.writers]


def _adjoin(left: _Spans, right: _Spans) -> bool:
    """Whether no writer has a gap between both."""
    return all(
        left[writer][0] - 1 <= last and first <= left[writer][1] + 1
        for writer, (first, last) in right.items()
        if writer in left
    )


def _join(left: _Spans, right: _Spans) -> None:
    for writer, (first, last) in right.items():
        before = left.get(writer, (first, last))
        left[writer] = (min(first, before[0]), max(last, before[1]))


def _size(page: PageEntry) -> int:
    return page.info.page_size_bytes


def _day(chunk: _Chunk) -> int:
    return max(page.info.start_time_us for page in chunk) // _DAY_US

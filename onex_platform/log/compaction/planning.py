"""Which pages are worth merging, as a pure function of the page table.

A group is a contiguous part of the log: pages that share positions (a cut's and those of the facts
decided from it) stay together, and neighbours join them, so that a merged page shares positions
with no page that its parts did not share them with. Groups stay within one day: a day of quiet
hours becomes one page, and the archive can still be read, moved and counted day by day.

A page is rewritten only with at least as much beside it, so that each time an event is rewritten
its page has doubled: a handful of times in its life, however often compaction runs. Once a day is
over, its left-overs are merged for good. After that there is nothing left to plan for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date
from typing import NamedTuple, TypeVar

from onex_platform.log.page_table import PageEntry
from onex_platform.log.replay import overlapping

_Page = TypeVar("_Page")
_Chunk = list[PageEntry]


class CompactionGroup(NamedTuple):
    """Pages to be replaced by one, or by a few if they are large together."""

    pages: tuple[PageEntry, ...]

    @property
    def encoded_bytes(self) -> int:
        return sum(page.encoded_bytes for page in self.pages)

    @property
    def events(self) -> int:
        return sum(page.event_count for page in self.pages)

    @property
    def span(self) -> tuple[int, int]:
        firsts, lasts = zip(*(page.span for page in self.pages), strict=True)
        return min(firsts), max(lasts)

    def __str__(self) -> str:
        return f"{len(self.pages)} pages, {self.encoded_bytes} bytes, {self.events} events"


def plan_compaction(
    pages: Iterable[PageEntry], *, below: int, today: date, small_bytes: int, target_bytes: int
) -> Iterator[CompactionGroup]:
    """Groups of the pages, which come in order of position; only of those wholly below `below`,
    whose day is `today`."""
    for stretch in _stretches(pages, below, small_bytes, target_bytes):
        final = _day(stretch[-1]) < today
        for group in worthwhile(stretch, lambda page: page.encoded_bytes, final=final):
            yield CompactionGroup(tuple(group))


def worthwhile(
    stretch: list[list[_Page]], size_of: Callable[[_Page], int], *, final: bool
) -> Iterator[list[_Page]]:
    """The pages of a stretch, or what lies beside a chunk that outweighs all the others; a final
    stretch is merged as it is, because nothing will come beside it any more."""
    group = [page for chunk in stretch for page in chunk]
    if len(group) < 2:
        return
    sizes = [max(map(size_of, chunk)) for chunk in stretch]
    if final or 2 * max(sizes) <= sum(map(size_of, group)):
        yield group
        return
    heaviest = sizes.index(max(sizes))
    yield from worthwhile(stretch[:heaviest], size_of, final=final)
    yield from worthwhile(stretch[heaviest + 1 :], size_of, final=final)


def _stretches(
    pages: Iterable[PageEntry], below: int, small_bytes: int, target_bytes: int
) -> Iterator[list[_Chunk]]:
    """Neighbouring chunks of one day that would make one page, made of small pages only."""
    stretch: list[_Chunk] = []
    size = 0
    for chunk in overlapping(pages, lambda page: page.span):
        if max(page.max_position for page in chunk) >= below:
            break
        small = [page for page in chunk if page.encoded_bytes < small_bytes]
        small_size = sum(page.encoded_bytes for page in small)
        alone = len(small) < len(chunk)
        if stretch and (
            alone or size + small_size > target_bytes or _day(stretch[-1]) != _day(chunk)
        ):
            yield stretch
            stretch, size = [], 0
        if alone:
            # Small pages among large ones: merged with each other, they reach no further than
            # the large ones did.
            if small:
                yield [small]
            continue
        stretch.append(chunk)
        size += small_size
    if stretch:
        yield stretch


def _day(chunk: _Chunk) -> date:
    return max(page.period for page in chunk).astimezone(UTC).date()

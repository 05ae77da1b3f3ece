"""Which captured pages are read for the events that are wanted, and in which order.

What holds:
- The events of a writer come in the order of their sequences. Pages that hold the same stretch of a
  writer are read together. Apart from that, pages come by their start.
- Times and attributes select events, not pages: a page is read if it may hold one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise

from onex_platform.capture.captured_events import CapturedEvent, PageEntry, PageInfo, WriterRange
from onex_platform.capture.slots import PageQuery


@dataclass(frozen=True)
class Selection:
    """Which events are wanted; what is left empty does not restrict."""

    tenant: str
    writer_id: str | None = None
    from_us: int | None = None
    until_us: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def pages(self) -> PageQuery:
        return PageQuery(self.tenant, self.writer_id, self.from_us, self.until_us)

    def wants(self, event: CapturedEvent) -> bool:
        return (
            self.writer_id in (None, event.writer_id)
            and (self.from_us is None or event.timestamp_us >= self.from_us)
            and (self.until_us is None or event.timestamp_us < self.until_us)
            and self.attributes.items() <= event.attributes.items()
        )

    def takes_all_of(self, info: PageInfo) -> bool:
        """Whether every event of a page is wanted, as far as its metadata tells."""
        return (
            self.writer_id in (None, info.writer_id)
            and (self.from_us is None or info.start_time_us >= self.from_us)
            and (self.until_us is None or info.end_time_us < self.until_us)
            and not self.attributes
        )

    def spans(self, info: PageInfo) -> list[WriterRange]:
        """What a page holds of the wanted writers."""
        return [span for span in info.writers if self.writer_id in (None, span.writer_id)]


def in_reading_order(pages: Sequence[PageEntry], selection: Selection) -> Iterator[list[PageEntry]]:
    """Pages by start, as far as the order of each writer's sequences leaves a choice.

    Those that share a stretch of a writer come together; so do those of which each would have to
    come before the other: a page that is merged from others, and one that came late between them.
    """
    stretches: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for number, page in enumerate(pages):
        for span in selection.spans(page.info):
            stretches[span.writer_id].append((span.first_sequence, span.last_sequence, number))
    leader = list(range(len(pages)))

    def group_of(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for some in stretches.values():
        some.sort()
        reach, holder = some[0][1], some[0][2]
        for first, last, number in some[1:]:
            if first <= reach:
                leader[group_of(number)] = group_of(holder)
            if last >= reach:
                reach, holder = last, number
    groups: dict[int, list[PageEntry]] = defaultdict(list)
    for number, page in enumerate(pages):
        groups[group_of(number)].append(page)
    followers: dict[int, set[int]] = defaultdict(set)
    for some in stretches.values():
        for before, after in pairwise(group_of(number) for _, _, number in some):
            if before != after:
                followers[before].add(after)
    yield from _by_start(groups, followers)


def _by_start(
    groups: dict[int, list[PageEntry]], followers: dict[int, set[int]]
) -> Iterator[list[PageEntry]]:
    """Groups after those that must precede them, the earliest start first."""
    while groups:
        yield from _free_ones(groups, followers)
        if groups:
            _join_a_circle(groups, followers)


def _free_ones(
    groups: dict[int, list[PageEntry]], followers: Mapping[int, Iterable[int]]
) -> Iterator[list[PageEntry]]:
    """As many groups as can come without one that must precede them; they are removed."""
    waits_for = dict.fromkeys(groups, 0)
    for group in groups:
        for follower in followers.get(group, ()):
            waits_for[follower] += 1

    def start_of(group: int) -> tuple[int, str, int]:
        info = min((page.info for page in groups[group]), key=lambda one: one.start_time_us)
        return info.start_time_us, info.page_id, group

    ready = [start_of(group) for group, count in waits_for.items() if count == 0]
    heapify(ready)
    while ready:
        group = heappop(ready)[2]
        yield groups.pop(group)
        for follower in followers.get(group, ()):
            waits_for[follower] -= 1
            if waits_for[follower] == 0:
                heappush(ready, start_of(follower))


def _join_a_circle(groups: dict[int, list[PageEntry]], followers: dict[int, set[int]]) -> None:
    """Let groups come together each of which would have to come before the other."""
    precedes = {follower: group for group in groups for follower in followers.get(group, ())}
    walked: list[int] = []
    group = next(iter(groups))
    while group not in walked:
        walked.append(group)
        group = precedes[group]
    circle = walked[walked.index(group) :]
    first = circle[0]
    for other in circle[1:]:
        groups[first] += groups.pop(other)
        followers[first] |= followers.pop(other, set())
    for some in followers.values():
        if not some.isdisjoint(circle):
            some.difference_update(circle)
            some.add(first)
    followers[first].discard(first)

"""Groups hold each page once, leave every writer without a gap, and can be read in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.compaction.merge_groups import MergeGroup, MergeLimits, plan_merges
from onex_platform_tests.support.captured_pages import (
    NOON,
    SECOND,
    entry_of,
    event,
    events_of,
    page_of,
)

DAY = 86_400 * SECOND
LATER = NOON + 10 * DAY


def small(writer: str, *numbers: int, size: int = 100) -> PageEntry:
    return sized(entry_of(page_of(events_of(writer, numbers))), size)


def sized(entry: PageEntry, size: int) -> PageEntry:
    return replace(entry, info=replace(entry.info, page_size_bytes=size))


def planned(
    pages: Sequence[PageEntry],
    *,
    small_bytes: int = 1000,
    target_bytes: int = 10_000,
    most_pages: int = 1000,
    settled_us: int = LATER,
    now_us: int = LATER,
) -> list[MergeGroup]:
    limits = MergeLimits(small_bytes, target_bytes, most_pages)
    return list(plan_merges(pages, limits, settled_us=settled_us, now_us=now_us))


def test_neighbours_become_one_group() -> None:
    pages = [small("a", 1), small("a", 2), small("b", 3)]
    assert planned(pages) == [MergeGroup(tuple(pages))]


def test_nothing_and_a_single_page_are_left_alone() -> None:
    assert planned([]) == planned([small("a", 1)]) == []


def test_a_gap_in_a_writers_sequences_ends_a_group() -> None:
    first, second = [small("a", 1), small("a", 2)], [small("a", 4), small("a", 5)]
    assert planned([*first, *second]) == [MergeGroup(tuple(first)), MergeGroup(tuple(second))]


def test_a_large_page_is_passed_over_unless_its_writer_is_in_the_group() -> None:
    before, after = small("a", 1), small("a", 30)
    foreign = small("b", 20, size=5000)
    between = small("a", *range(2, 30), size=5000)
    same = small("a", 2)
    assert planned([before, foreign, same]) == [MergeGroup((before, same))]
    assert planned([before, between, after]) == []


def test_a_page_between_two_others_of_which_it_shares_a_writer_each_keeps_them_apart() -> None:
    """Merged, they would have to be read both before and after it."""
    first, last = small("a", 1), small("b", 30)
    between = entry_of(page_of([*events_of("a", [2, 3]), *events_of("b", [28, 29])]))
    assert planned([first, sized(between, 5000), last]) == []


def test_young_pages_are_left_alone() -> None:
    old, young = [small("a", 1), small("a", 2)], [small("a", 3), small("a", 4)]
    settled = NOON + 3 * SECOND
    assert planned([*old, *young], settled_us=settled) == [MergeGroup(tuple(old))]


def test_groups_end_with_the_day_the_target_and_the_number_of_pages() -> None:
    days = [sized(entry_of(page_of([event("a", n, at=NOON + n * DAY)])), 100) for n in (1, 2)]
    assert planned(days) == []
    pages = [small("a", number) for number in range(1, 7)]
    assert [len(group.pages) for group in planned(pages, target_bytes=300)] == [3, 3]
    assert [len(group.pages) for group in planned(pages, most_pages=2)] == [2, 2, 2]


def test_a_heavy_page_is_rewritten_only_with_as_much_beside_it_while_the_day_lasts() -> None:
    heavy, light = small("a", 1, size=900), [small("a", 2), small("a", 3)]
    assert planned([heavy, *light], now_us=NOON + SECOND) == [MergeGroup(tuple(light))]
    assert planned([heavy, *light]) == [MergeGroup((heavy, *light))], "the day is over"


def test_pages_that_share_events_are_merged_together() -> None:
    pages = [small("a", 1, 2), small("a", 2, 3)]
    assert planned(pages) == [MergeGroup(tuple(pages))]


@st.composite
def archives(draw: st.DrawFn) -> list[PageEntry]:
    """Pages of some writers as a service cuts them, some of them large, some of them missing."""
    upcoming = dict.fromkeys("abcd", 1)
    pages = []
    for moment in range(draw(st.integers(0, 25))):
        events = []
        for writer in sorted(draw(st.sets(st.sampled_from("abcd"), min_size=1, max_size=3))):
            count = draw(st.integers(1, 3))
            numbers = range(upcoming[writer], upcoming[writer] + count)
            upcoming[writer] += count
            events += events_of(writer, numbers, at=NOON + moment * SECOND)
        page = sized(entry_of(page_of(events)), draw(st.sampled_from([50, 100, 400, 5000])))
        if draw(st.integers(0, 9)):
            pages.append(page)
    return pages


@given(archives(), st.sampled_from([300, 1000, 10_000]), st.booleans())
@settings(deadline=None)
def test_every_plan_can_be_read_in_order_and_leaves_no_gap(
    pages: list[PageEntry], target: int, is_over: bool
) -> None:
    now = LATER if is_over else NOON + SECOND
    groups = planned(pages, target_bytes=target, now_us=now)
    chosen = [page for group in groups for page in group.pages]
    assert len({page.info.page_id for page in chosen}) == len(chosen)
    assert all(len(group.pages) > 1 for group in groups)
    assert all(page.info.page_size_bytes < 1000 for page in chosen)
    assert all(group.encoded_bytes <= target for group in groups)
    for group in groups:
        for writer in "abcd":
            numbers = _numbers(group.pages, writer)
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
    merged_into = {
        page.info.page_id: number for number, group in enumerate(groups) for page in group.pages
    }
    units = [merged_into.get(page.info.page_id, page.info.page_id) for page in pages]
    assert _can_be_ordered(pages, units)


def _numbers(pages: Sequence[PageEntry], writer: str) -> list[int]:
    return sorted(
        number
        for page in pages
        for span in page.info.writers
        if span.writer_id == writer
        for number in range(span.first_sequence, span.last_sequence + 1)
    )


def _can_be_ordered(pages: list[PageEntry], units: Sequence[object]) -> bool:
    """Whether units without a unit before them can be taken away until none is left."""
    edges = set()
    for writer in "abcd":
        places = sorted(
            (span.first_sequence, unit)
            for page, unit in zip(pages, map(str, units), strict=True)
            for span in page.info.writers
            if span.writer_id == writer
        )
        edges |= {
            (before[1], after[1])
            for before, after in itertools.pairwise(places)
            if before[1] != after[1]
        }
    left = set(map(str, units))
    while left:
        free = {unit for unit in left if not any(b == unit and a in left for a, b in edges)}
        if not free:
            return False
        left -= free
    return True

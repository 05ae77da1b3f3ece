"""What is merged with what: contiguous, folded, small, of one day, and worth the rewriting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.order import moment_of, position_at
from onex_platform.log.compaction.planning import CompactionGroup, plan_compaction
from onex_platform.log.page_table import PageEntry
from onex_platform.log.replay import overlapping
from onex_platform_tests.support.events import at

SMALL, TARGET = 100, 1000
TOMORROW = position_at(at(86_400))


def page(start: float, end: float | None = None, size: int = 10) -> PageEntry:
    """A page with events from `start` up to `end`, in seconds."""
    first, last = position_at(at(start)), position_at(at(start + 1 if end is None else end)) - 1
    return PageEntry(
        page_id=uuid4(),
        key=f"{start}-{end}",
        period=moment_of(first).replace(minute=0, second=0, microsecond=0),
        min_position=first,
        max_position=last,
        event_count=size,
        counters={},
        encoded_bytes=size,
        checksum="",
    )


def plan(pages: Sequence[PageEntry], below: int | datetime = TOMORROW) -> list[list[str]]:
    return [[p.key for p in group.pages] for group in groups(pages, below)]


def groups(pages: Sequence[PageEntry], below: int | datetime = TOMORROW) -> list[CompactionGroup]:
    if isinstance(below, datetime):
        below = position_at(below)
    ordered = sorted(pages, key=lambda p: p.span)
    return list(
        plan_compaction(
            ordered,
            below=below,
            today=moment_of(below).date(),
            small_bytes=SMALL,
            target_bytes=TARGET,
        )
    )


def test_neighbours_are_merged_towards_the_target() -> None:
    pages = [page(second, size=99) for second in range(25)]
    assert [len(group.pages) for group in groups(pages)] == [10, 10, 5]


def test_a_large_page_ends_a_group() -> None:
    pages = [page(0), page(1), page(2, size=SMALL), page(3), page(4)]
    assert plan(pages) == [["0-None", "1-None"], ["3-None", "4-None"]]


def test_facts_stay_with_the_cut_that_they_were_decided_from() -> None:
    cut, facts, next_cut = page(0, 10, size=90), page(4, 8, size=90), page(10, 20, size=90)
    assert plan([cut, facts, next_cut]) == [[cut.key, facts.key, next_cut.key]]
    # With the cut's own pages too large, only the facts beside them are merged, and no further.
    large, more_facts = page(0, 10, size=SMALL), page(5, 9, size=90)
    assert plan([large, facts, more_facts, next_cut]) == [[facts.key, more_facts.key]]


def test_a_cut_larger_than_the_target_is_one_group() -> None:
    pages = [page(0, 10, size=99) for _ in range(16)]
    assert [len(group.pages) for group in groups(pages)] == [16]


def test_only_what_is_folded_is_touched() -> None:
    pages = [page(0, 5), page(5, 10), page(10, 15), page(15, 20)]
    assert plan(pages, at(10)) == [["0-5", "5-10"]]
    # A page that reaches beyond keeps those away that share positions with it.
    assert plan([*pages, page(8, 12)], at(10)) == []


def test_groups_end_with_the_day() -> None:
    noon = [page(hour * 3600) for hour in (10, 11, 12, 13)]
    assert [len(group.pages) for group in groups(noon, position_at(at(50 * 3600)))] == [2, 2]


def test_a_page_is_rewritten_only_with_as_much_beside_it() -> None:
    heavy, light = page(0, size=90), [page(second, size=20) for second in range(1, 4)]
    assert plan([heavy, *light], at(100)) == [[p.key for p in light]]
    assert plan([heavy, *light, page(5, size=30)], at(100)) == [
        [heavy.key, *(p.key for p in light), "5-None"]
    ]
    # When the day is over nothing more will come beside it.
    assert plan([heavy, *light]) == [[heavy.key, *(p.key for p in light)]]


@st.composite
def archives(draw: st.DrawFn) -> list[PageEntry]:
    """Cuts of some seconds each, one page or several, with facts among them or without."""
    pages, second = [], draw(st.integers(0, 60_000))
    sizes = st.integers(1, 3 * SMALL)
    for _ in range(draw(st.integers(0, 30))):
        second += draw(st.sampled_from([0, 0, 1, 4000]))
        length = draw(st.integers(2, 9))
        for _ in range(draw(st.sampled_from([1, 1, 1, 3]))):
            pages.append(page(second, second + length, draw(sizes)))
        if draw(st.booleans()):
            pages.append(page(second + 0.5, second + length - 0.5, draw(sizes)))
        second += length
    return pages


def merged(group: CompactionGroup) -> list[PageEntry]:
    """What the group becomes, in the sizes that it had; several pages if it is large."""
    rest, pages = group.encoded_bytes, []
    while rest > 0:
        pages.append(
            group.pages[0]._replace(
                page_id=uuid4(),
                min_position=min(p.min_position for p in group.pages),
                max_position=max(p.max_position for p in group.pages),
                period=min(p.period for p in group.pages),
                encoded_bytes=min(rest, TARGET),
            )
        )
        rest -= TARGET
    return pages


def chunk_numbers(pages: Sequence[PageEntry]) -> dict[object, int]:
    chunks = overlapping(sorted(pages, key=lambda p: p.span), lambda p: p.span)
    return {p.page_id: number for number, chunk in enumerate(chunks) for p in chunk}


@given(pages=archives(), seconds=st.integers(0, 250_000))
def test_groups_share_no_page_and_reach_no_further_than_their_pages_did(
    pages: list[PageEntry], seconds: int
) -> None:
    below = position_at(at(seconds))
    chunks = chunk_numbers(pages)
    taken: set[object] = set()
    for group in groups(pages, below):
        ids = {p.page_id for p in group.pages}
        assert len(ids) >= 2
        assert not ids & taken
        taken |= ids
        assert all(p.max_position < below and p.encoded_bytes < SMALL for p in group.pages)
        assert len({p.period.date() for p in group.pages}) == 1
        first, last = merged(group)[0].span
        for other in pages:
            if (
                other.page_id not in ids
                and other.min_position <= last >= first <= other.max_position
            ):
                assert chunks[other.page_id] in {chunks[page_id] for page_id in ids}


@given(pages=archives())
def test_merging_again_and_again_comes_to_an_end(pages: list[PageEntry]) -> None:
    below = TOMORROW + position_at(at(86_400)) - position_at(at(0))
    for _ in range(10):
        planned = groups(pages, below)
        if not planned:
            break
        gone = {p.page_id for group in planned for p in group.pages}
        pages = [p for p in pages if p.page_id not in gone]
        pages += [p for group in planned for p in merged(group)]
    assert groups(pages, below) == []


def test_an_event_is_rewritten_a_handful_of_times_however_often_compaction_runs() -> None:
    pages: list[PageEntry] = []
    rewritten = 0
    for second in range(99):
        pages.append(page(second, size=1))
        for group in groups(pages, position_at(at(100))):
            rewritten += group.encoded_bytes
            pages = [p for p in pages if p not in group.pages] + merged(group)
    assert len(pages) <= 7  # log2(99), rounded up
    assert rewritten <= 7 * 99


def test_one_hour_after_another_becomes_one_page_of_the_day() -> None:
    hours = [page(hour * 3600 + 300) for hour in range(10)]
    assert [len(group.pages) for group in groups(hours)] == [10]

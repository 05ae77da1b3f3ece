"""One suite for every index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.index.matching import found
from onex_platform.capture.slots import PageIndex, PageQuery
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.captured_pages import (
    NOON,
    SECOND,
    captured,
    entry_of,
    event,
    events_of,
    info_of,
    page_of,
)
from onex_platform_tests.support.index_servers import EVERY_INDEX, open_one


@pytest.fixture(params=EVERY_INDEX)
def index(request: pytest.FixtureRequest) -> Iterator[PageIndex]:
    """An empty index of each kind."""
    opened = open_one(request)
    yield opened
    opened.close()


@pytest.fixture
def tenant() -> str:
    """One of the test's own."""
    return f"tenant {uuid4()}"


def page(tenant: str, writer: str, *numbers: int, replaces: tuple[str, ...] = ()) -> PageEntry:
    return entry_of(page_of(events_of(writer, numbers, tenant=tenant), replaces=replaces))


def keys(index: PageIndex, tenant: str, **query: object) -> list[str]:
    return [entry.key for entry in index.query(PageQuery(tenant, **query))]  # type: ignore[arg-type]


def test_published_pages_are_found_as_they_are(index: PageIndex, tenant: str) -> None:
    shared = entry_of(
        page_of([event("a b/ä", 2, tenant=tenant), event("名", 1, tenant=tenant)], tags={"k": "v"})
    )
    alone = page(tenant, "c", 5)
    index.publish([alone, shared])
    assert list(index.query(PageQuery(tenant))) == [shared, alone]
    assert list(index.query(PageQuery(tenant, writer_id="名"))) == [shared]
    assert list(index.query(PageQuery(tenant, writer_id="nobody"))) == []
    assert list(index.query(PageQuery("another"))) == []
    assert list(index.replaced(tenant)) == []


def test_pages_come_by_start_then_id(index: PageIndex, tenant: str) -> None:
    entries = [page(tenant, "a", number) for number in (3, 1, 2, 1, 1)]
    index.publish(entries)
    in_order = sorted(entries, key=lambda entry: (entry.info.start_time_us, entry.info.page_id))
    assert list(index.query(PageQuery(tenant))) == in_order


def test_a_range_finds_what_overlaps(index: PageIndex, tenant: str) -> None:
    entry = page(tenant, "a", 10, 11, 12)
    index.publish([entry])

    def is_found(start: int | None, end: int | None, writer: str | None = None) -> bool:
        span = [None if limit is None else NOON + limit * SECOND for limit in (start, end)]
        return bool(keys(index, tenant, from_us=span[0], until_us=span[1], writer_id=writer))

    for writer in (None, "a"):
        assert is_found(None, None, writer)
        assert is_found(11, 12, writer)
        assert is_found(12, None, writer)
        assert not is_found(13, None, writer)
        assert is_found(None, 11, writer)
        assert not is_found(None, 10, writer)


def test_a_writer_is_found_by_his_own_times(index: PageIndex, tenant: str) -> None:
    index.publish(
        [entry_of(page_of([event("a", 1, tenant=tenant), event("b", 100, tenant=tenant)]))]
    )
    late = NOON + 50 * SECOND
    assert keys(index, tenant, from_us=late)
    assert keys(index, tenant, from_us=late, writer_id="b")
    assert not keys(index, tenant, from_us=late, writer_id="a")
    assert not keys(index, tenant, until_us=late, writer_id="b")


def test_a_known_page_stays_as_it_is(index: PageIndex, tenant: str) -> None:
    entry = page(tenant, "a", 1)
    index.publish([entry])
    index.publish([replace(entry, key="elsewhere"), entry])
    assert list(index.query(PageQuery(tenant))) == [entry]


def test_a_replacement_takes_the_place_of_pages(index: PageIndex, tenant: str) -> None:
    old = [page(tenant, "a", 1), page(tenant, "a", 2)]
    other = page(tenant, "a", 3)
    index.publish([*old, other])
    before = index.count()
    merged = page(tenant, "a", 1, 2, replaces=tuple(entry.info.page_id for entry in old))
    index.replace(merged)
    assert list(index.query(PageQuery(tenant))) == [merged, other]
    assert list(index.query(PageQuery(tenant, writer_id="a"))) == [merged, other]
    assert list(index.replaced(tenant)) == old
    assert index.count() == before - 1
    index.publish(old)
    assert list(index.query(PageQuery(tenant))) == [merged, other], "replaced pages come back"


def test_replaced_pages_never_come_back(index: PageIndex, tenant: str) -> None:
    first = page(tenant, "a", 1)
    second = page(tenant, "a", 1, 2, replaces=(first.info.page_id,))
    third = page(tenant, "a", 1, 2, 3, replaces=(second.info.page_id,))
    index.replace(second)
    index.publish([first])  # it is heard of only now
    assert list(index.query(PageQuery(tenant))) == [second]
    index.replace(third)
    assert list(index.query(PageQuery(tenant))) == [third]
    assert index.forget([second.info.page_id]) == 1
    assert list(index.query(PageQuery(tenant))) == [third]
    assert list(index.replaced(tenant)) == [first]


def test_what_is_forgotten_can_be_published_again(index: PageIndex, tenant: str) -> None:
    entries = [page(tenant, "a", number) for number in (1, 2)]
    index.publish(entries)
    before = index.count()
    assert index.forget([entries[0].info.page_id, "unknown"]) == 1
    assert index.forget([entries[0].info.page_id]) == 0
    assert index.count() == before - 1
    assert list(index.query(PageQuery(tenant))) == entries[1:]
    index.publish(entries)
    assert list(index.query(PageQuery(tenant))) == entries


def test_nothing_is_no_trouble(index: PageIndex, tenant: str) -> None:
    index.check()
    index.publish([])
    assert index.forget([]) == 0
    assert list(index.query(PageQuery(tenant))) == []


def test_many_pages_are_found(index: PageIndex, tenant: str) -> None:
    one = page(tenant, "a", 1)
    entries = [
        replace(one, key=f"{number}", info=replace(one.info, page_id=f"{tenant}-{number:05}"))
        for number in range(2500)
    ]
    index.publish(entries)
    assert list(index.query(PageQuery(tenant))) == entries


def test_readers_see_a_replacement_as_one_change(index: PageIndex, tenant: str) -> None:
    """Every look finds each of the writer's events once, whatever is being merged."""
    pages = [page(tenant, "a", number) for number in range(1, 9)]
    index.publish(pages)

    def merge() -> None:
        left = pages
        while len(left) > 1:
            left = [_merged(tenant, *pair) for pair in zip(left[::2], left[1::2], strict=True)]
            for entry in left:
                index.replace(entry)

    merging = Thread(target=merge)
    merging.start()
    looks = 0
    while merging.is_alive() or not looks:
        spans = [entry.info.writers[0] for entry in index.query(PageQuery(tenant))]
        seen = [
            number for one in spans for number in range(one.first_sequence, one.last_sequence + 1)
        ]
        assert sorted(seen) == list(range(1, 9))
        looks += 1
    merging.join()
    assert len(list(index.query(PageQuery(tenant)))) == 1


def _merged(tenant: str, left: PageEntry, right: PageEntry) -> PageEntry:
    numbers = range(left.info.writers[0].first_sequence, right.info.writers[0].last_sequence + 1)
    return page(tenant, "a", *numbers, replaces=(left.info.page_id, right.info.page_id))


@pytest.fixture(params=EVERY_INDEX)
def brief(request: pytest.FixtureRequest) -> Iterator[PageIndex]:
    """An index whose entries live for a second."""
    opened = open_one(request, ttl_seconds=1)
    yield opened
    opened.close()


def test_entries_expire(brief: PageIndex, tenant: str) -> None:
    entry = page(tenant, "a", 1)
    brief.publish([entry])
    assert wait_until(lambda: not keys(brief, tenant) and brief.count() == 0, 60)
    brief.publish([page(tenant, "a", 2), entry])
    assert len(keys(brief, tenant)) == 2, "an expired page can be published again"


@given(data=st.data())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_index_finds_what_the_model_finds(index: PageIndex, data: st.DataObject) -> None:
    tenant = f"tenant {uuid4()}"
    entries = []
    for number, events in enumerate(data.draw(st.lists(captured(), max_size=4))):
        info = replace(info_of(events, page_id=f"{tenant}-{number}"), tenant=tenant)
        entries.append(PageEntry(info, f"{tenant}/{number}", 1, "c"))
    index.publish(entries)
    times = [
        0,
        *(time for one in entries for time in (one.info.start_time_us, one.info.end_time_us)),
    ]
    writers = [None, *(span.writer_id for one in entries for span in one.info.writers)]
    limit = st.one_of(st.none(), st.sampled_from(times))
    for _ in range(3):
        query = PageQuery(
            tenant, data.draw(st.sampled_from(writers)), data.draw(limit), data.draw(limit)
        )
        assert list(index.query(query)) == list(found(query, entries, set()))

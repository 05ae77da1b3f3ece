"""Old captured pages go where that is asked for, oldest first, and leave no gap behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base import faults
from onex_platform.base.errors import InfraConnectionError
from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.captured_events import CapturedEvent, PageEntry
from onex_platform.capture.compaction.page_expiry import expire, expired
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.read.page_proof import prove_pages
from onex_platform.capture.read.reconcile import gaps
from onex_platform.capture.slots import PageQuery
from onex_platform_tests.support.captured_archives import archive_address, store_pages
from onex_platform_tests.support.captured_pages import NOON, entry_of, event, events_of, page_of

_DAY_US = 86_400_000_000
_NOON = datetime.fromtimestamp(NOON / 1e6, UTC)
_NOW = _NOON + timedelta(days=20)


def _page(writer: str, first: int, last: int, day: int) -> list[CapturedEvent]:
    return [
        event(writer, number, at=NOON + day * _DAY_US + number, tenant=DEFAULT_TENANT)
        for number in range(first, last + 1)
    ]


def _archive(folder: Path, **sections: Any) -> CapturedArchive:
    with archive_address(folder, **sections).open() as archive:
        return archive


def _visible(archive: CapturedArchive) -> list[PageEntry]:
    return list(archive.index.query(PageQuery(DEFAULT_TENANT)))


def test_without_a_retention_nothing_is_ever_deleted(tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    store_pages(archive.storage, archive.index, [_page("a", 1, 3, day=0)])
    far = _NOW + timedelta(days=36_500)
    assert expire(archive, far, 100).pages == 0
    assert len(list(archive.storage.list())) == 1


def test_old_pages_go_and_a_dry_run_only_counts_them(tmp_path: Path) -> None:
    archive = _archive(tmp_path, retention={"days": 10})
    pages = [_page("a", 1, 3, day=0), _page("a", 4, 5, day=9), _page("a", 6, 7, day=11)]
    entries = store_pages(archive.storage, archive.index, pages)
    would = expire(archive, _NOW, 100, dry_run=True)
    assert would == (2, sum(entry.storage_size_bytes for entry in entries[:2]))
    assert len(_visible(archive)) == 3
    assert expire(archive, _NOW, 100) == would
    assert _visible(archive) == entries[2:]
    assert [found.key for found in archive.storage.list()] == [entries[2].key]
    assert not prove_pages(archive.index, archive.storage, archive.tenants).faults


def test_a_capped_run_deletes_the_first_pages_of_a_writer(tmp_path: Path) -> None:
    archive = _archive(tmp_path, retention={"days": 10})
    # The writer's clock was set back: its later page has the earlier times.
    entries = store_pages(
        archive.storage, archive.index, [_page("a", 1, 2, day=5), _page("a", 3, 4, day=1)]
    )
    assert expire(archive, _NOW, 1).pages == 1
    assert _visible(archive) == entries[1:]


@pytest.mark.parametrize("moment", ["before:capture.remove_page", "after:capture.remove_page"])
def test_what_an_interrupted_run_left_is_deleted_by_the_next(tmp_path: Path, moment: str) -> None:
    def accident() -> None:
        raise InfraConnectionError("The store went away.")

    archive = _archive(tmp_path, retention={"days": 10})
    store_pages(archive.storage, archive.index, [_page("a", 1, 3, day=0)])
    faults.arm(moment, accident)
    with pytest.raises(InfraConnectionError):
        expire(archive, _NOW, 100)
    assert expire(archive, _NOW, 100).pages == 1
    assert not list(archive.storage.list())
    assert not _visible(archive)


def test_a_merged_page_stays_while_what_it_replaced_is_remembered() -> None:
    events = events_of("a", range(1, 4))
    merged = entry_of(page_of(events, replaces=["old"]))
    later = merged.info.end_time_us + 1
    assert expired([merged], later, {"old"}) == []
    assert expired([merged], later, {"another"}) == [merged]


_STRETCH = st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 9))


@given(
    pages=st.lists(st.lists(_STRETCH, min_size=1, max_size=2), max_size=8), day=st.integers(0, 9)
)
@settings(max_examples=200, deadline=None)
def test_what_stays_has_no_new_gap_and_nothing_young_goes(
    pages: list[list[tuple[str, int, int]]], day: int
) -> None:
    upcoming = dict.fromkeys("ab", 1)
    entries = []
    for stretches in pages:
        events: list[CapturedEvent] = []
        for writer, length, at in sorted({one[0]: one for one in stretches}.values()):
            events += _page(writer, upcoming[writer], upcoming[writer] + length - 1, at)
            upcoming[writer] += length
        entries.append(entry_of(page_of(events)))
    before_us = NOON + day * _DAY_US
    gone = expired(entries, before_us)
    stay = [entry for entry in entries if entry not in gone]
    assert list(gaps(stay)) == []
    assert all(entry.info.end_time_us < before_us for entry in gone)
    if all(entry.info.end_time_us < before_us for entry in entries):
        assert stay == []

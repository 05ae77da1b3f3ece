"""Small captured pages become few: the same events for every reader, whatever is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from onex_platform.base import faults
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.capture.captured_archive import ArchiveAddress, CapturedArchive
from onex_platform.capture.captured_events import EventColumns, PageEntry
from onex_platform.capture.codecs.parquet import event_table
from onex_platform.capture.compaction.compacting import compact, plan, sweep
from onex_platform.capture.compaction.merge_groups import MergeGroup
from onex_platform.capture.compaction.page_merging import (
    UnequalEventsError,
    merge_group,
    merged_page,
)
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.read.event_replay import CursorFile, DamagedPageError, replay
from onex_platform.capture.read.page_selection import Selection, in_reading_order
from onex_platform.capture.read.reconcile import reconcile
from onex_platform.capture.slots import PageQuery
from onex_platform.capture.storage import open_storage
from onex_platform_tests.support.captured_archives import (
    Collected,
    archive_address,
    events_by_writer,
    events_in,
    some_pages,
    store_pages,
)
from onex_platform_tests.support.captured_pages import entry_of, event, events_of
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.index_servers import EVERY_INDEX, open_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 4, 1, tzinfo=UTC)  # the day of the pages is over
ALL = Selection(DEFAULT_TENANT)


@pytest.fixture(params=EVERY_INDEX)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CapturedArchive]:
    """An archive with each kind of index; its store is a folder."""
    index = open_one(request)
    address = archive_address(tmp_path)
    yield CapturedArchive(address, open_storage(address.config.storage), index)
    index.close()


@pytest.fixture
def plain(tmp_path: Path) -> CapturedArchive:
    """An archive whose index is in this process."""
    with archive_address(tmp_path).open() as opened:
        return opened


def merge_all(archive: CapturedArchive) -> list[PageEntry]:
    keys = archive.config.keys().with_extension("parquet")
    return [
        entry
        for group in plan(archive, NOW)
        for entry in merge_group(archive.index, archive.storage, keys, group)
    ]


def visible(archive: CapturedArchive) -> list[PageEntry]:
    return list(archive.index.query(PageQuery(DEFAULT_TENANT)))


def test_many_pages_become_one_with_the_same_events(archive: CapturedArchive) -> None:
    pages = some_pages(40)
    old = store_pages(archive.storage, archive.index, pages)
    [merged] = merge_all(archive)
    assert visible(archive) == [merged]
    assert (merged.info.format, merged.info.reason) == ("parquet", "compaction")
    assert merged.key.endswith(".parquet")
    assert sorted(merged.info.replaces) == sorted(entry.info.page_id for entry in old)
    assert events_in(archive) == events_by_writer(pages)
    assert merge_all(archive) == []
    assert {entry.info.page_id for entry in archive.index.replaced(DEFAULT_TENANT)} == set(
        merged.info.replaces
    )
    swept = sweep(archive, datetime.now(UTC) + timedelta(hours=2))
    assert swept.pages == len(old)
    assert [found.key for found in archive.storage.list()] == [merged.key]
    assert list(archive.index.replaced(DEFAULT_TENANT)) == []
    assert events_in(archive) == events_by_writer(pages)


def test_a_replay_in_progress_goes_on_when_its_pages_are_merged_and_removed(
    archive: CapturedArchive, tmp_path: Path
) -> None:
    pages = some_pages(30)
    store_pages(archive.storage, archive.index, pages)
    sink = Collected()

    def merge_meanwhile(_: object) -> None:
        if merge_all(archive):
            sweep(archive, datetime.now(UTC) + timedelta(hours=2))

    cursor = CursorFile(tmp_path / "cursor", ALL)
    replay(archive.index, archive.storage, ALL, sink, cursor=cursor, report=merge_meanwhile)
    for writer, expected in events_by_writer(pages).items():
        assert [one for one in sink.events if one.writer_id == writer] == expected


def test_a_replaced_page_stays_until_the_grace_has_passed(plain: CapturedArchive) -> None:
    old = store_pages(plain.storage, plain.index, some_pages(5))
    merge_all(plain)
    now = datetime.now(UTC)
    assert sweep(plain, now + timedelta(minutes=59)).pages == 0
    later = now + timedelta(hours=2)
    assert sweep(plain, later, dry_run=True).pages == len(old)
    assert len(list(plain.storage.list())) == len(old) + 1
    assert sweep(plain, later, limit=2).pages == 2
    assert sweep(plain, later).pages == len(old) - 2


def test_pages_that_were_merged_twice_go_before_what_took_their_place(
    plain: CapturedArchive,
) -> None:
    store_pages(plain.storage, plain.index, [events_of("a", [1], tenant=DEFAULT_TENANT)])
    store_pages(plain.storage, plain.index, [events_of("a", [2], tenant=DEFAULT_TENANT)])
    [first] = merge_all(plain)
    store_pages(plain.storage, plain.index, [events_of("a", [3], tenant=DEFAULT_TENANT)])
    [second] = merge_all(plain)
    later = datetime.now(UTC) + timedelta(hours=2)
    for _ in range(4):
        assert sweep(plain, later, limit=1).pages == 1
        plain.index.publish([])
        assert [found.key for found in plain.storage.list()].count(second.key) == 1
    assert [found.key for found in plain.storage.list()] == [second.key]
    assert first.info.page_id in second.info.replaces


def test_a_late_page_between_merged_ones_is_read_in_its_place(plain: CapturedArchive) -> None:
    """Two writers, so that neither of them has a gap in what is merged."""
    early, late = (
        events_of("a", [1], tenant=DEFAULT_TENANT),
        events_of("b", [9], tenant=DEFAULT_TENANT),
    )
    store_pages(plain.storage, plain.index, [early, late])
    assert len(merge_all(plain)) == 1
    between = [event("a", 2, tenant=DEFAULT_TENANT), event("b", 8, tenant=DEFAULT_TENANT)]
    after = events_of("c", [20], tenant=DEFAULT_TENANT)
    store_pages(plain.storage, plain.index, [between, after])
    assert events_in(plain) == events_by_writer([early, late, between, after])
    sizes = [len(group) for group in in_reading_order(visible(plain), ALL)]
    assert sorted(sizes) == [1, 2], "only what is entangled comes together"


def test_a_damaged_page_is_not_merged(plain: CapturedArchive) -> None:
    [first, _] = store_pages(
        plain.storage, plain.index, [events_of("a", [n], tenant=DEFAULT_TENANT) for n in (1, 2)]
    )
    plain.storage.delete(first.key)
    plain.storage.put(first.key, b"other bytes", content_type="x/y", attributes={})
    before = visible(plain)
    with pytest.raises(DamagedPageError):
        merge_all(plain)
    assert visible(plain) == before


def test_pages_that_contradict_each_other_are_not_merged(plain: CapturedArchive) -> None:
    pages = [[event("a", 1, payload=payload, tenant=DEFAULT_TENANT)] for payload in (b"x", b"y")]
    store_pages(plain.storage, plain.index, pages)
    with pytest.raises(UnequalEventsError, match="other bytes"):
        merge_all(plain)


def test_a_group_that_a_rival_has_merged_is_left_to_him(plain: CapturedArchive) -> None:
    store_pages(plain.storage, plain.index, some_pages(6))
    [group] = plan(plain, NOW)
    keys = plain.config.keys().with_extension("parquet")
    assert merge_group(plain.index, plain.storage, keys, group)
    before = visible(plain)
    assert merge_group(plain.index, plain.storage, keys, group) == []
    assert visible(plain) == before


def test_rivals_with_different_groups_do_no_harm(plain: CapturedArchive) -> None:
    pages = [events_of("a", [number], tenant=DEFAULT_TENANT) for number in (1, 2, 3)]
    entries = store_pages(plain.storage, plain.index, pages)
    for some in (entries[:2], entries[1:]):
        events = [one for number in pages for one in number][entries.index(some[0]) :][:2]
        page = merged_page(some, event_table(EventColumns.of(events)))
        entry = entry_of(page)
        plain.storage.put(entry.key, page.data, content_type="x/y", attributes={})
        plain.index.replace(entry)
    assert len(visible(plain)) == 2
    assert events_in(plain) == events_by_writer(pages)
    assert len(merge_all(plain)) == 1, "the next run merges what both wrote"
    assert events_in(plain) == events_by_writer(pages)


def test_an_earlier_attempt_with_other_bytes_and_the_same_events_is_taken(
    plain: CapturedArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_pages(plain.storage, plain.index, some_pages(4))
    [group] = plan(plain, NOW)
    keys = plain.config.keys().with_extension("parquet")
    monkeypatch.setattr(
        "onex_platform.capture.compaction.page_merging.MERGED_FORMAT", ("parquet", "gzip")
    )
    with pytest.raises(InterruptedError):
        interrupted("after:capture.write_merged", plain, group)
    monkeypatch.undo()
    [entry] = merge_group(plain.index, plain.storage, keys, group)
    assert entry.info.compression == "gzip"
    assert visible(plain) == [entry]


def interrupted(point: str, archive: CapturedArchive, group: MergeGroup) -> None:
    def accident() -> None:
        raise InterruptedError(point)

    faults.arm(point, accident)
    keys = archive.config.keys().with_extension("parquet")
    merge_group(archive.index, archive.storage, keys, group)


def test_memory_is_no_index_for_a_run_on_spark(plain: CapturedArchive) -> None:
    with pytest.raises(ConfigurationError, match="memstore"):
        compact(None, plain)  # type: ignore[arg-type]


@pytest.mark.servers
def test_a_run_on_spark_is_capped_and_reports_what_it_did(
    spark: SparkSession, store_settings: Settings, tmp_path: Path
) -> None:
    address = archive_address(
        tmp_path, store_settings, compaction={"small_bytes": 500, "target_bytes": 1000}
    )
    pages = some_pages(60)
    with address.open() as archive:
        [damaged, *_] = store_pages(archive.storage, archive.index, pages)
        groups = plan(archive, NOW)
        first = compact(spark, archive, limit=2)
        assert (first.groups, first.failures) == (2, [])
        assert first.pages == sum(len(group.pages) for group in groups[:2])
        archive.storage.delete(damaged.key)
        rest = compact(spark, archive)
        assert rest.groups == len(groups) - 2
        assert len(visible(archive)) < len(pages) / 3
        assert events_in(archive) == events_by_writer(pages)
        assert compact(spark, archive).groups == 0


# What a task does with its groups, and a sweep, in a process that dies where it was armed to.
_MERGE = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from onex_platform.base import faults
from onex_platform.base.settings import Settings
from onex_platform.capture.captured_archive import ArchiveAddress
from onex_platform.capture.compaction.compacting import plan, sweep
from onex_platform.capture.compaction.page_merging import merge_group
from onex_platform.capture.config import load_config
faults.arm(sys.argv[1])
config = load_config(Path(sys.argv[2]))
with ArchiveAddress(config, Settings()).open() as archive:
    keys = config.keys().with_extension("parquet")
    for group in plan(archive, datetime.now(UTC)):
        merge_group(archive.index, archive.storage, keys, group)
    sweep(archive, datetime.now(UTC) + timedelta(hours=2))
"""


@pytest.mark.servers
@pytest.mark.parametrize(
    ("point", "is_merged"),
    [
        ("before:capture.write_merged", False),
        ("after:capture.write_merged", False),
        ("before:capture.replace_pages", False),
        ("after:capture.replace_pages", True),
        ("before:capture.remove_page", True),
        ("after:capture.remove_page", True),
    ],
)
def test_a_killed_compaction_leaves_the_old_or_the_new_pages_and_the_next_completes_it(
    point: str, is_merged: bool, store_settings: Settings, tmp_path: Path
) -> None:
    address = archive_address(tmp_path, store_settings)
    file = tmp_path / "snapshotter.yaml"
    file.write_text(yaml.safe_dump(_values(address)))
    pages = some_pages(12)
    with address.open() as archive:
        old = store_pages(archive.storage, archive.index, pages)
        assert run_program(_MERGE, point, str(file)) == -signal.SIGKILL
        assert len(visible(archive)) == (1 if is_merged else len(old))
        assert events_in(archive) == events_by_writer(pages)
        merge_all(archive)
        later = datetime.now(UTC) + timedelta(hours=2)
        sweep(archive, later)
        [merged] = visible(archive)
        assert [found.key for found in archive.storage.list()] == [merged.key]
        assert events_in(archive) == events_by_writer(pages)
        account = reconcile(
            archive.index, archive.storage, archive.tenants, later, grace=timedelta(hours=1)
        )
        assert (account.pages, account.unindexed, account.faults) == (1, [], 0)


def _values(address: ArchiveAddress) -> dict[str, object]:
    config = address.config
    connection = config.index.config.connection
    assert connection is not None
    return {
        "plugin": "snapshotter",
        "storage": {
            "backend": "filesystem",
            "config": {"base_path": config.storage.config.base_path},
        },
        "index": {
            "backend": "postgres",
            "config": {"connection": connection.get_secret_value()},
        },
        "compaction": config.compaction.model_dump(),
    }


def test_an_index_that_was_lost_between_write_and_replacement_is_rebuilt_with_the_merged_page(
    plain: CapturedArchive,
) -> None:
    pages = some_pages(8)
    store_pages(plain.storage, plain.index, pages)
    [group] = plan(plain, NOW)
    with pytest.raises(InterruptedError):
        interrupted("before:capture.replace_pages", plain, group)
    later = datetime.now(UTC) + timedelta(hours=2)
    account = reconcile(
        plain.index,
        plain.storage,
        plain.tenants,
        later,
        grace=timedelta(hours=1),
        rebuild=True,
    )
    assert account.rebuilt == 1
    assert len(visible(plain)) == 1
    assert events_in(plain) == events_by_writer(pages)

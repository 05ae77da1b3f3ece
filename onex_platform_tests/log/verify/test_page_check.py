"""The proof finds pages that are missing or damaged, and names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.page_table import PageEntry, PageTable
from onex_platform.log.stats import log_stats
from onex_platform.log.verify.page_check import EnumLogFault, LogFault, verify_pages
from onex_platform_tests.support.written_logs import (
    WrittenLog,
    let_grace_pass,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


def entries(archive: PageArchive) -> list[PageEntry]:
    return list(archive.log.table.entries())


def kinds(faults: list[LogFault]) -> list[EnumLogFault]:
    return [fault.fault for fault in faults]


def test_an_empty_archive_has_no_faults(archive: PageArchive) -> None:
    assert verify_log(archive.log).faults == verify_pages(archive.log, sample=3).faults == []
    stats = log_stats(archive.log)
    assert (stats.pages, stats.oldest, stats.newest) == (0, None, None)


@pytest.mark.parametrize("sample", [None, 1000], ids=["all", "sample"])
def test_missing_and_damaged_pages_are_named_with_their_range(
    archive: PageArchive, log: WrittenLog, sample: int | None
) -> None:
    log.cuts(3)
    missing, damaged, *_ = entries(archive)
    archive.log.store.delete(missing.key)
    archive.log.store.delete(damaged.key)
    archive.log.store.create(damaged.key, b"half of a pa")
    account = verify_pages(archive.log, sample)
    assert kinds(sorted(account.faults)) == [EnumLogFault.DAMAGED, EnumLogFault.MISSING]
    sentences = " ".join(fault.sentence for fault in account.faults)
    for page in (missing, damaged):
        assert page.key in sentences
        assert f"positions {page.min_position} to {page.max_position}" in sentences
        assert "2026-03-01T12:00:0" in sentences


def test_all_pages_are_read_on_spark_each_by_one_task(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(4)
    whole = verify_pages(archive.log, spark=spark)
    assert whole.faults == []
    assert whole.checked_pages == len(entries(archive))
    assert whole.checked_bytes == log_stats(archive.log).bytes
    missing, damaged, *_ = entries(archive)
    archive.log.store.delete(missing.key)
    archive.log.store.delete(damaged.key)
    archive.log.store.create(damaged.key, b"half of a pa")
    found = verify_pages(archive.log, spark=spark)
    assert sorted(found.faults) == sorted(verify_pages(archive.log).faults)
    assert found.checked_pages == whole.checked_pages


def test_a_sample_has_as_many_pages_as_asked_for_and_looks_at_no_other(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(4)
    pages = {page.page_id for page in entries(archive)}
    assert len(pages) > 3
    monkeypatch.setattr(type(archive.log.store), "objects", None)  # the store is not listed
    for size in (1, 3, len(pages), len(pages) + 5):
        chosen = archive.log.table.sample(size)
        assert len({page.page_id for page in chosen}) == len(chosen) == min(size, len(pages))
        assert verify_pages(archive.log, size).checked_pages == len(chosen)
    assert len({archive.log.table.sample(1)[0].page_id for _ in range(50)}) > 1


def test_only_reading_tells_damage_that_keeps_the_size(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    page = entries(archive)[0]
    data = bytearray(archive.log.store.read(page.key))
    data[len(data) // 2] ^= 1
    archive.log.store.delete(page.key)
    archive.log.store.create(page.key, bytes(data))
    assert kinds(verify_pages(archive.log).faults) == [EnumLogFault.DAMAGED]


def test_a_page_that_was_replaced_and_swept_meanwhile_is_no_fault(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(3)
    [group] = plan(archive.log, log.folded)
    before = entries(archive)
    merge_group(archive.log, group)
    let_grace_pass(archive)
    sweep(archive.log)
    monkeypatch.setattr(PageTable, "entries_by_id", lambda *_: iter(before))
    assert verify_pages(archive.log).faults == []

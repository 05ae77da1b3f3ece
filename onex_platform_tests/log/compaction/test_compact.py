"""Small pages become few: the same events, the same rows, and every reader keeps working."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.event_schema import bucket_of
from onex_platform.ingest.hour_counts import hour_counts
from onex_platform.ingest.registration_pages import BEATS, EnumPageReason
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction import merge
from onex_platform.log.compaction.compact import CompactionAccount, compact, plan, sweep
from onex_platform.log.compaction.merge import UnequalMergeError, merge_group, merge_pages
from onex_platform.log.compaction.planning import CompactionGroup
from onex_platform.log.page_format import EncodedPage, open_page, read_page
from onex_platform.log.page_layout import PageLayout
from onex_platform.log.page_log import PageLog
from onex_platform.log.stats import log_stats
from onex_platform.log.store import PageMissingError
from onex_platform.log.verify.page_check import verify_pages
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.events import at
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of
from onex_platform_tests.support.pipeline_runs import drained
from onex_platform_tests.support.written_logs import (
    WrittenLog,
    bucket_events,
    events_of,
    files_of,
    let_grace_pass,
    pages_of,
    require_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers


def with_sizes(archive: PageArchive, below: int, to: int) -> PageLog:
    log = archive.log
    limits = replace(log.limits, small_bytes=below, target_bytes=to)
    return replace(log, address=replace(log.address, limits=limits))


def test_two_hundred_small_pages_become_one_with_the_same_events(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(110)
    before = events_of(archive)
    stats = log_stats(archive.log)
    assert stats.pages == stats.small_pages >= 200
    account = compact(spark, archive.log, log.folded)
    assert account == CompactionAccount(
        groups=1,
        pages=stats.pages,
        merged_pages=1,
        bytes=stats.bytes,
        merged_bytes=log_stats(archive.log).bytes,
        events=len(before),
    )
    [page] = archive.log.table.pages()
    assert page.metadata.reason is EnumPageReason.COMPACTION
    assert account.merged_bytes < account.bytes / 10
    assert events_of(archive) == before
    require_rows(log)
    assert verify_log(archive.log).faults == verify_pages(archive.log).faults == []
    assert compact(spark, archive.log, log.folded) == CompactionAccount()


def test_a_merged_page_counts_in_every_hour_that_it_reaches_into(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(6, seconds=1200)
    hours = [at(0) + n * timedelta(hours=1) for n in range(-1, 4)]
    before = hour_counts(archive.log, hours[0], hours[-1])
    assert [before[hour].pages for hour in hours[:-1]] == [0, 6, 6, 0]
    compact(spark, archive.log, log.folded)
    [page] = archive.log.table.pages()
    after = hour_counts(archive.log, hours[0], hours[-1])
    assert [after[hour].pages for hour in hours[:-1]] == [0, 1, 1, 0]
    size = page.encoded_bytes
    assert [after[hour].bytes for hour in hours[:-1]] == [0, size, size, 0]
    assert [count.read for count in after.values()] == [count.read for count in before.values()]


def test_the_log_goes_on_between_compactions(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    for _ in range(3):
        log.cuts(6)
        compact(spark, archive.log, log.folded)
        log.cuts(2)
        require_rows(log)
        assert verify_log(archive.log).faults == []


def test_the_pipeline_goes_on_from_compacted_pages(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    with open_archive(pipeline_settings) as archive:
        for kind in (EnumEventKind.NODE_INTROSPECTION, EnumEventKind.NODE_ACK):
            for part in range(2):
                send(pipeline_settings, [sent(kind, f"node-{n}") for n in range(part, 20, 2)])
                drained(spark, archive)
            rows = rows_of(archive)
            with archive.database.transaction() as cursor:
                folded = fold_position(cursor, archive.domain)
            assert compact(spark, archive.log, folded).merged_pages == 1
            let_grace_pass(archive)
            assert sweep(archive.log).pages > 1
            assert rows_of(archive) == rows
            require_live_equals_replay(archive)
        assert {row.current_state.value for row in rows.values()} == {"active"}
        assert verify_log(archive.log).faults == []


def test_buckets_stay_apart_in_a_merged_page(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(5)
    [group] = plan(archive.log, log.folded)
    [page] = merge_group(archive.log, group)
    file = open_page(io.BytesIO(archive.log.store.read(page.key)))
    for row_group in page.metadata.row_groups:
        bucket, lane = row_group.bucket, row_group.lane
        table = read_page(archive.log.layout, file, page.metadata, bucket=bucket, lane=lane)
        assert len(table) == row_group.events
        assert {bucket_of(e, archive.log.buckets) for e in table["entity_id"].to_pylist()} == {
            row_group.bucket
        }
        assert pc.all(
            pc.equal(pc.equal(table["kind"], "node.heartbeat.published"), lane == BEATS)
        ).as_py()
        assert table.sort_by([("entity_id", "ascending"), ("position", "ascending")]) == table


@pytest.mark.parametrize("limit", ["_EVENTS_IN_MEMORY", "_BYTES_IN_MEMORY"])
@pytest.mark.parametrize("in_memory", [1, 20, 500_000], ids=["bucket by bucket", "two", "at once"])
def test_a_large_group_is_read_in_several_goes_and_written_as_several_pages(
    archive: PageArchive,
    log: WrittenLog,
    monkeypatch: pytest.MonkeyPatch,
    in_memory: int,
    limit: str,
) -> None:
    monkeypatch.setattr(merge, limit, in_memory)
    log.cuts(9)
    before = events_of(archive)
    [group] = plan(archive.log, log.folded)
    pages = merge_group(with_sizes(archive, below=1, to=1), group)
    assert [page.metadata.bucket_numbers for page in pages] == [[0], [1], [2], [3]]
    assert events_of(archive) == before
    assert verify_log(archive.log).faults == []


def test_pages_that_are_not_folded_yet_are_left_alone(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    folded = log.folded
    log.cuts(2)
    unfolded = {page.key for page in archive.log.table.pages(folded)}
    assert compact(spark, archive.log, folded).groups == 1
    assert {page.key for page in archive.log.table.pages(folded)} == unfolded
    assert len(pages_of(archive)) == 1 + len(unfolded)


def test_a_run_is_capped_and_a_plan_changes_nothing(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(14)
    small = with_sizes(archive, below=30_000, to=60_000)
    before = pages_of(archive)
    first, second, *others = plan(small, log.folded)
    assert others
    assert plan(small, log.folded, limit=2) == [first, second]
    assert pages_of(archive) == before
    account = compact(spark, small, log.folded, limit=2)
    assert (account.groups, account.pages) == (2, len(first.pages) + len(second.pages))
    require_rows(log)


def test_a_reader_in_progress_keeps_working_while_its_pages_are_replaced(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(10)
    expected = events_of(archive)
    pages = pages_of(archive)
    read = bucket_events(archive, pages, 0)
    compact(spark, archive.log, log.folded)
    read += bucket_events(archive, pages, 1)
    assert sweep(archive.log).pages == 0
    for bucket in (2, 3):
        read += bucket_events(archive, pages, bucket)
    assert read == expected
    # Beyond the grace period it is told which page is gone: it never reads less in silence.
    let_grace_pass(archive)
    assert sweep(archive.log).pages == len(pages)
    with pytest.raises(PageMissingError, match="is not in the page archive") as caught:
        events_of(archive, pages)
    assert any(page.key in caught.value.message for page in pages)
    require_rows(log)


def test_replaced_pages_go_after_the_grace_period(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(4)
    old = files_of(archive)
    size = log_stats(archive.log).bytes
    compact(spark, archive.log, log.folded)
    assert sweep(archive.log) == (0, 0)
    let_grace_pass(archive)
    assert sweep(archive.log, dry_run=True) == (len(old), size)
    assert files_of(archive) > old
    assert sweep(archive.log, limit=3).pages == 3
    assert sweep(archive.log).pages == len(old) - 3
    assert files_of(archive) == {page.key for page in archive.log.table.pages()}
    assert log_stats(archive.log).replaced_pages == 0
    require_rows(log)


def test_of_rival_compactions_one_wins_and_the_other_changes_nothing(
    archive: PageArchive, log: WrittenLog
) -> None:
    for _ in range(10):
        log.cuts(3)
        before = events_of(archive)
        [group] = plan(archive.log, log.folded)
        with ThreadPoolExecutor(3) as pool:
            answers = list(
                pool.map(
                    lambda group: merge_group(archive.log, group),
                    [group] * 3,
                )
            )
        assert sorted(len(pages) for pages in answers) == [0, 0, 1]
        assert events_of(archive) == before
    assert verify_log(archive.log).faults == []
    replaced_and_live = log_stats(archive.log)
    assert len(files_of(archive)) == replaced_and_live.pages + replaced_and_live.replaced_pages


def test_a_group_with_a_page_that_was_replaced_changes_nothing(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(6)
    [group] = plan(archive.log, log.folded)
    part = CompactionGroup(group.pages[:4])
    assert merge_group(archive.log, part)
    before = files_of(archive), pages_of(archive)
    assert merge_group(archive.log, group) == []
    assert (files_of(archive), pages_of(archive)) == before


def test_damage_is_reported_and_never_merged_while_other_groups_go_on(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(8)
    small = with_sizes(archive, below=30_000, to=60_000)
    first, *others = plan(small, log.folded)
    damaged = first.pages[1]
    archive.log.store.delete(damaged.key)
    archive.log.store.create(damaged.key, b"not what was written")
    account = compact(spark, small, log.folded)
    assert account.groups == len(others)
    [failure] = account.failures
    assert f"{damaged.key} in the page archive" in failure
    assert "damaged" in failure
    assert archive.log.table.live([page.page_id for page in first.pages]) == {
        page.page_id for page in first.pages
    }


def test_a_merge_that_would_lose_an_event_is_refused(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(3)
    before = pages_of(archive)
    [group] = plan(archive.log, log.folded)

    def careless(
        layout: PageLayout, sources: Sequence[bytes], target_bytes: int
    ) -> Iterator[EncodedPage]:
        return merge_pages(layout, sources[1:], target_bytes)

    with pytest.raises(UnequalMergeError, match="Merging"):
        merge_group(archive.log, group, careless)
    assert pages_of(archive) == before

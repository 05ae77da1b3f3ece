"""The proof finds what is wrong with a log, names it, and is content with one that is whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import Cut, Losses, OffsetRange, Restart
from onex_platform.ingest.index import PageEntry, insert_pages
from onex_platform.ingest.losses import RivalReaderError, accept_losses
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group, merge_pages
from onex_platform.log.page_format import EnumPageReason
from onex_platform.log.stats import archive_stats
from onex_platform.log.store import page_key
from onex_platform.log.verify.orphans import Orphan, delete_orphans, find_orphans
from onex_platform.log.verify.verification import EnumLogFault, LogFault, verify_log, verify_pages
from onex_platform_tests.support.events import at
from onex_platform_tests.support.written_logs import (
    PLACE,
    TARGET,
    WrittenLog,
    files_of,
    let_grace_pass,
    require_rows,
    write_page,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

LATER = datetime.now(UTC) + timedelta(hours=2)


def execute(archive: PageArchive, statement: str, *values: Any) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statement, values)


def entries(archive: PageArchive) -> list[PageEntry]:
    return list(archive.index.entries())


def kinds(faults: list[LogFault]) -> list[EnumLogFault]:
    return [fault.fault for fault in faults]


def test_a_whole_log_has_no_faults_before_and_after_compaction(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(5)
    for _ in range(2):
        account = verify_log(archive)
        assert account.faults == []
        assert (account.cuts, account.lost_offsets) == (5, 0)
        assert account.events == len(log.run.log)
        assert account.offsets == sum(event.provenance is not None for event in log.run.log)
        pages = verify_pages(archive)
        assert pages.faults == []
        assert pages.checked_pages == len(entries(archive))
        assert pages.checked_bytes == archive_stats(archive).bytes
        for group in plan(archive, log.folded):
            assert merge_group(archive.index, archive.store, group, TARGET)


def test_an_empty_archive_has_no_faults(archive: PageArchive) -> None:
    assert verify_log(archive).faults == verify_pages(archive, sample=3).faults == []
    stats = archive_stats(archive)
    assert (stats.pages, stats.oldest, stats.newest) == (0, None, None)


@pytest.mark.parametrize("sample", [None, 1000], ids=["all", "sample"])
def test_missing_and_damaged_pages_are_named_with_their_range(
    archive: PageArchive, log: WrittenLog, sample: int | None
) -> None:
    log.cuts(3)
    missing, damaged, *_ = entries(archive)
    archive.store.delete(missing.key)
    archive.store.delete(damaged.key)
    archive.store.create(damaged.key, b"half of a pa")
    account = verify_pages(archive, sample)
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
    whole = verify_pages(archive, spark=spark)
    assert whole.faults == []
    assert whole.checked_pages == len(entries(archive))
    assert whole.checked_bytes == archive_stats(archive).bytes
    missing, damaged, *_ = entries(archive)
    archive.store.delete(missing.key)
    archive.store.delete(damaged.key)
    archive.store.create(damaged.key, b"half of a pa")
    found = verify_pages(archive, spark=spark)
    assert sorted(found.faults) == sorted(verify_pages(archive).faults)
    assert found.checked_pages == whole.checked_pages


def test_a_sample_has_as_many_pages_as_asked_for_and_looks_at_no_other(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(4)
    pages = {page.page_id for page in entries(archive)}
    assert len(pages) > 3
    monkeypatch.setattr(type(archive.store), "objects", None)  # the store is not listed
    for size in (1, 3, len(pages), len(pages) + 5):
        chosen = archive.index.sample(size)
        assert len({page.page_id for page in chosen}) == len(chosen) == min(size, len(pages))
        assert verify_pages(archive, size).checked_pages == len(chosen)
    assert len({archive.index.sample(1)[0].page_id for _ in range(50)}) > 1


def test_a_recent_stretch_is_judged_by_itself(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(6)
    with archive.database.transaction() as cursor:
        instants = [
            row.instant for row in cursor.execute("SELECT instant FROM log_cuts ORDER BY instant")
        ]
    between = [
        instant + timedelta(milliseconds=offset) for instant in instants for offset in (-1, 0, 1)
    ]
    for since in between:
        account = verify_log(archive, since)
        assert account.faults == []
        assert account.cuts == sum(instant > since for instant in instants)
    # Merged pages reach across where a stretch begins.
    for group in plan(archive, log.folded):
        assert merge_group(archive.index, archive.store, group, TARGET)
    assert all(verify_log(archive, since).faults == [] for since in between)
    early, late = instants[1], instants[-1]
    for instant, seen in ((early, False), (late, True)):
        execute(
            archive,
            "UPDATE cut_ranges SET start_offset = start_offset + 1"
            " WHERE instant = %s AND end_offset > start_offset + 1",
            instant,
        )
        assert kinds(verify_log(archive).faults) != []
        assert (kinds(verify_log(archive, instants[3]).faults) != []) == seen


def test_a_loss_from_before_a_stretch_is_no_gap_in_it(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = archive.index.cursors().values()
    accept_losses(archive, Losses(deleted={PLACE: OffsetRange(end, end + 10)}))
    begun = archive.index.head()
    for offset in (end + 10, end + 12):
        head = archive.index.head()
        cut = head + timedelta(seconds=5)
        execute(
            archive,
            "INSERT INTO log_cuts"
            " (domain, closed_before, instant, read, archived, parked, duplicates)"
            " VALUES (%s, %s, %s, 2, 0, 2, 0)",
            *(archive.domain, head, cut),
        )
        execute(
            archive,
            "INSERT INTO cut_ranges (domain, instant, topic, partition, start_offset, end_offset)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            *(archive.domain, cut, *PLACE, offset, offset + 2),
        )
        execute(archive, "UPDATE logs SET head = %s", cut)
        execute(archive, "UPDATE consumer_cursors SET next_offset = %s", offset + 2)
    assert verify_log(archive).faults == []
    for since in (begun, head):  # the cut that follows the loss is in the stretch, or before it
        assert verify_log(archive, since).faults == []
    execute(archive, "UPDATE lost_ranges SET start_offset = start_offset + 1")
    assert kinds(verify_log(archive).faults) == [EnumLogFault.GAP]


def test_the_whole_log_is_proved_without_the_statement_limit(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(2)
    limits = []

    def noted(cursor: Cursor, query: str, parameters: Any = None) -> Any:
        limits.append(fetch_one(cursor, "SHOW statement_timeout").statement_timeout)
        return fetch_one(cursor, query, parameters)

    monkeypatch.setattr("onex_platform.log.verify.verification.fetch_one", noted)
    verify_log(archive)
    verify_log(archive, at(0))
    assert limits == ["0", "1min"]


def test_only_reading_tells_damage_that_keeps_the_size(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    page = entries(archive)[0]
    data = bytearray(archive.store.read(page.key))
    data[len(data) // 2] ^= 1
    archive.store.delete(page.key)
    archive.store.create(page.key, bytes(data))
    assert kinds(verify_pages(archive).faults) == [EnumLogFault.DAMAGED]


def test_a_page_that_was_replaced_and_swept_meanwhile_is_no_fault(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(3)
    [group] = plan(archive, log.folded)
    before = entries(archive)
    merge_group(archive.index, archive.store, group, TARGET)
    let_grace_pass(archive)
    sweep(archive)
    monkeypatch.setattr(type(archive.index), "entries_by_id", lambda *_: iter(before))
    assert verify_pages(archive).faults == []


def test_events_that_are_in_no_page_or_twice_are_named(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(4)
    page = next(iter(archive.index.pages(reasons=[EnumPageReason.INGEST])))
    execute(archive, "DELETE FROM pages WHERE page_id = %s", page.metadata.page_id)
    [fault] = verify_log(archive).faults
    assert fault.fault is EnumLogFault.GAP
    assert f"{page.metadata.event_count} events were archived at positions" in fault.sentence
    assert "0 are in pages" in fault.sentence
    twin = page._replace(
        metadata=page.metadata.model_copy(update={"page_id": uuid4()}), key="another"
    )
    with archive.database.transaction() as cursor:
        insert_pages(cursor, [page, twin])
    assert kinds(verify_log(archive).faults) == [EnumLogFault.OVERLAP]


@pytest.mark.parametrize(
    ("statement", "fault", "sentence"),
    [
        (
            "UPDATE cut_ranges SET start_offset = start_offset + 2 WHERE start_offset > 0",
            EnumLogFault.GAP,
            "input[0] offsets 3 to 4 are in no cut.",
        ),
        (
            "UPDATE cut_ranges SET start_offset = start_offset - 1 WHERE start_offset > 0",
            EnumLogFault.OVERLAP,
            "input[0] offsets 2 to 2 are in two cuts.",
        ),
        (
            "UPDATE consumer_cursors SET next_offset = next_offset + 5",
            EnumLogFault.GAP,
            "input[0] offsets 7 to 11 are in no cut.",
        ),
        (
            "DELETE FROM consumer_cursors",
            EnumLogFault.GAP,
            "input[0] was read up to offset 6, but has no cursor.",
        ),
        (
            "UPDATE logs SET head = head - interval '1 ms'",
            EnumLogFault.OVERLAP,
            "The cut up to 2026-03-01 12:00:10+00:00 reaches beyond",
        ),
    ],
    ids=["gap", "overlap", "cursor ahead", "no cursor", "head behind"],
)
def test_gaps_and_overlaps_of_cuts_are_named(
    archive: PageArchive, log: WrittenLog, statement: str, fault: EnumLogFault, sentence: str
) -> None:
    log.cuts(2)
    assert verify_log(archive).faults == []
    execute(archive, statement)
    found = verify_log(archive).faults
    assert fault in kinds(found)
    assert any(sentence in item.sentence for item in found), found


def test_accepted_losses_close_the_gap_and_stay_on_record(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = archive.index.cursors().values()
    lost = Losses(deleted={PLACE: OffsetRange(end, end + 10)})
    accept_losses(archive, lost)
    account = verify_log(archive)
    assert (account.faults, account.lost_offsets) == ([], 10)
    assert archive.index.cursors() == {PLACE: end + 10}
    with pytest.raises(RivalReaderError):
        accept_losses(archive, lost)
    assert verify_log(archive).lost_offsets == 10


def test_offsets_that_began_anew_have_an_account_of_their_own(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = archive.index.cursors().values()
    restart = Losses(restarted={PLACE: Restart(end, OffsetRange(0, 3))})
    accept_losses(archive, restart)
    assert archive.index.cursors() == {PLACE: 0}
    with pytest.raises(RivalReaderError):
        accept_losses(archive, restart)
    accept_losses(archive, Losses(deleted={PLACE: OffsetRange(0, 2)}))
    account = verify_log(archive)
    assert (account.faults, account.restarts, account.lost_offsets) == ([], 1, 2)
    # Where the old offsets ended is part of the account: nothing may be missing before it.
    execute(archive, "UPDATE offset_restarts SET next_offset = next_offset + 1")
    assert kinds(verify_log(archive).faults) == [EnumLogFault.GAP]


def orphans_of(archive: PageArchive, folded: int, now: datetime = LATER) -> list[Orphan]:
    return list(find_orphans(archive, folded, now))


def a_cut(start: float, end: float) -> Cut:
    return Cut(at(start), at(end), {}, {}, {})


def left_behind(log: WrittenLog, reason: EnumPageReason, *, passed: bool) -> str:
    """A page that a killed run wrote: of events that were entered since, or of the last ones."""
    events = [event for event in log.run.log if event.provenance is not None]
    last = [event for event in events if event.position >= position_at(at(10))]
    return write_page(log.archive, events[:3] if passed else last, reason, a_cut(0, 5)).key


@pytest.mark.parametrize("reason", [EnumPageReason.INGEST, EnumPageReason.DECISION])
def test_an_orphan_is_dead_once_the_log_is_past_it(
    archive: PageArchive, log: WrittenLog, reason: EnumPageReason
) -> None:
    log.cuts(3)
    dead = left_behind(log, reason, passed=True)
    alive = left_behind(log, reason, passed=False)
    execute(archive, "UPDATE logs SET head = %s", at(10))
    found = {orphan.key: orphan.dead for orphan in orphans_of(archive, position_at(at(10)))}
    assert found == {dead: True, alive: False}


def test_a_merged_page_is_dead_once_a_page_that_it_was_to_replace_is_replaced(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [group] = plan(archive, log.folded)
    sources = [archive.store.read(page.key) for page in group.pages]
    [merged] = merge_pages(sources, TARGET)
    orphan = page_key(merged.metadata)
    archive.store.create(orphan, merged.data)
    assert [(o.key, o.dead) for o in orphans_of(archive, log.folded)] == [(orphan, False)]
    assert merge_group(archive.index, archive.store, group, TARGET)
    [found] = orphans_of(archive, log.folded)
    assert (found.key, found.dead) == (orphan, True)
    assert delete_orphans(archive, [found]) == 1
    assert orphan not in files_of(archive)
    assert orphans_of(archive, log.folded) == []
    require_rows(log)


def test_young_files_other_files_and_unreadable_files_are_safe(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    left_behind(log, EnumPageReason.INGEST, passed=True)
    archive.store.create("registration/states/something.parquet", b"a colleague's")
    assert orphans_of(archive, log.folded, datetime.now(UTC)) == []
    unreadable = f"registration/2026/03/01/12/{uuid4()}.parquet"
    archive.store.create(unreadable, b"no page at all")
    before = files_of(archive)
    found = orphans_of(archive, log.folded)
    assert {orphan.key: orphan.dead for orphan in found}[unreadable] is False
    assert delete_orphans(archive, found) == 1
    assert len(files_of(archive)) == len(before) - 1
    require_rows(log)


def test_what_is_committed_while_it_is_judged_is_no_orphan(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(2)
    [group] = plan(archive, log.folded)
    known: Callable[[list[str]], set[str]] = archive.index.known
    answers = iter([lambda keys: set(), known])
    monkeypatch.setattr(archive.index, "known", lambda keys: next(answers)(keys))
    assert merge_group(archive.index, archive.store, group, TARGET)
    assert orphans_of(archive, log.folded) == []

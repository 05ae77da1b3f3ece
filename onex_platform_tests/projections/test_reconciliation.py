"""The accounts of the log: each look counts what is new, and finds what does not add up in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onex_platform.checks import Verdict
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.compaction.compact import compact
from onex_platform.projections.checks import accounting
from onex_platform.projections.reconciliation import LogAccounts, look, settle
from onex_platform_tests.support.written_logs import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

# What the schema refuses can still be written by a server whose constraints were dropped. The first
# two hide behind totals that add up.
FAULTS = {
    "unbalanced cuts": (
        "ALTER TABLE log_cuts DROP CONSTRAINT every_record_is_archived_parked_or_echo;"
        "UPDATE log_cuts SET read = read + 1"
        " WHERE instant = (SELECT max(instant) FROM log_cuts);"
        "UPDATE log_cuts SET read = read - 1"
        " WHERE instant = (SELECT max(closed_before) FROM log_cuts)"
    ),
    "unbalanced batches": (
        "ALTER TABLE batch_outcomes DROP CONSTRAINT every_record_has_one_outcome;"
        "UPDATE batch_outcomes SET applied = applied + 1"
        " WHERE end_position = (SELECT max(end_position) FROM batch_outcomes);"
        "UPDATE batch_outcomes SET applied = applied - 1"
        " WHERE end_position = (SELECT max(start_position) FROM batch_outcomes)"
    ),
    "overlapping cuts": (
        "UPDATE log_cuts SET closed_before = closed_before - interval '1 ms'"
        " WHERE instant = (SELECT max(instant) FROM log_cuts)"
    ),
    "overlapping batches": (
        "UPDATE batch_outcomes SET start_position = start_position - 1"
        " WHERE end_position = (SELECT max(end_position) FROM batch_outcomes)"
    ),
}
LOSSES = {
    "a batch": (
        "DELETE FROM batch_outcomes"
        " WHERE end_position = (SELECT max(end_position) FROM batch_outcomes)"
    ),
    "a page": "DELETE FROM pages WHERE max_position = (SELECT max(max_position) FROM pages)",
}


@pytest.fixture
def log(archive: PageArchive) -> WrittenLog:
    return WrittenLog(archive)


def settled(archive: PageArchive) -> int:
    return settle(archive.log, look(archive.log))


def looked(archive: PageArchive, *, whole: bool = False) -> LogAccounts:
    """Look, and note what is right, as every run does."""
    found = look(archive.log, whole=whole)
    settle(archive.log, found)
    return found


def judged(archive: PageArchive, *, whole: bool = False) -> Verdict:
    return accounting(looked(archive, whole=whole))


def execute(archive: PageArchive, statements: str) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statements)


def test_a_look_settles_nothing(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(3)
    first = look(archive.log)
    assert (first.hold, first.settled, first.right_to) == (True, 0, log.folded)
    assert look(archive.log) == first
    assert settle(archive.log, first) == log.folded
    assert (look(archive.log).settled, look(archive.log).counted.cuts) == (log.folded, 0)


def test_of_rivals_the_first_settles(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(2)
    slow = look(archive.log)
    log.cuts(2)
    assert settled(archive) == log.folded
    assert settle(archive.log, slow) == log.folded


def test_what_was_found_right_is_not_counted_again(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(3)
    first = looked(archive)
    assert (first.hold, first.counted.cuts, first.counted.batches) == (True, 3, 3)
    assert first.totals.in_pages == len(log.run.log)
    assert settled(archive) == log.folded
    again = looked(archive)
    assert (again.hold, again.counted.cuts, again.totals) == (True, 0, first.totals)
    log.cuts(2)
    further = looked(archive)
    assert (further.hold, further.counted.cuts, further.counted.batches) == (True, 2, 2)
    assert further.totals.in_pages == len(log.run.log)
    whole = looked(archive, whole=True)
    assert (whole.hold, whole.counted.cuts, whole.totals) == (True, 5, further.totals)


def test_a_long_log_is_counted_in_stretches(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(7)
    at_once = look(archive.log)
    monkeypatch.setattr("onex_platform.projections.reconciliation.BATCHES_AT_ONCE", 3)
    assert look(archive.log) == at_once
    assert look(archive.log, whole=True) == at_once
    execute(archive, FAULTS["overlapping cuts"])
    assert look(archive.log, whole=True).counted.overlapping_cuts == 1


def test_pages_are_merged_only_where_they_are_counted(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(3)
    counted = settled(archive)
    log.cuts(2)
    assert compact(spark, archive.log, counted).groups == 1
    further = looked(archive)
    assert (further.hold, further.counted.cuts) == (True, 2)
    assert compact(spark, archive.log, settled(archive)).groups == 1
    for whole in (False, True):
        assert look(archive.log, whole=whole).totals == further.totals
        assert judged(archive, whole=whole).passed


def test_nothing_is_counted_before_it_is_folded(archive: PageArchive, log: WrittenLog) -> None:
    assert judged(archive).passed
    log.cuts(1)
    assert judged(archive).passed
    before = settled(archive)
    log.cuts(1)
    execute(archive, "UPDATE fold_cursors SET position = position - 1")
    assert (judged(archive).passed, settled(archive) > before) == (False, False)


@pytest.mark.parametrize("verified", [2, 0], ids=["after others", "from the beginning"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_account_that_is_wrong_of_itself_is_found(
    archive: PageArchive, log: WrittenLog, fault: str, verified: int
) -> None:
    log.cuts(verified)
    before = settled(archive)
    log.cuts(2)
    execute(archive, FAULTS[fault])
    for whole in (False, False, True):
        verdict = judged(archive, whole=whole)
        assert not verdict.passed
        assert f"{verdict.metadata[fault]} {fault}" in verdict.description
    assert settled(archive) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_found_by_the_next_look(archive: PageArchive, log: WrittenLog, loss: str) -> None:
    log.cuts(2)
    before = settled(archive)
    log.cuts(1)
    execute(archive, LOSSES[loss])
    assert not judged(archive).passed
    assert settled(archive) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_after_it_was_counted_is_found_by_the_recount(
    archive: PageArchive, log: WrittenLog, loss: str
) -> None:
    log.cuts(3)
    assert judged(archive).passed
    execute(archive, LOSSES[loss])
    assert judged(archive).passed
    assert not judged(archive, whole=True).passed


def test_history_that_changed_in_all_accounts_alike_is_found_by_the_recount(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(3)
    assert judged(archive).passed
    execute(
        archive,
        "DELETE FROM cut_ranges; DELETE FROM log_cuts; DELETE FROM pages;"
        "DELETE FROM batch_outcomes",
    )
    assert judged(archive).passed
    verdict = judged(archive, whole=True)
    assert not verdict.passed
    assert "Other than when they were found right: applied, archived" in verdict.description

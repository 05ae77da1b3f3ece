"""The accounts of the log: each look counts what is new, and finds what does not add up in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onex_platform.ingest.archive import PageArchive
from onex_platform.log.compaction.compact import compact
from onex_platform.projections.checks import accounting
from onex_platform.projections.reconciliation import accounted_to, look
from onex_platform_tests.support.written_logs import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

# What the schema refuses can still be written by a server whose constraints were dropped. The first
# two hide behind totals that add up.
FAULTS = {
    "unbalanced cuts": (
        "ALTER TABLE log_cuts DROP CONSTRAINT every_record_is_archived_or_parked;"
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


def execute(archive: PageArchive, statements: str) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statements)


def test_what_was_found_right_is_not_counted_again(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(3)
    first = look(archive)
    assert (first.hold, first.counted.cuts, first.counted.batches) == (True, 3, 3)
    assert first.totals.in_pages == len(log.run.log)
    assert accounted_to(archive) == log.folded
    again = look(archive)
    assert (again.hold, again.counted.cuts, again.totals) == (True, 0, first.totals)
    log.cuts(2)
    further = look(archive)
    assert (further.hold, further.counted.cuts, further.counted.batches) == (True, 2, 2)
    assert further.totals.in_pages == len(log.run.log)
    whole = look(archive, whole=True)
    assert (whole.hold, whole.counted.cuts, whole.totals) == (True, 5, further.totals)


def test_a_long_log_is_counted_in_stretches(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(7)
    at_once = look(archive)
    execute(archive, "DELETE FROM verified_accounts")
    monkeypatch.setattr("onex_platform.projections.reconciliation._BATCHES_AT_ONCE", 3)
    assert look(archive) == at_once
    assert look(archive, whole=True) == at_once
    execute(archive, FAULTS["overlapping cuts"])
    assert look(archive, whole=True).counted.overlapping_cuts == 1


def test_pages_are_merged_only_where_they_are_counted(
    spark: SparkSession, archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(3)
    counted = accounted_to(archive)
    log.cuts(2)
    assert compact(spark, archive.log, counted).groups == 1
    further = look(archive)
    assert (further.hold, further.counted.cuts) == (True, 2)
    assert compact(spark, archive.log, accounted_to(archive)).groups == 1
    for whole in (False, True):
        assert look(archive, whole=whole).totals == further.totals
        assert accounting(archive, whole=whole).passed


def test_nothing_is_counted_before_it_is_folded(archive: PageArchive, log: WrittenLog) -> None:
    assert accounting(archive).passed
    log.cuts(1)
    assert accounting(archive).passed
    before = accounted_to(archive)
    log.cuts(1)
    execute(archive, "UPDATE fold_cursors SET position = position - 1")
    assert (accounting(archive).passed, accounted_to(archive) > before) == (False, False)


@pytest.mark.parametrize("verified", [2, 0], ids=["after others", "from the beginning"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_account_that_is_wrong_of_itself_is_found(
    archive: PageArchive, log: WrittenLog, fault: str, verified: int
) -> None:
    log.cuts(verified)
    before = accounted_to(archive)
    log.cuts(2)
    execute(archive, FAULTS[fault])
    for whole in (False, False, True):
        verdict = accounting(archive, whole=whole)
        assert not verdict.passed
        assert f"{verdict.metadata[fault]} {fault}" in verdict.description
    assert accounted_to(archive) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_found_by_the_next_look(archive: PageArchive, log: WrittenLog, loss: str) -> None:
    log.cuts(2)
    before = accounted_to(archive)
    log.cuts(1)
    execute(archive, LOSSES[loss])
    assert not accounting(archive).passed
    assert accounted_to(archive) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_after_it_was_counted_is_found_by_the_recount(
    archive: PageArchive, log: WrittenLog, loss: str
) -> None:
    log.cuts(3)
    assert accounting(archive).passed
    execute(archive, LOSSES[loss])
    assert accounting(archive).passed
    assert not accounting(archive, whole=True).passed


def test_history_that_changed_in_all_accounts_alike_is_found_by_the_recount(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(3)
    assert accounting(archive).passed
    execute(
        archive,
        "DELETE FROM cut_ranges; DELETE FROM log_cuts; DELETE FROM pages;"
        "DELETE FROM batch_outcomes",
    )
    assert accounting(archive).passed
    verdict = accounting(archive, whole=True)
    assert not verdict.passed
    assert "Other than when they were found right: applied, archived" in verdict.description

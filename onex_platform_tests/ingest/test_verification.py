"""The proof finds what is wrong with cuts and offsets, and is content with a whole log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg.errors import CheckViolation

from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import Losses, OffsetRange, Restart
from onex_platform.ingest.inputs import next_offsets
from onex_platform.ingest.losses import RivalReaderError, accept_losses
from onex_platform.ingest.registration_pages import EnumPageReason
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction.compact import plan
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.page_table import PageEntry, insert_pages
from onex_platform.log.stats import log_stats
from onex_platform.log.verify.page_check import EnumLogFault, LogFault, verify_pages
from onex_platform_tests.support.events import at
from onex_platform_tests.support.written_logs import (
    PLACE,
    WrittenLog,
)

pytestmark = pytest.mark.servers


def execute(archive: PageArchive, statement: str, *values: Any) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statement, values)


def entries(archive: PageArchive) -> list[PageEntry]:
    return list(archive.log.table.entries())


def kinds(faults: list[LogFault]) -> list[EnumLogFault]:
    return [fault.fault for fault in faults]


def test_a_whole_log_has_no_faults_before_and_after_compaction(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(5)
    for _ in range(2):
        account = verify_log(archive.log)
        assert account.faults == []
        assert (account.cuts, account.lost_offsets) == (5, 0)
        assert account.events == len(log.run.log)
        assert account.offsets == sum(event.provenance is not None for event in log.run.log)
        pages = verify_pages(archive.log)
        assert pages.faults == []
        assert pages.checked_pages == len(entries(archive))
        assert pages.checked_bytes == log_stats(archive.log).bytes
        for group in plan(archive.log, log.folded):
            assert merge_group(archive.log, group)


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
        account = verify_log(archive.log, since)
        assert account.faults == []
        assert account.cuts == sum(instant > since for instant in instants)
    # Merged pages reach across where a stretch begins.
    for group in plan(archive.log, log.folded):
        assert merge_group(archive.log, group)
    assert all(verify_log(archive.log, since).faults == [] for since in between)
    early, late = instants[1], instants[-1]
    for instant, seen in ((early, False), (late, True)):
        execute(
            archive,
            "UPDATE cut_ranges SET start_offset = start_offset + 1"
            " WHERE instant = %s AND end_offset > start_offset + 1",
            instant,
        )
        assert kinds(verify_log(archive.log).faults) != []
        assert (kinds(verify_log(archive.log, instants[3]).faults) != []) == seen


def test_a_loss_from_before_a_stretch_is_no_gap_in_it(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = next_offsets(archive.platform).values()
    accept_losses(archive.platform, Losses(deleted={PLACE: OffsetRange(end, end + 10)}))
    begun = archive.cuts.head()
    for offset in (end + 10, end + 12):
        head = archive.cuts.head()
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
        execute(archive, "UPDATE log_heads SET head = %s", cut)
        execute(archive, "UPDATE consumer_cursors SET next_offset = %s", offset + 2)
    assert verify_log(archive.log).faults == []
    for since in (begun, head):  # the cut that follows the loss is in the stretch, or before it
        assert verify_log(archive.log, since).faults == []
    execute(archive, "UPDATE lost_ranges SET start_offset = start_offset + 1")
    assert kinds(verify_log(archive.log).faults) == [EnumLogFault.GAP]


def test_the_whole_log_is_proved_without_the_statement_limit(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(2)
    limits = []

    def noted(cursor: Cursor, query: str, parameters: Any = None) -> Any:
        limits.append(fetch_one(cursor, "SHOW statement_timeout").statement_timeout)
        return fetch_one(cursor, query, parameters)

    monkeypatch.setattr("onex_platform.ingest.verification.fetch_one", noted)
    verify_log(archive.log)
    verify_log(archive.log, at(0))
    assert limits == ["0", "1min"]


def test_events_that_are_in_no_page_or_twice_are_named(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(4)
    page = next(iter(archive.log.table.pages(reasons=[EnumPageReason.INGEST])))
    execute(archive, "DELETE FROM pages WHERE page_id = %s", page.metadata.page_id)
    [fault] = verify_log(archive.log).faults
    assert fault.fault is EnumLogFault.GAP
    assert f"{page.metadata.event_count} events were archived at positions" in fault.sentence
    assert "0 are in pages" in fault.sentence
    twin = page._replace(
        metadata=page.metadata.model_copy(update={"page_id": uuid4()}), key="another"
    )
    with archive.database.transaction() as cursor:
        insert_pages(cursor, [page, twin])
    assert kinds(verify_log(archive.log).faults) == [EnumLogFault.OVERLAP]


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
            "UPDATE log_heads SET head = head - interval '1 ms'",
            EnumLogFault.OVERLAP,
            "The cut up to 2026-03-01 12:00:10+00:00 reaches beyond",
        ),
        (
            "UPDATE log_cuts SET read = read + 1, duplicates = duplicates + 1, echoes = 1",
            EnumLogFault.GAP,
            "The cut up to 2026-03-01 12:00:10+00:00 read 1 echoes, 0 are noted.",
        ),
        (
            "UPDATE cut_ranges SET echoes = int8multirange(int8range(start_offset, end_offset))",
            EnumLogFault.OVERLAP,
            "The cut up to 2026-03-01 12:00:10+00:00 read 0 echoes, 4 are noted.",
        ),
    ],
    ids=[
        *("gap", "overlap", "cursor ahead", "no cursor", "head behind"),
        *("echoes without offsets", "offsets without echoes"),
    ],
)
def test_gaps_and_overlaps_of_cuts_are_named(
    archive: PageArchive, log: WrittenLog, statement: str, fault: EnumLogFault, sentence: str
) -> None:
    log.cuts(2)
    assert verify_log(archive.log).faults == []
    execute(archive, statement)
    found = verify_log(archive.log).faults
    assert fault in kinds(found)
    assert any(sentence in item.sentence for item in found), found


def test_offsets_that_were_not_read_are_no_echoes(archive: PageArchive, log: WrittenLog) -> None:
    log.cuts(1)
    with pytest.raises(CheckViolation, match="echoes_were_read"):
        execute(archive, "UPDATE cut_ranges SET echoes = '{[2,4)}'")


def test_accepted_losses_close_the_gap_and_stay_on_record(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = next_offsets(archive.platform).values()
    lost = Losses(deleted={PLACE: OffsetRange(end, end + 10)})
    accept_losses(archive.platform, lost)
    account = verify_log(archive.log)
    assert (account.faults, account.lost_offsets) == ([], 10)
    assert next_offsets(archive.platform) == {PLACE: end + 10}
    with pytest.raises(RivalReaderError):
        accept_losses(archive.platform, lost)
    assert verify_log(archive.log).lost_offsets == 10


def test_offsets_that_began_anew_have_an_account_of_their_own(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [end] = next_offsets(archive.platform).values()
    restart = Losses(restarted={PLACE: Restart(end, OffsetRange(0, 3))})
    accept_losses(archive.platform, restart)
    assert next_offsets(archive.platform) == {PLACE: 0}
    with pytest.raises(RivalReaderError):
        accept_losses(archive.platform, restart)
    accept_losses(archive.platform, Losses(deleted={PLACE: OffsetRange(0, 2)}))
    account = verify_log(archive.log)
    assert (account.faults, account.restarts, account.lost_offsets) == ([], 1, 2)
    # Where the old offsets ended is part of the account: nothing may be missing before it.
    execute(archive, "UPDATE offset_restarts SET next_offset = next_offset + 1")
    assert kinds(verify_log(archive.log).faults) == [EnumLogFault.GAP]

"""An orphan is deleted once it is proven dead, and not before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from onex_platform.domain.order import position_at
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import Cut
from onex_platform.ingest.registration_pages import EnumPageReason
from onex_platform.log.compaction.compact import plan
from onex_platform.log.compaction.merge import merge_group, merge_pages
from onex_platform.log.page_table import PageTable
from onex_platform.log.store import page_key
from onex_platform.log.verify.orphans import delete_orphans
from onex_platform_tests.support.events import at
from onex_platform_tests.support.written_logs import (
    TARGET,
    WrittenLog,
    files_of,
    orphans_of,
    require_rows,
    write_page,
)

pytestmark = pytest.mark.servers


def execute(archive: PageArchive, statement: str, *values: Any) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute(statement, values)


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
    execute(archive, "UPDATE log_heads SET head = %s", at(10))
    found = {orphan.key: orphan.dead for orphan in orphans_of(archive, position_at(at(10)))}
    assert found == {dead: True, alive: False}


def test_a_merged_page_is_dead_once_a_page_that_it_was_to_replace_is_replaced(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    [group] = plan(archive.log, log.folded)
    sources = [archive.log.store.read(page.key) for page in group.pages]
    [merged] = merge_pages(archive.log.layout, sources, TARGET)
    orphan = page_key(merged.metadata)
    archive.log.store.create(orphan, merged.data)
    assert [(o.key, o.dead) for o in orphans_of(archive, log.folded)] == [(orphan, False)]
    assert merge_group(archive.log, group)
    [found] = orphans_of(archive, log.folded)
    assert (found.key, found.dead) == (orphan, True)
    assert delete_orphans(archive.log, [found]) == 1
    assert orphan not in files_of(archive)
    assert orphans_of(archive, log.folded) == []
    require_rows(log)


def test_young_files_other_files_and_unreadable_files_are_safe(
    archive: PageArchive, log: WrittenLog
) -> None:
    log.cuts(2)
    left_behind(log, EnumPageReason.INGEST, passed=True)
    archive.log.store.create("registration/states/something.parquet", b"a colleague's")
    assert orphans_of(archive, log.folded, datetime.now(UTC)) == []
    unreadable = f"registration/2026/03/01/12/{uuid4()}.parquet"
    archive.log.store.create(unreadable, b"no page at all")
    before = files_of(archive)
    found = orphans_of(archive, log.folded)
    assert {orphan.key: orphan.dead for orphan in found}[unreadable] is False
    assert delete_orphans(archive.log, found) == 1
    assert len(files_of(archive)) == len(before) - 1
    require_rows(log)


def test_what_is_committed_while_it_is_judged_is_no_orphan(
    archive: PageArchive, log: WrittenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.cuts(2)
    [group] = plan(archive.log, log.folded)
    known: Callable[[list[str]], set[str]] = archive.log.table.known
    answers = iter([lambda keys: set(), known])
    monkeypatch.setattr(PageTable, "known", lambda _, keys: next(answers)(keys))
    assert merge_group(archive.log, group)
    assert orphans_of(archive, log.folded) == []

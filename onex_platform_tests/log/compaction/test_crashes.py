"""Killed at any step, compaction and sweep leave the old set or the new one, and can go on."""

from __future__ import annotations

import signal

import pytest

from onex_platform.base.settings import address_variables
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.stats import log_stats
from onex_platform.log.verify.orphans import delete_orphans
from onex_platform.log.verify.page_check import verify_pages
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.written_logs import (
    WrittenLog,
    events_of,
    files_of,
    let_grace_pass,
    orphans_of,
    require_rows,
)

pytestmark = pytest.mark.servers

# What a task does with its group, or a sweep, in a process that dies where it was armed to.
_MERGE = """
import sys
from onex_platform.base import faults
from onex_platform_tests.support.archives import open_archive
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group
from onex_platform.base.settings import load_settings
faults.arm(sys.argv[1])
settings = load_settings()
with open_archive(settings) as archive:
    for group in plan(archive.log, int(sys.argv[2])):
        merge_group(archive.log, group)
    sweep(archive.log)
"""


def killed(log: WrittenLog, point: str) -> None:
    settings = log.archive.settings
    variables = address_variables(settings) | {
        "ONEX_PAGES_URL": log.archive.log.store.url,
        "ONEX_PAGES_BUCKETS": str(log.archive.log.buckets),
        "ONEX_PAGES_GRACE_SECONDS": "3600",
    }
    assert run_program(_MERGE, point, str(log.folded), variables=variables) == -signal.SIGKILL


def require_whole(log: WrittenLog) -> None:
    assert verify_log(log.archive.log).faults == verify_pages(log.archive.log).faults == []
    require_rows(log)


@pytest.mark.parametrize(
    ("point", "merged", "orphans"),
    [
        ("before:compact.write_pages", False, 0),
        ("after:compact.write_pages", False, 1),
        ("before:compact.replace_pages", False, 1),
        ("after:compact.replace_pages", True, 0),
    ],
)
def test_a_killed_merge_leaves_the_old_or_the_new_set_and_is_completed_by_the_next(
    archive: PageArchive, log: WrittenLog, point: str, merged: bool, orphans: int
) -> None:
    log.cuts(4)
    before, old = events_of(archive), log_stats(archive.log).pages
    killed(log, point)
    require_whole(log)
    assert events_of(archive) == before
    assert log_stats(archive.log).pages == (1 if merged else old)
    for group in plan(archive.log, log.folded):
        assert merge_group(archive.log, group)
    assert log_stats(archive.log).pages == 1
    let_grace_pass(archive)
    assert sweep(archive.log).pages == old
    assert delete_orphans(archive.log, orphans_of(archive, log.folded)) == orphans
    assert files_of(archive) == {page.key for page in archive.log.table.pages()}
    assert events_of(archive) == before


@pytest.mark.parametrize(
    "point",
    [
        "before:sweep.delete_files",
        "after:sweep.delete_files",
        "before:sweep.forget_pages",
        "after:sweep.forget_pages",
    ],
)
def test_a_killed_sweep_is_completed_by_the_next(
    archive: PageArchive, log: WrittenLog, point: str
) -> None:
    log.cuts(4)
    [group] = plan(archive.log, log.folded)
    assert merge_group(archive.log, group)
    let_grace_pass(archive)
    killed(log, point)
    require_whole(log)
    sweep(archive.log)
    assert log_stats(archive.log).replaced_pages == 0
    assert files_of(archive) == {page.key for page in archive.log.table.pages()}
    require_whole(log)

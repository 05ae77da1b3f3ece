"""Killed at any step, compaction and sweep leave the old set or the new one, and can go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.base.environment import child_environment
from onex_platform.base.settings import address_variables
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.stats import archive_stats
from onex_platform.log.verify.orphans import delete_orphans, find_orphans
from onex_platform.log.verify.verification import verify_log, verify_pages
from onex_platform_tests.support.written_logs import (
    TARGET,
    WrittenLog,
    events_of,
    files_of,
    let_grace_pass,
    require_rows,
)

pytestmark = pytest.mark.servers

# What a task does with its group, or a sweep, in a process that dies where it was armed to.
_MERGE = """
import sys
from onex_platform.base import faults
from onex_platform.ingest.archive import open_archive
from onex_platform.log.compaction.compact import plan, sweep
from onex_platform.log.compaction.merge import merge_group
from onex_platform.base.settings import load_settings
faults.arm(sys.argv[1])
settings = load_settings()
with open_archive(settings) as archive:
    for group in plan(archive, int(sys.argv[2])):
        merge_group(archive.index, archive.store, group, settings.pages.compact_to_bytes)
    sweep(archive)
"""


def killed(log: WrittenLog, point: str) -> None:
    settings = log.archive.settings
    variables = address_variables(settings) | {
        "ONEX_PAGES_URL": log.archive.store.url,
        "ONEX_PAGES_BUCKETS": str(log.archive.buckets),
        "ONEX_PAGES_GRACE_SECONDS": "3600",
    }
    run = subprocess.run(
        [sys.executable, "-c", _MERGE, point, str(log.folded)],
        env=child_environment(variables),
        timeout=120,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL


def require_whole(log: WrittenLog) -> None:
    assert verify_log(log.archive).faults == verify_pages(log.archive).faults == []
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
    before, old = events_of(archive), archive_stats(archive).pages
    killed(log, point)
    require_whole(log)
    assert events_of(archive) == before
    assert archive_stats(archive).pages == (1 if merged else old)
    for group in plan(archive, log.folded):
        assert merge_group(archive.index, archive.store, group, TARGET)
    assert archive_stats(archive).pages == 1
    let_grace_pass(archive)
    assert sweep(archive).pages == old
    later = datetime.now(UTC) + timedelta(hours=2)
    assert delete_orphans(archive, find_orphans(archive, log.folded, later)) == orphans
    assert files_of(archive) == {page.key for page in archive.index.pages()}
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
    [group] = plan(archive, log.folded)
    assert merge_group(archive.index, archive.store, group, TARGET)
    let_grace_pass(archive)
    killed(log, point)
    require_whole(log)
    sweep(archive)
    assert archive_stats(archive).replaced_pages == 0
    assert files_of(archive) == {page.key for page in archive.index.pages()}
    require_whole(log)

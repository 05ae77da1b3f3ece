"""Killed at any step, a rebuild leaves the live rows as they were or wholly swapped."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform_tests.support.events import at
from onex_platform_tests.support.folded_logs import replayed, rows_of, take_cut
from onex_platform_tests.support.forked_programs import ForkedProgram, start_program
from onex_platform_tests.support.live_registry import NODES, damage, fold, joining, physical
from onex_platform_tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long]

# A rebuild during which the pipeline goes on, in a process that dies where it was armed to.
_REBUILD = """
import sys
from onex_platform.base import faults
from onex_platform.engines.spark.session import open_session
from onex_platform_tests.support.archives import open_archive
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.base.settings import load_settings
from onex_platform_tests.support.live_registry import fold
faults.arm(sys.argv[1])
settings = load_settings()
with open_session(settings, []) as spark, open_archive(settings) as archive:
    with open_rebuild(spark, archive.log) as rebuild:
        fold(spark, archive)
        rebuild.swap()
"""
# In the order in which they happen, and whether the rows are swapped, and the side table is there.
# Where one effect follows another directly, after the first is before the second.
POINTS = (
    ("before:rebuild.begin", False, False),
    ("after:rebuild.begin", False, True),
    ("after:rebuild.fold", False, True),
    ("before:rebuild.catch_up", False, True),
    ("after:rebuild.catch_up", False, True),
    ("before:rebuild.last_catch_up", False, True),
    ("after:rebuild.last_catch_up", False, True),
    ("before:rebuild.write_rows", False, True),
    ("before:rebuild.release", False, True),
    ("after:rebuild.release", False, True),
    ("after:rebuild.write_rows", False, True),
    ("after:rebuild.swap", True, True),
    ("after:rebuild.discard", True, False),
)
SIDE_TABLES = ("rebuilds", "rebuilt_registrations")


def begin(archive: PageArchive, remote: Settings, point: str) -> ForkedProgram:
    attached = archive.settings.model_copy(update={"spark": remote.spark})
    variables = address_variables(attached) | {
        "ONEX_PAGES_URL": archive.log.store.url,
        "ONEX_PAGES_BUCKETS": str(archive.log.buckets),
    }
    return start_program(_REBUILD, point, variables=variables)


def require_rebuilt(spark: SparkSession, archive: PageArchive, changes: int) -> None:
    """The next rebuild finds so many rows to change; then all is right and nothing is left."""
    fold(spark, archive)
    outbox = physical(archive, "outbox", "fact_inbox")
    with open_rebuild(spark, archive.log) as rebuild:
        swapped = rebuild.swap()
    assert (swapped.changes, swapped.moved_on) == (changes, 0)
    assert physical(archive, "outbox", "fact_inbox") == outbox
    assert physical(archive, *SIDE_TABLES) == {table: [] for table in SIDE_TABLES}
    rows = {key: row.domain_columns() for key, row in rows_of(archive).items()}
    assert rows == {key: row.domain_columns() for key, row in replayed(archive).items()}
    assert len(rows) == NODES + 1


@pytest.mark.parametrize(
    ("point", "swapped", "remains"), POINTS, ids=[point for point, *_ in POINTS]
)
def test_a_killed_rebuild_has_swapped_all_or_nothing_and_the_next_one_works(
    spark: SparkSession,
    remote_spark: Settings,
    live: PageArchive,
    point: str,
    swapped: bool,
    remains: bool,
) -> None:
    damage(live)
    take_cut(live, joining(50, 120, 1000), at(200))
    child = begin(live, remote_spark, point)
    assert child.wait() == -signal.SIGKILL
    assert bool(physical(live, "rebuilds")["rebuilds"]) is remains
    require_rebuilt(spark, live, 0 if swapped else 4)


def test_what_tasks_write_after_their_rebuild_was_killed_is_removed_as_well(
    spark: SparkSession, remote_spark: Settings, live: PageArchive
) -> None:
    damage(live)
    take_cut(live, joining(50, 120, 1000), at(200))
    with live.database.transaction() as cursor:
        cursor.execute("LOCK TABLE rebuilt_registrations IN SHARE MODE")
        child = begin(live, remote_spark, "after:rebuild.discard")
        assert eventually(lambda: _tasks_wait(live) or not child.is_alive(), 60)
        assert child.is_alive()
        child.kill()
        assert child.wait() == -signal.SIGKILL
    require_rebuilt(spark, live, 4)


def _tasks_wait(archive: PageArchive) -> bool:
    with archive.database.transaction() as cursor:
        query = (
            "SELECT FROM pg_locks"
            " WHERE relation = 'rebuilt_registrations'::regclass AND NOT granted"
        )
        return cursor.execute(query).fetchone() is not None

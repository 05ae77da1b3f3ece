"""An hour that is written again: readers keep its old files, and a kill leaves one or the other."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.domain.events import LogEvent
from onex_platform.domain.order import position_at
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.history.as_of import node_as_of
from onex_platform.projections.history.hourly_states import HOUR, nearest_state, write_hour
from onex_platform.projections.history.state_files import StoredState
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.folded_logs import hours_of, replayed
from onex_platform_tests.support.forked_programs import run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

# An hour, written in a process that dies where it was armed to.
_WRITE = """
import sys
from datetime import datetime
from onex_platform.base import faults
from onex_platform.engines.spark.session import open_session
from onex_platform_tests.support.archives import open_archive
from onex_platform.projections.history.hourly_states import write_hour
from onex_platform.base.settings import load_settings
faults.arm(sys.argv[1])
settings = load_settings()
with open_session(settings, []) as spark, open_archive(settings) as archive:
    write_hour(spark, archive.log, datetime.fromisoformat(sys.argv[2]))
"""
# In the order in which they happen; after one effect is before the next.
POINTS = (
    "before:history.write_files",
    "after:history.write_files",
    "after:history.commit_hour",
    "after:history.delete_files",
)


def _files(archive: PageArchive) -> set[str]:
    return {item.key for item in archive.log.store.objects("history")}


def _keys(state: StoredState) -> set[str]:
    return {file.key for file in state.files}


def _in_parts(settings: Settings) -> Settings:
    """Written with a task, and so a file, to a bucket; what is replaced goes at once."""
    pages = settings.pages.model_copy(update={"small_cut_events": 0, "grace_seconds": 0.001})
    return settings.model_copy(update={"pages": pages})


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_writer_leaves_the_old_hour_or_the_new_one_and_the_next_tidies_up(
    spark: SparkSession,
    remote_spark: Settings,
    archive: PageArchive,
    log: list[LogEvent],
    point: str,
) -> None:
    hour = hours_of(log)[1]
    old = write_hour(spark, archive.log, hour)
    settings = _in_parts(archive.settings)
    variables = address_variables(settings.model_copy(update={"spark": remote_spark.spark}))
    variables |= {
        "ONEX_PAGES_URL": archive.log.store.url,
        "ONEX_PAGES_BUCKETS": str(archive.log.buckets),
        "ONEX_PAGES_SMALL_CUT_EVENTS": str(settings.pages.small_cut_events),
        "ONEX_PAGES_GRACE_SECONDS": str(settings.pages.grace_seconds),
    }
    ended = run_program(_WRITE, point, hour.isoformat(), variables=variables)
    assert ended == -signal.SIGKILL
    found = nearest_state(archive.log, old.position)
    assert (found == old) == (POINTS.index(point) < POINTS.index("after:history.commit_hour"))
    assert _keys(found) <= _files(archive)
    key = log[0].entity
    then = node_as_of(archive.log, hour + HOUR, key.entity_id)
    assert then == replayed(archive, position_at(hour + HOUR)).get(key)

    with open_archive(settings) as another:
        new = write_hour(spark, another.log, hour)
    assert len(new.files) > 1
    assert new.nodes == old.nodes
    assert nearest_state(archive.log, old.position) == new
    assert _files(archive) == _keys(new)


def test_replaced_files_stay_for_the_grace_period_and_may_be_needed_again(
    spark: SparkSession, archive: PageArchive, log: list[LogEvent]
) -> None:
    hour = hours_of(log)[1]
    one_file = write_hour(spark, archive.log, hour)
    patient = _in_parts(archive.settings)
    pages = patient.pages.model_copy(update={"grace_seconds": 3600})
    with open_archive(patient.model_copy(update={"pages": pages})) as another:
        in_parts = write_hour(spark, another.log, hour)
    # A reader that began before goes on.
    [file] = one_file.files
    archive.log.store.read_whole(file.key, file.checksum)
    assert _files(archive) == _keys(one_file) | _keys(in_parts)
    assert write_hour(spark, archive.log, hour) == one_file
    with open_archive(_in_parts(archive.settings)) as hasty:
        write_hour(spark, hasty.log, hours_of(log)[0])
    assert _keys(one_file) <= _files(archive)
    assert not _keys(in_parts) & _files(archive)

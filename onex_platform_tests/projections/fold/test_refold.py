"""The fold on Spark agrees with the reference fold, cell by cell, however the log lies in pages."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.order import position_at
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.compaction import compact
from onex_platform.projections.fold.refold import (
    EVERYTHING,
    DamagedLogError,
    Scope,
    folded_to,
    listed_nodes,
    plan_replay,
    replay_bucket,
    rows_of,
)
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.profiles import PROFILES
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.events import START, at
from onex_platform_tests.support.folded_logs import (
    Rows,
    enter_folded_log,
    folded_on_spark,
    log_of,
    place,
    renamed,
)
from onex_platform_tests.support.histories import records, run_in_cuts
from onex_platform_tests.support.played_records import read_fleet, routes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

POLICY = RegistrationPolicy(required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})})
_numbers = count()


def folded_here(archive: PageArchive, scope: Scope = EVERYTHING, below: int | None = None) -> Rows:
    """The same tasks without Spark around them."""
    job = plan_replay(
        archive.log,
        0,
        folded_to(archive.database, archive.domain) if below is None else below,
        scope=scope,
    )
    rows = (
        row
        for bucket in range(archive.log.buckets)
        for row in replay_bucket(job, bucket, rows_of, listed_nodes(job, bucket)).rendered
    )
    return {row.key: row for row in rows}


@pytest.fixture
def fleet_log() -> list[LogEvent]:
    """A stormy day of a small fleet."""
    plan = FleetPlan(nodes=60, max_events=6000, profile=PROFILES["stormy"], speed=20)
    return sorted(read_fleet(Fleet(plan, routes())).numbered(), key=place)


@pytest.mark.parametrize("partitions", [1, 7])
@given(
    histories=st.lists(records(), min_size=12, max_size=12),
    instants=st.lists(st.integers(0, 1500), max_size=3),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    per_bucket=st.booleans(),
)
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_spark_gives_the_reference_rows_wherever_the_log_is_cut(
    spark: SparkSession,
    archive_settings: Settings,
    partitions: int,
    histories: list[list[RawRecord]],
    instants: list[int],
    cuts: list[int],
    per_bucket: bool,
) -> None:
    domain = f"registration-{next(_numbers)}"
    log = many_histories(histories, instants, domain)
    with open_archive(archive_settings, domain) as archive:
        enter_folded_log(archive, log, [min(cut, len(log)) for cut in cuts], per_bucket=per_bucket)
        assert folded_on_spark(spark, archive, partitions) == replay(log)


def many_histories(
    histories: list[list[RawRecord]], instants: list[int], domain: str
) -> list[LogEvent]:
    """Histories that were decided live, side by side in one log."""
    events = (
        event
        for number, history in enumerate(histories)
        for event in renamed(run_in_cuts(history, instants, POLICY, START).log, str(number), domain)
    )
    return sorted(events, key=place)


@given(
    history=records(),
    instants=st.lists(st.integers(0, 1500), max_size=3),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    per_bucket=st.booleans(),
    below=st.integers(0, 1500),
)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_task_folds_to_any_moment_like_the_reference(
    archive_settings: Settings,
    history: list[RawRecord],
    instants: list[int],
    cuts: list[int],
    per_bucket: bool,
    below: int,
) -> None:
    domain = f"registration-{next(_numbers)}"
    log = many_histories([history], instants, domain)
    end = position_at(at(below))
    with open_archive(archive_settings, domain) as archive:
        enter_folded_log(archive, log, [min(cut, len(log)) for cut in cuts], per_bucket=per_bucket)
        expected = replay(event for event in log if event.position < end)
        assert folded_here(archive, below=end) == expected


def test_two_hundred_partitions_and_a_compacted_log_give_the_same_rows(
    spark: SparkSession, archive: PageArchive, fleet_log: list[LogEvent]
) -> None:
    enter_folded_log(archive, fleet_log, range(0, len(fleet_log), 500))
    expected = replay(fleet_log)
    assert folded_on_spark(spark, archive, 200) == expected
    before = sum(1 for _ in archive.log.table.pages())
    compact.compact(spark, archive.log, folded_to(archive.database, archive.domain))
    assert sum(1 for _ in archive.log.table.pages()) < before
    assert log_of(archive) == fleet_log
    assert folded_on_spark(spark, archive, 7) == expected


def test_a_scope_folds_its_nodes_and_no_other(
    archive: PageArchive, fleet_log: list[LogEvent]
) -> None:
    enter_folded_log(archive, fleet_log, range(0, len(fleet_log), 500), per_bucket=True)
    expected = replay(fleet_log)
    ids = sorted(key.entity_id for key in expected)
    some = frozenset(ids[3:6])
    assert folded_here(archive, Scope(nodes=some)) == {
        key: row for key, row in expected.items() if key.entity_id in some
    }
    low, high = ids[len(ids) // 3], ids[2 * len(ids) // 3]
    assert folded_here(archive, Scope(ids=(low, high))) == {
        key: row for key, row in expected.items() if low <= key.entity_id <= high
    }
    window = fleet_log[1000].position, fleet_log[1003].position
    touched = {e.entity for e in fleet_log if window[0] <= e.position < window[1]}
    assert 0 < len(touched) < len(expected)
    assert folded_here(archive, Scope(window=window)) == {
        key: row for key, row in expected.items() if key in touched
    }


@pytest.mark.parametrize("on_spark", [False, True])
def test_missing_and_damaged_pages_are_named_with_their_range(
    spark: SparkSession, archive: PageArchive, fleet_log: list[LogEvent], on_spark: bool
) -> None:
    enter_folded_log(archive, fleet_log, range(0, len(fleet_log), 1000))
    first, second, *_ = archive.log.table.pages()
    archive.log.store.delete(first.key)
    data = archive.log.store.read(second.key)
    archive.log.store.delete(second.key)
    archive.log.store.create(second.key, data[:-20] + bytes(20))
    with pytest.raises(DamagedLogError) as refusal:
        plan_replay(
            archive.log,
            0,
            folded_to(archive.database, archive.domain),
            spark=spark if on_spark else None,
        )
    for page, problem in ((first, "is missing"), (second, "is damaged")):
        low, high = page.metadata.min_position, page.metadata.max_position
        assert f"{page.key} (positions {low} to {high}, " in str(refusal.value)
        assert problem in str(refusal.value)
    assert first.metadata.start_time.isoformat(timespec="milliseconds") in str(refusal.value)

"""The reducer on Spark agrees with the reference fold, cell by cell, on any partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import PagesSettings, PipelineSettings, Settings
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.states import EnumNodeType
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import CutAccount
from onex_platform.log.compaction import compact
from onex_platform.projections.fold.reducer import FoldedBatch, fold_log
from onex_platform.projections.fold.refold import folded_to
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.events import START, at
from onex_platform_tests.support.folded_logs import Rows, folded_on_spark, log_of, place, take_cut
from onex_platform_tests.support.histories import Run, records, run_in_cuts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

POLICY = RegistrationPolicy(required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})})
NODES = (*(f"adapter-{n}" for n in range(9)), "00000000-0000-4000-8000-00000000000a")
END = 1e9
_numbers = count()


def agree_on_spark(
    spark: SparkSession,
    archive_settings: Settings,
    partitions: int,
    history: list[RawRecord],
    instants: set[int],
    *,
    replays_before: bool = True,
) -> None:
    """Live in these cuts, replayed, and replayed when compacted: always the reference's rows."""
    expected = run_in_cuts(history, instants, POLICY, START)
    pages = PagesSettings(url=archive_settings.pages.url, buckets=partitions, small_cut_events=0)
    own = archive_settings.model_copy(update={"pages": pages})
    with open_archive(own, f"registration-{next(_numbers)}") as archive:
        outcomes = fold_live(spark, archive, history, instants)
        assert {outcome.value: n for outcome, n in outcomes.items() if n} == expected.outcomes
        rows = rows_in(archive, expected)
        assert rows_of(archive) == {key: row.domain_columns() for key, row in rows.items()}
        assert log_of(archive) == log_in(archive, expected)
        if replays_before:
            assert folded_on_spark(spark, archive, partitions) == rows
        before = sum(1 for _ in archive.log.table.pages())
        compact.compact(spark, archive.log, folded_to(archive.database, archive.domain))
        assert sum(1 for _ in archive.log.table.pages()) == 1 <= before
        assert log_of(archive) == log_in(archive, expected)
        assert folded_on_spark(spark, archive, partitions) == rows


def fold_live(
    spark: SparkSession, archive: PageArchive, history: list[RawRecord], instants: set[int]
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for _ in take_cuts(archive, history, instants):
        [batch] = fold_all(spark, archive)
        outcomes += batch.outcomes
    return outcomes


def take_cuts(
    archive: PageArchive, history: list[RawRecord], instants: set[int]
) -> Iterator[CutAccount]:
    rest = history
    for instant in [*sorted(instants), END]:
        moment = at(instant)
        before = [item for item in rest if item.timestamp is not None and item.timestamp < moment]
        rest = [item for item in rest if item not in before]
        yield take_cut(archive, before, moment)


def fold_all(spark: SparkSession, archive: PageArchive) -> list[FoldedBatch]:
    """Fold what the log has, in as many batches as the settings want."""
    batches = list(iter(lambda: fold_log(spark, archive.log, START, POLICY), None))
    assert all(batch.committed for batch in batches)
    return batches


def rows_of(archive: PageArchive) -> dict[EntityKey, object]:
    reader = ProjectionReaderRegistration(archive.database)
    rows = reader.iter_all(archive.domain, include_deregistered=True)
    return {row.key: row.domain_columns() for row in rows}


def rows_in(archive: PageArchive, run: Run) -> Rows:
    """The reference's rows as if they were of the archive's domain."""
    rows = (row.model_copy(update={"domain": archive.domain}) for row in run.rows.values())
    return {row.key: row for row in rows}


def log_in(archive: PageArchive, run: Run) -> list[LogEvent]:
    events = (
        replace(event, entity=EntityKey(archive.domain, event.entity.entity_id))
        for event in run.log
    )
    return sorted(events, key=place)


histories = records(max_passages=40, min_passages=20, nodes=NODES)
cuts = st.sets(st.integers(1, 1500), min_size=1, max_size=3)
few = settings(
    max_examples=4,
    deadline=None,
    # A failure is not made small: each attempt would take seconds.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("partitions", [1, 7])
@given(history=histories, instants=cuts)
@few
def test_live_replayed_and_compacted_the_rows_are_those_of_the_reference(
    spark: SparkSession,
    archive_settings: Settings,
    partitions: int,
    history: list[RawRecord],
    instants: set[int],
) -> None:
    agree_on_spark(spark, archive_settings, partitions, history, instants)


@given(history=histories, instants=st.sets(st.integers(1, 1500), max_size=1))
@settings(few, max_examples=2)
def test_on_two_hundred_partitions_as_well(
    spark: SparkSession, archive_settings: Settings, history: list[RawRecord], instants: set[int]
) -> None:
    # Many tasks take their time; test_replaying replays a log that is not compacted on as many.
    agree_on_spark(spark, archive_settings, 200, history, instants, replays_before=False)


@given(history=histories)
@settings(few, max_examples=2)
def test_a_backlog_folded_in_many_batches_comes_to_the_rows_of_one(
    spark: SparkSession, archive_settings: Settings, history: list[RawRecord]
) -> None:
    moments = sorted({int((r.timestamp - START).total_seconds()) for r in history if r.timestamp})
    assume(len(moments) >= 8)
    instants = set(moments[1 :: len(moments) // 4])
    expected = run_in_cuts(history, instants, POLICY, START)
    sizes = []
    for most in (1, 12, 10**6):
        own = archive_settings.model_copy(update={"pipeline": PipelineSettings(fold_events=most)})
        with open_archive(own, f"registration-{next(_numbers)}") as archive:
            filled = [cut for cut in take_cuts(archive, history, instants) if cut.archived]
            folded = [b for b in fold_all(spark, archive) if b.outcomes.total()]
            sizes.append(len(folded))
            outcomes = sum((batch.outcomes for batch in folded), Counter[str]())
            assert {outcome.value: n for outcome, n in outcomes.items() if n} == expected.outcomes
            rows = rows_in(archive, expected)
            assert rows_of(archive) == {key: row.domain_columns() for key, row in rows.items()}
            assert log_of(archive) == log_in(archive, expected)
    # A batch ends with a cut: no smaller than that, and no larger than it must be.
    assert (sizes[0], sizes[-1]) == (len(filled), 1)
    assert len(filled) > len(instants)
    assert sizes == sorted(sizes, reverse=True)

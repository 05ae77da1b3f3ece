"""Events through Kafka, pages and projections, on real servers: nothing lost, nothing twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.closing import close_before
from onex_platform.ingest.cuts.consistent_cut import whole_tick
from onex_platform.pipeline import DrainAccount
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay, rows_of
from onex_platform_tests.support.pipeline_runs import a_mixed_morning, drained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind


def states(archive: PageArchive) -> dict[str, int]:
    reader = ProjectionReaderRegistration(archive.database)
    return {state.value: count for state, count in reader.count_by_state().items() if count}


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["page per bucket", "one page"])
def test_a_fleet_becomes_pages_and_rows(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    count = send(settings, a_mixed_morning(30))
    # Sent when the rest is acknowledged: only then is the broker's order sure.
    count += send(settings, [sent(Kind.NODE_SHUTDOWN, f"node-{n}") for n in range(0, 30, 5)])
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert account.read == count
        assert account.parked == 10
        assert account.duplicates == 30
        # Every event of the log, decisions included, ended in exactly one outcome.
        assert account.outcomes.total() == account.archived + account.facts == len(log_of(archive))
        assert states(archive) == {"awaiting_ack": 24}
        require_live_equals_replay(archive)
        send(settings, [sent(Kind.NODE_ACK, f"node-{n}") for n in range(30)])
        again = drained(spark, archive)
        assert again.caught_up
        assert states(archive) == {"active": 24}
        require_live_equals_replay(archive)
        with archive.database.transaction() as cursor:
            [(parked,)] = cursor.execute("SELECT count(*) FROM parked_records").fetchall()
            [(value,)] = cursor.execute("SELECT DISTINCT value FROM parked_records").fetchall()
        assert (parked, value) == (10, b"not json")


def test_an_empty_cut_moves_the_head_and_writes_nothing(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    with open_archive(pipeline_settings) as archive:
        before = archive.cuts.head()
        drained(spark, archive)
        assert archive.cuts.head() > before
        assert list(archive.log.table.pages()) == []
        with archive.database.transaction() as cursor:
            [(cuts,)] = cursor.execute("SELECT count(*) FROM log_cuts").fetchall()
        assert cuts == 0


def test_one_id_under_two_nodes_is_judged_once_by_the_order_of_the_log(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": 0})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    shared = uuid4()
    send(
        settings,
        [sent(Kind.NODE_INTROSPECTION, f"twin-{n}", event_id=shared) for n in range(12)],
    )
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.archived, account.duplicates) == (12, 11)
        assert len(rows_of(archive)) == 1
        require_live_equals_replay(archive)


def test_two_runs_at_once_do_no_harm(spark: SparkSession, pipeline_settings: Settings) -> None:
    count = send(pipeline_settings, a_mixed_morning(10))
    with ThreadPoolExecutor(2) as pool, open_archive(pipeline_settings) as archive:

        def run(_: int) -> DrainAccount:
            with open_archive(pipeline_settings) as own:
                return drained(spark, own)

        accounts = list(pool.map(run, range(2)))
        assert sum(account.read for account in accounts) == count
        require_live_equals_replay(archive)
        with archive.database.transaction() as cursor:
            [totals] = cursor.execute(
                "SELECT sum(read) AS read, sum(applied + duplicate + stale + illegal + parked)"
                " AS outcomes FROM batch_outcomes"
            ).fetchall()
        assert totals.read == totals.outcomes == len(log_of(archive))


def test_decisions_reach_the_outbox_once_and_come_back_as_duplicates(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, "decided")])
    with open_archive(pipeline_settings) as archive:
        drained(spark, archive)
        with archive.database.transaction() as cursor:
            queued: list[Any] = cursor.execute(
                "SELECT event_kind, event_id, envelope, event_key FROM outbox"
                " WHERE entry = 'event' ORDER BY id"
            ).fetchall()
        assert [item.event_kind for item in queued] == [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED]
        rows = rows_of(archive)
        send(
            pipeline_settings,
            [
                sent(
                    Kind(item.event_kind),
                    "decided",
                    event_id=item.event_id,
                    epoch=item.envelope["payload"]["epoch"],
                )
                for item in queued
            ],
        )
        account = drained(spark, archive)
        assert (account.archived, account.duplicates) == (2, 2)
        assert rows_of(archive) == rows


def test_a_heartbeat_without_registration_is_answered_once_per_interval(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    with open_archive(pipeline_settings) as archive:
        for _ in range(2):
            send(pipeline_settings, [sent(Kind.NODE_HEARTBEAT, "stranger") for _ in range(3)])
            drained(spark, archive)
        asked = [e for e in log_of(archive) if e.kind is Kind.INTROSPECTION_REQUESTED]
        intervals = {e.occurred_at.timestamp() // 300 for e in log_of(archive)}
        assert 1 <= len(asked) <= len(intervals)
        require_live_equals_replay(archive)


def test_a_run_folds_a_backlog_in_as_many_batches_as_it_takes(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    pipeline = pipeline_settings.pipeline.model_copy(update={"fold_events": 1})
    settings = pipeline_settings.model_copy(update={"pipeline": pipeline})
    with open_archive(settings) as archive:
        for number in range(3):
            send(settings, [sent(Kind.NODE_INTROSPECTION, f"early-{number}")])
            close_before(spark, archive, datetime.now(UTC))
        account = drained(spark, archive)
        assert account.caught_up
        assert account.outcomes.total() == 9
        assert len(rows_of(archive)) == 3
        with archive.database.transaction() as cursor:
            [(batches,)] = cursor.execute("SELECT count(*) FROM batch_outcomes").fetchall()
        assert batches == 3
        require_live_equals_replay(archive)


def test_no_cut_ends_after_the_instant_it_was_given(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, "early")])
    with open_archive(pipeline_settings) as archive:
        limit = datetime.now(UTC)
        send(pipeline_settings, [sent(Kind.NODE_INTROSPECTION, "late")])
        close_before(spark, archive, limit)
        assert archive.cuts.head() == whole_tick(limit)
        assert len(log_of(archive)) <= 1
        drained(spark, archive)
        assert len(rows_of(archive)) == 2

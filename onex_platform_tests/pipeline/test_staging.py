"""What tasks staged is lost with the server's memory: the commit notices, and the next run mends.

Staging tables are not logged: a crash empties them, and a standby that takes over never had them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from onex_platform import stack
from onex_platform.base import faults
from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.postgres.database import fetch_one
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.postgres.staging import StagingLostError
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts import staged_rows
from onex_platform.pipeline import drain
from onex_platform.projections.checks import accounting
from onex_platform.projections.reconciliation import look
from onex_platform.projections.write import staged_batch
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent, skip_what_others_left
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay, rows_of
from onex_platform_tests.support.pipeline_runs import a_mixed_morning
from onex_platform_tests.support.stacks import connect, embedded_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NODES = 8
# Nobody is set aside here, so one table stays empty; the tests of containment fill it.
FILLED = tuple(table for table in staged_batch.TABLES if table != "handed_set_aside")
COMMITS = {"ingest.commit_cut": staged_rows.TABLES, "reduce.commit_batch": FILLED}


def send_some(settings: Settings) -> int:
    """Records of which something ends up in every staging table."""
    return send(settings, [*a_mixed_morning(NODES), sent(Kind.NODE_ACK, "stranger")])


def drain_quickly(spark: SparkSession, archive: PageArchive) -> None:
    drain(spark, archive, linger_seconds=0.1)


def strike(
    archive: PageArchive, commit: str, tables: Iterable[str], accident: Callable[[], None]
) -> None:
    """Arm an accident for the first commit that finds rows in all these tables."""

    def happen() -> None:
        with archive.database.transaction() as cursor:
            counts = [
                fetch_one(cursor, f"SELECT count(*) AS rows FROM {table}").rows  # noqa: S608
                for table in tables
            ]
        if all(counts):
            accident()
        else:
            faults.arm(f"before:{commit}", happen)

    faults.arm(f"before:{commit}", happen)


def require_whole(archive: PageArchive, count: int) -> None:
    """Nothing of what was sent is missing anywhere."""
    require_live_equals_replay(archive)
    assert len(rows_of(archive)) == NODES
    assert accounting(look(archive.log, whole=True)).passed
    with archive.database.transaction() as cursor:
        found = fetch_one(
            cursor,
            "SELECT (SELECT sum(read) FROM log_cuts) AS read,"
            " (SELECT sum(parked) FROM log_cuts) AS parked,"
            " (SELECT count(*) FROM parked_records) AS kept,"
            " (SELECT sum(illegal) FROM batch_outcomes) AS illegal,"
            " (SELECT sum(times) FROM illegal_events WHERE outcome = 'illegal') AS told,"
            " (SELECT count(*) FROM outbox WHERE entry = 'snapshot') AS snapshots,"
            " (SELECT array_agg(event_id) FROM outbox WHERE entry = 'event') AS queued,"
            " (SELECT array_agg(event_id) FROM event_ledger) AS known",
        )
    log = log_of(archive)
    ledgered = {e.event_id for e in log if e.kind is not Kind.NODE_HEARTBEAT}
    decided = {event.event_id for event in log if event.cause_id is not None}
    assert (found.read, found.kept, found.told) == (count, found.parked, found.illegal)
    assert found.snapshots >= NODES
    assert found.kept and found.told
    assert set(found.known) == ledgered
    assert sorted(found.queued) == sorted(decided)


def test_a_table_that_was_emptied_before_the_commit_is_noticed(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    count = send_some(pipeline_settings)
    with open_archive(pipeline_settings) as archive:

        def empty(table: str) -> None:
            with archive.database.transaction() as cursor:
                cursor.execute(f"TRUNCATE {table}")

        for commit, tables in COMMITS.items():
            for table in tables:
                strike(archive, commit, [table], partial(empty, table))
                with pytest.raises(StagingLostError, match=f"rows in {table}, and 0 are there"):
                    drain_quickly(spark, archive)
        drain_quickly(spark, archive)
        require_whole(archive, count)


# Refuses to be written to under a time limit.
_UNHURRIED = """
    CREATE OR REPLACE FUNCTION be_unhurried() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('statement_timeout') <> '0' THEN
            RAISE '% is written under a time limit', TG_TABLE_NAME;
        END IF;
        RETURN NULL;
    END $$"""


def test_statements_that_grow_with_a_batch_have_no_time_limit(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    """A batch that once took too long would be larger the next time."""
    count = send_some(pipeline_settings)
    written = ("event_ledger", "parked_records", "registration_projections", "outbox")
    with open_archive(pipeline_settings) as archive:
        with archive.database.transaction() as cursor:
            cursor.execute(_UNHURRIED)
            for table in (*staged_rows.TABLES, *staged_batch.TABLES, *written):
                cursor.execute(
                    f"CREATE TRIGGER unhurried BEFORE INSERT OR DELETE ON {table}"
                    " EXECUTE FUNCTION be_unhurried()"
                )
        drain_quickly(spark, archive)
        require_whole(archive, count)


@pytest.fixture
def fragile_settings(stack_settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """The shared broker, and a PostgreSQL of the test's own."""
    own = embedded_settings(tmp_path / "stack")
    with stack.running(own, services=("postgres",)) as attached:
        settings = stack_settings.model_copy(
            update={
                "postgres": attached.postgres,
                "pages": PagesSettings(url=str(tmp_path / "pages"), settle_seconds=0.05),
            }
        )
        migrate(settings)
        skip_what_others_left(settings)
        yield settings


def test_a_crash_of_postgres_between_staging_and_commit_loses_nothing(
    spark: SparkSession, fragile_settings: Settings
) -> None:
    count = send_some(fragile_settings)

    def answers() -> bool:
        try:
            with connect(fragile_settings):
                return True
        except psycopg.OperationalError:
            return False

    def crash() -> None:
        with pytest.raises(psycopg.OperationalError), connect(fragile_settings) as connection:
            # A session that dies may have damaged what all share: the server recovers from its log.
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            connection.execute("SELECT pg_sleep(10)")
        assert wait_until(answers, 30)

    with open_archive(fragile_settings) as archive:
        for commit, tables in COMMITS.items():
            strike(archive, commit, tables, crash)
            with pytest.raises(StagingLostError):
                drain_quickly(spark, archive)
        drain_quickly(spark, archive)
        require_whole(archive, count)

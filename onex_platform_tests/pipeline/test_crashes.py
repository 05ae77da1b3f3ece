"""Killed before or after any effect and started again, the pipeline comes to the same rows."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import drain
from onex_platform.projections.checks import accounting
from onex_platform.projections.reconciliation import look
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay, rows_of
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.pipeline_runs import a_mixed_morning, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long]

Kind = EnumEventKind

# One run in a process of its own, which dies where it was armed to.
_RUN = """
import sys
from onex_platform.base import faults
from onex_platform.engines.spark.session import open_session
from onex_platform_tests.support.archives import open_archive
from onex_platform.pipeline import drain
from onex_platform.base.settings import load_settings
faults.arm(sys.argv[1])
settings = load_settings()
with open_session(settings, []) as spark, open_archive(settings) as archive:
    drain(spark, archive, linger_seconds=0.1)
"""
EFFECTS = (
    "ingest.write_pages",
    "ingest.drop_pages",
    "ingest.commit_cut",
    "reduce.hand_over",
    "reduce.commit_batch",
)
_TOO_FEW = "10000"  # bytes for a task: the first cut is too large, its pages are dropped


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_killed_at_any_effect_is_completed_by_the_next(
    spark: SparkSession,
    remote_spark: Settings,
    pipeline_settings: Settings,
    moment: str,
    effect: str,
) -> None:
    settings = pipeline_settings
    count = send(settings, a_mixed_morning(8))
    count += send(settings, [sent(Kind.NODE_SHUTDOWN, "node-1")])
    variables = address_variables(settings.model_copy(update={"spark": remote_spark.spark}))
    variables |= {"ONEX_PAGES_URL": settings.pages.url or "", "ONEX_PAGES_SETTLE_SECONDS": "0.05"}
    if effect == "ingest.drop_pages":
        variables["ONEX_PAGES_TASK_BYTES"] = _TOO_FEW
    assert run_program(_RUN, f"{moment}:{effect}", variables=variables) == -signal.SIGKILL
    with open_archive(settings) as archive:
        drain(spark, archive, linger_seconds=0.1)
        require_live_equals_replay(archive)
        with archive.database.transaction() as cursor:
            [account] = cursor.execute(
                "SELECT sum(archived) AS archived, sum(parked) AS parked FROM log_cuts"
            ).fetchall()
            queued = Counter(
                row.event_kind
                for row in cursor.execute("SELECT event_kind FROM outbox WHERE entry = 'event'")
            )
        assert account.archived + account.parked == count
        assert len(log_of(archive)) == account.archived + queued.total()
        # A beat that overtook its node's introspection is answered by a request; how many do so is
        # the broker's affair.
        del queued[Kind.INTROSPECTION_REQUESTED]
        assert queued == {Kind.NODE_ACCEPTED: 8, Kind.ACK_REQUESTED: 8, Kind.NODE_DEREGISTERED: 1}
        assert len(rows_of(archive)) == 8


@pytest.mark.parametrize("moment", ["before", "after"])
def test_echoes_of_a_killed_run_are_counted_once(
    spark: SparkSession, remote_spark: Settings, pipeline_settings: Settings, moment: str
) -> None:
    settings = pipeline_settings
    send(settings, [sent(Kind.NODE_INTROSPECTION, f"node-{n}") for n in range(4)])
    variables = address_variables(settings.model_copy(update={"spark": remote_spark.spark}))
    variables |= {"ONEX_PAGES_URL": settings.pages.url or "", "ONEX_PAGES_SETTLE_SECONDS": "0.05"}
    with open_archive(settings) as archive:
        drain(spark, archive, linger_seconds=0.1)
        log = log_of(archive)
        assert published(archive) == 8
        ended = run_program(_RUN, f"{moment}:ingest.commit_cut", variables=variables)
        assert ended == -signal.SIGKILL
        drain(spark, archive, linger_seconds=0.1)
        assert log_of(archive) == log
        whole = verify_log(archive.log)
        assert (whole.faults, whole.echoes) == ([], 8)
        assert accounting(look(archive.log, whole=True)).passed


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_mark_is_there_with_its_batch_or_not_at_all(
    spark: SparkSession, remote_spark: Settings, pipeline_settings: Settings, moment: str
) -> None:
    settings = pipeline_settings
    send(settings, [sent(Kind.NODE_INTROSPECTION, f"node-{n}") for n in range(4)])
    variables = address_variables(settings.model_copy(update={"spark": remote_spark.spark}))
    variables |= {"ONEX_PAGES_URL": settings.pages.url or "", "ONEX_PAGES_SETTLE_SECONDS": "0.05"}
    with open_archive(settings) as archive:
        with archive.database.transaction() as cursor:
            cursor.execute("ALTER TABLE handed_projections ADD CHECK (node_name <> 'node-1')")
        ended = run_program(_RUN, f"{moment}:set_aside.mark", variables=variables)
        assert ended == -signal.SIGKILL
        with archive.database.transaction() as cursor:
            assert cursor.execute("SELECT FROM set_aside_nodes").fetchall() == []
            assert cursor.execute("SELECT FROM batch_outcomes").fetchall() == []
        assert rows_of(archive) == {}
        drain(spark, archive, linger_seconds=0.1)
        with archive.database.transaction() as cursor:
            [mark] = cursor.execute("SELECT error FROM set_aside_nodes").fetchall()
        assert "CheckViolation" in mark.error
        assert {row.node_name for row in rows_of(archive).values()} == {
            "node-0",
            "node-2",
            "node-3",
        }

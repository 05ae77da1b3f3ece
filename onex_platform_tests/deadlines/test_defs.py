"""The clock in the graph, on real servers: ticks that watch, runs that declare, a check."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform_tests.support.events import at
from onex_platform_tests.support.graph import Graph, numbers
from onex_platform_tests.support.watched_clock import (
    LONG_AGO,
    MINUTE,
    Watched,
    open_watched,
    with_deadlines,
)

pytestmark = pytest.mark.servers

SENSOR = "scan_when_overdue"


@pytest.fixture
def graph(pipeline_settings: Settings) -> Iterator[Graph]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(with_deadlines(pipeline_settings, grace_seconds=0), instance)


@pytest.fixture
def fleet(graph: Graph) -> Iterator[Watched]:
    with open_watched(graph.settings) as opened:
        opened.active(100, at(90_000_000), first=1000)
        opened.folded_to(datetime.now(UTC))
        yield opened


def _check(graph: Graph) -> dg.AssetCheckEvaluation:
    key = dg.AssetCheckKey(wiring.REGISTRATION_PROJECTIONS, "no_overdue_without_fact")
    job = graph.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={key}
    )
    [found] = job.execute_in_process(instance=graph.instance).get_asset_check_evaluations()
    return found


def _scan(graph: Graph) -> dict[str, object]:
    run = graph.run("scan_deadlines")
    [output] = [
        event for event in run.events_for_node("declare_timeouts") if event.is_successful_output
    ]
    return numbers(output.step_output_data.metadata)


def test_a_passed_deadline_starts_one_scan_and_the_facts_start_a_draining_run(
    graph: Graph, fleet: Watched
) -> None:
    fleet.active(2, datetime.now(UTC) - MINUTE / 2)
    assert "No deadline can be judged" in graph.tick(SENSOR).skip_message  # the watch begins
    [request] = graph.tick(SENSOR, cursor="not a cursor").run_requests
    assert request.run_key is None
    found = _scan(graph)
    assert (found["liveness expired"], found["holds"], found["flapping"]) == (2, 0, 0)
    assert "No deadline can be judged" in graph.tick(SENSOR).skip_message
    assert len(graph.tick("drain_when_behind").run_requests) == 1


def test_a_draining_run_scans_itself_and_its_long_fold_is_no_gap(
    graph: Graph, fleet: Watched
) -> None:
    fleet.active(1, datetime.now(UTC) - MINUTE / 2)
    fleet.watched_at(datetime.now(UTC) - MINUTE / 4)
    job = graph.definitions.resolve_job_def(wiring.DRAINING_JOB)
    run = graph.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    before = datetime.now(UTC)
    assert "It scans the deadlines" in graph.tick(SENSOR).skip_message
    [(watched_at, resumed_at)] = fleet.select("SELECT watched_at, resumed_at FROM deadline_watches")
    assert (watched_at >= before, resumed_at) == (True, LONG_AGO)
    graph.instance.report_run_failed(run)
    assert len(graph.tick(SENSOR).run_requests) == 1


def test_a_tick_keeps_the_watch_while_scans_fail(graph: Graph, fleet: Watched) -> None:
    job = graph.definitions.resolve_job_def("scan_deadlines")
    for _ in range(2):
        graph.instance.report_run_failed(graph.instance.create_run_for_job(job))
    assert "failed in a row" in graph.tick(SENSOR).skip_message
    assert len(fleet.select("SELECT * FROM deadline_watches")) == 1


def test_the_check_fails_for_forgotten_rows_and_only_warns_of_held_ones(
    graph: Graph, fleet: Watched
) -> None:
    assert _check(graph).passed
    fleet.active(50, datetime.now(UTC) - 2 * MINUTE)
    fleet.watched_at(datetime.now(UTC))
    forgotten = _check(graph)
    assert (forgotten.passed, forgotten.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert numbers(forgotten.metadata)["overdue without fact"] == 22
    assert _scan(graph)["held"] == 28
    held = _check(graph)
    assert (held.passed, held.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert numbers(held.metadata)["held"] == 28
    trial = {"ops": {"declare_timeouts": {"config": {"dry_run": True}}}}
    assert graph.run("scan_deadlines", run_config=trial).success

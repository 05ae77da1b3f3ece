"""A run is started when one is wanted, and a dead one is told from one that lives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform.definitions import build_definitions
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.postgres.leases import (
    Lease,
    LeaseKeeper,
    LeaseRecord,
    draining_lease,
    open_keeper,
)
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline.run_start import Wanted, wanted_by_leases
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.graph import Graph

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB = wiring.DRAINING_JOB
SENSOR = "drain_when_behind"
OURS = "1.0+ours"


def lease(number: int, **changes: Any) -> LeaseRecord:
    """A living claim that stands by, cold."""
    record = LeaseRecord(
        number=number,
        name="registration.drain",
        exclusive=True,
        host="h",
        process=1,
        run_id=f"run-{number}",
        version=OURS,
        claimed_at=NOW,
        ready_at=None,
        taken_at=None,
        succession_at=None,
        expires_at=NOW + timedelta(seconds=5),
        ended_at=None,
        ending=None,
        lives=True,
    )
    return record._replace(**changes)


def wanted(*leases: LeaseRecord, coming: int = 0, warm_runs: int = 0, known: int = 0) -> Any:
    found = wanted_by_leases(leases, coming, warm_runs, OURS, known)
    return found if found is None else found.start


HOLDER = lease(1, taken_at=NOW)


@pytest.mark.parametrize(
    ("leases", "circumstances", "start"),
    [
        ([], {}, None),  # it depends on what waits
        ([], {"warm_runs": 1}, True),
        ([], {"warm_runs": 1, "coming": 1}, False),
        ([lease(1)], {"warm_runs": 2}, False),
        ([HOLDER], {}, False),
        ([HOLDER], {"warm_runs": 1}, False),
        ([HOLDER], {"warm_runs": 2}, True),
        ([HOLDER], {"warm_runs": 2, "coming": 1}, False),
        ([HOLDER, lease(2)], {"warm_runs": 2}, False),
        ([HOLDER._replace(succession_at=NOW)], {}, True),
        ([HOLDER._replace(succession_at=NOW)], {"coming": 1}, False),
        ([HOLDER._replace(succession_at=NOW), lease(2)], {}, False),
        ([HOLDER._replace(version="1.0+other")], {"known": 1}, True),
        # It claimed after this process began: whatever it runs, it is not older.
        ([HOLDER._replace(version="1.0+other")], {"known": 0}, False),
    ],
)
def test_leases_say_whether_a_run_is_wanted(
    leases: list[LeaseRecord], circumstances: dict[str, int], start: bool | None
) -> None:
    assert wanted(*leases, **circumstances) is start


def test_whatever_is_decided_is_told() -> None:
    found = wanted_by_leases([HOLDER], 0, 0, OURS, 0)
    assert found == Wanted(False, "process 1 on h, run run drains.")


@pytest.fixture
def graph(pipeline_settings: Settings) -> Iterator[Graph]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(pipeline_settings, instance)


@pytest.fixture
def archive(graph: Graph) -> Iterator[PageArchive]:
    with open_archive(graph.settings) as opened:
        yield opened


class Owners:
    """Processes that claim leases, as far as PostgreSQL sees them."""

    def __init__(self, settings: Settings, archive: PageArchive, opened: ExitStack) -> None:
        self._settings = settings
        self._archive = archive
        self._opened = opened
        self._claims: dict[str | None, list[tuple[LeaseKeeper, Lease]]] = {}

    def claim(self, name: str, *, exclusive: bool = False, run_id: str | None = None) -> Lease:
        keeper = self._opened.enter_context(open_keeper(self._settings))
        lease = keeper.claim(name, exclusive=exclusive, run_id=run_id)
        self._claims.setdefault(run_id, []).append((keeper, lease))
        return lease

    def drain(self, run_id: str | None) -> Lease:
        """Be the one at work."""
        lease = self.claim(draining_lease(self._archive.domain), exclusive=True, run_id=run_id)
        assert lease.take()
        return lease

    def die(self, run_id: str | None) -> None:
        """As if the process had been killed a while ago."""
        numbers = []
        for keeper, lease in self._claims[run_id]:
            keeper.drop(lease)
            numbers.append(lease.number)
        with self._archive.database.transaction() as cursor:
            cursor.execute(
                "UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'"
                " WHERE number = ANY(%s)",
                [numbers],
            )


@pytest.fixture
def owners(graph: Graph, archive: PageArchive) -> Iterator[Owners]:
    with ExitStack() as opened:
        yield Owners(graph.settings, archive, opened)


def started(graph: Graph, job: str = JOB, **arguments: Any) -> dg.DagsterRun:
    definition = graph.definitions.resolve_job_def(job)
    return graph.instance.create_run_for_job(
        definition, status=dg.DagsterRunStatus.STARTED, **arguments
    )


def reloaded(graph: Graph, run: dg.DagsterRun) -> dg.DagsterRun:
    found = graph.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def let_something_wait(graph: Graph) -> None:
    send(graph.settings, [sent(EnumEventKind.NODE_INTROSPECTION, "a")])


@pytest.mark.servers
def test_a_dead_run_is_shown_as_failed_and_succeeded_at_once(
    graph: Graph, archive: PageArchive, owners: Owners
) -> None:
    let_something_wait(graph)
    run = started(graph)
    assert "about to take the lease" in graph.tick(SENSOR).skip_message
    owners.claim(JOB, run_id=run.run_id)
    owners.drain(run.run_id)
    assert "drains" in graph.tick(SENSOR).skip_message
    owners.die(run.run_id)
    assert len(graph.tick(SENSOR).run_requests) == 1
    dead = reloaded(graph, run)
    assert dead.status is dg.DagsterRunStatus.FAILURE
    assert "has not renewed its lease" in dead.tags[wiring.DEAD_TAG]
    # A death is no failure of the code. That fails twice: from now on there is a pause.
    for _ in range(2):
        graph.instance.report_run_failed(started(graph))
    assert "2 runs of drain_registration failed" in graph.tick(SENSOR).skip_message


@pytest.mark.servers
def test_a_launched_run_without_a_lease_is_dead_after_a_while(graph: Graph) -> None:
    let_something_wait(graph)
    run = started(graph)
    assert graph.tick(SENSOR).run_requests == []
    pipeline = graph.settings.pipeline.model_copy(update={"start_seconds": 1e-3})
    hasty = Graph(graph.settings, graph.instance)
    hasty.definitions = build_definitions(
        settings=graph.settings.model_copy(update={"pipeline": pipeline})
    )
    assert len(hasty.tick(SENSOR).run_requests) == 1
    assert reloaded(graph, run).status is dg.DagsterRunStatus.FAILURE


@pytest.mark.servers
def test_a_run_that_gave_its_lease_back_may_take_its_time_to_end(
    graph: Graph, owners: Owners
) -> None:
    run = started(graph)
    owners.claim(JOB, run_id=run.run_id).end()
    graph.tick("end_dead_runs")
    assert reloaded(graph, run).status is dg.DagsterRunStatus.STARTED


@pytest.mark.servers
def test_every_kind_of_run_is_told_dead_by_its_lease_and_nobody_elses(
    graph: Graph, owners: Owners
) -> None:
    rebuild, strange = started(graph, "rebuild_registration"), started(graph, "close_hour")
    cancelled = started(graph, "compact_pages")
    graph.instance.report_run_canceling(cancelled)
    for run in (rebuild, cancelled):
        owners.claim(run.job_name, run_id=run.run_id)
        owners.die(run.run_id)
    assert rebuild.run_id in graph.tick("end_dead_runs").skip_message
    assert reloaded(graph, rebuild).status is dg.DagsterRunStatus.FAILURE
    assert reloaded(graph, cancelled).status is dg.DagsterRunStatus.CANCELED
    # It has claimed nothing, so it may be somebody else's.
    assert reloaded(graph, strange).status is dg.DagsterRunStatus.STARTED
    assert "Every run lives" in graph.tick("end_dead_runs").skip_message


@pytest.mark.servers
def test_whoever_drains_without_dagster_is_respected(graph: Graph, owners: Owners) -> None:
    let_something_wait(graph)
    lease = owners.drain(None)
    assert "drains." in graph.tick(SENSOR).skip_message
    for sensor in ("publish_when_outbox_waits", "scan_when_overdue"):
        assert "is drained by process" in graph.tick(sensor).skip_message
    lease.ask_for_successor()
    assert len(graph.tick(SENSOR).run_requests) == 1
    owners.die(None)
    assert len(graph.tick(SENSOR).run_requests) == 1
    assert "The outbox is empty" in graph.tick("publish_when_outbox_waits").skip_message

"""Runs that hold a lease, on real servers: they hand over warm, and nobody works without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import PipelineSettings, Settings
from onex_platform.delivery.lease_heartbeats import LEASE_HEARTBEAT
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.engines.postgres.leases import (
    LeaseLostError,
    draining_lease,
    leases_of_runs,
    living,
    open_keeper,
)
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import drain
from onex_platform.pipeline.service import ServiceAccount, rehearse, serve, work
from onex_platform.pipeline.tenure import Terms
from onex_platform.stack.processes import wait_until
from onex_platform.topics.signals import Published
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of
from onex_platform_tests.support.met_topics import (
    as_contracts_say,
    decoded,
    topics_for_a_while,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NAME = draining_lease("registration")
PATIENCE = 60


@pytest.fixture
def archive(pipeline_settings: Settings) -> Iterator[PageArchive]:
    with open_archive(pipeline_settings) as opened:
        yield opened


class Workers:
    """Runs in threads: one Spark serves them all, each has a keeper of its own."""

    def __init__(self, spark: SparkSession, settings: Settings, opened: ExitStack) -> None:
        self._spark = spark
        self._settings = settings
        self._opened = opened
        self._pool = opened.enter_context(ThreadPoolExecutor(8))
        self._ending = threading.Event()
        opened.callback(self._ending.set)

    def start(
        self,
        run_id: str,
        terms: Terms | None = None,
        published: Published | None = None,
        **pipeline: Any,
    ) -> Future[ServiceAccount]:
        chosen = {"poll_seconds": 0.1, "lease_seconds": 1.5, "linger_seconds": 30, **pipeline}
        settings = self._settings.model_copy(update={"pipeline": PipelineSettings(**chosen)})

        def run() -> ServiceAccount:
            with open_keeper(settings) as keeper, open_archive(settings) as archive:
                return work(
                    self._spark,
                    archive,
                    keeper,
                    published=published,
                    run_id=run_id,
                    terms=terms,
                    while_waiting=self._end_with_the_test,
                )

        return self._pool.submit(run)

    def _end_with_the_test(self) -> None:
        if self._ending.is_set():
            raise KeyboardInterrupt


@pytest.fixture
def workers(spark: SparkSession, pipeline_settings: Settings) -> Iterator[Workers]:
    with ExitStack() as opened:
        yield Workers(spark, pipeline_settings, opened)


def holder(archive: PageArchive) -> str | None:
    leases = living(archive.database, NAME)
    return next((lease.run_id for lease in leases if lease.taken_at is not None), None)


def stands_by(archive: PageArchive, run_id: str) -> bool:
    leases = living(archive.database, NAME)
    return any(lease.run_id == run_id and lease.ready_at is not None for lease in leases)


def ending_of(archive: PageArchive, run_id: str) -> str | None:
    [lease] = leases_of_runs(archive.database, [run_id])[run_id]
    return lease.ending


def await_holder(archive: PageArchive, run_id: str) -> None:
    assert wait_until(lambda: holder(archive) == run_id, PATIENCE)


@contextmanager
def steady_arrivals(settings: Settings) -> Iterator[list[str]]:
    """New nodes all the time; their names."""
    nodes: list[str] = []
    stop = threading.Event()

    def announce() -> None:
        while not stop.wait(0.2):
            node = f"steady-{uuid4()}"
            send(settings, [sent(Kind.NODE_INTROSPECTION, node)])
            nodes.append(node)

    thread = threading.Thread(target=announce)
    thread.start()
    try:
        yield nodes
    finally:
        stop.set()
        thread.join()


def require_all_there(spark: SparkSession, archive: PageArchive, nodes: list[str]) -> None:
    """Every node has a row, every event its place, and the rows are what the log says."""
    drain(spark, archive, linger_seconds=0.3)
    assert {row.node_name for row in rows_of(archive).values()} == set(nodes)
    assert verify_log(archive.log).faults == []
    require_live_equals_replay(archive)


def test_a_run_hands_over_to_its_successor_before_its_time_is_over(
    spark: SparkSession, archive: PageArchive, workers: Workers
) -> None:
    with steady_arrivals(archive.settings) as nodes:
        bounded = {"run_seconds": 3600.0, "handover_seconds": 3599.0, "linger_seconds": 100}
        first = workers.start("first", **bounded)
        await_holder(archive, "first")
        second = workers.start("second", run_seconds=6, handover_seconds=1, linger_seconds=1)
        await_holder(archive, "second")
        account = first.result(PATIENCE)
        assert ending_of(archive, "first") == "handed_over"
        assert account.drained.batches > 0
    # Nobody succeeds this one: it goes on until nothing comes any more.
    second.result(PATIENCE)
    assert ending_of(archive, "second") == "released"
    require_all_there(spark, archive, nodes)


def test_enough_records_are_a_reason_to_hand_over_as_well(
    archive: PageArchive, workers: Workers
) -> None:
    first = workers.start("first", run_records=3)
    await_holder(archive, "first")
    workers.start("second", linger_seconds=0.5)
    assert wait_until(lambda: stands_by(archive, "second"), PATIENCE)
    assert holder(archive) == "first"
    send(archive.settings, [sent(Kind.NODE_INTROSPECTION, f"n{n}") for n in range(3)])
    first.result(PATIENCE)
    assert ending_of(archive, "first") == "handed_over"


def test_new_code_takes_over_from_old_and_not_the_other_way_round(
    archive: PageArchive, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = workers.start("old")
    await_holder(archive, "old")
    monkeypatch.setattr("onex_platform.engines.postgres.leases.code_version", lambda: "2.0")
    workers.start("new", linger_seconds=5)
    old.result(PATIENCE)
    assert ending_of(archive, "old") == "handed_over"
    await_holder(archive, "new")


def test_a_run_that_lost_its_lease_stops_and_commits_nothing_more(
    spark: SparkSession, archive: PageArchive, workers: Workers
) -> None:
    with steady_arrivals(archive.settings) as nodes:
        first = workers.start("first")
        await_holder(archive, "first")
        assert wait_until(lambda: rows_of(archive) != {}, PATIENCE)
        second = workers.start("second", linger_seconds=1)
        assert wait_until(lambda: stands_by(archive, "second"), PATIENCE)
        with archive.database.transaction() as cursor:
            cursor.execute(
                "UPDATE leases SET ended_at = clock_timestamp(), ending = 'expired'"
                " WHERE run_id = 'first'"
            )
        with pytest.raises(LeaseLostError):
            first.result(PATIENCE)
        await_holder(archive, "second")
        assert wait_until(lambda: len(rows_of(archive)) > len(nodes) // 2, PATIENCE)
    second.result(PATIENCE)
    require_all_there(spark, archive, nodes)


def test_two_that_work_at_once_lose_and_double_nothing(
    spark: SparkSession, archive: PageArchive, pipeline_settings: Settings
) -> None:
    """As if the lease had failed: both believe that they are alone."""
    with ThreadPoolExecutor(2) as pool, steady_arrivals(archive.settings) as nodes:

        def serve_alone() -> ServiceAccount:
            with open_archive(pipeline_settings) as own:
                return serve(spark, own, linger_seconds=2)

        rivals = [pool.submit(serve_alone) for _ in range(2)]
        assert wait_until(lambda: len(nodes) > 40, PATIENCE)
    for rival in rivals:
        rival.result(PATIENCE)
    require_all_there(spark, archive, nodes)
    with archive.database.transaction() as cursor:
        [(facts, ids)] = cursor.execute(
            "SELECT (SELECT sum(event_count) FROM pages WHERE reason = 'decision'),"
            " (SELECT count(DISTINCT entity_id) FROM published_ack_requests)"
        ).fetchall()
    # Each node was accepted and asked once.
    assert (int(facts), int(ids)) == (2 * len(nodes), len(nodes))


def test_a_rehearsal_leaves_no_trace(spark: SparkSession, archive: PageArchive) -> None:
    send(archive.settings, [sent(Kind.NODE_INTROSPECTION, f"n{n}") for n in range(5)])
    drain(spark, archive, linger_seconds=0.2)
    before = _traces(archive)
    assert before["pages"]
    rehearse(spark, archive)
    assert _traces(archive) == before


def _traces(archive: PageArchive) -> dict[str, int]:
    with archive.database.transaction() as cursor:
        tables = cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        counts = {}
        for table in [row.tablename for row in tables]:
            [(rows,)] = cursor.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608
            counts[table] = int(rows)
    return {**counts, "files": sum(1 for _ in archive.log.store.objects())}


def test_a_server_that_comes_back_is_waited_for_and_one_never_reached_is_not(
    archive: PageArchive, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = PageArchive.take_cut, iter([True] * 2)

    def away(self: PageArchive, *arguments: Any, **named: Any) -> Any:
        if rows_of(archive) and next(failures, False):
            raise InfraConnectionError("The broker is away.")
        return real(self, *arguments, **named)

    monkeypatch.setattr(PageArchive, "take_cut", away)
    send(archive.settings, [sent(Kind.NODE_INTROSPECTION, "before")])
    run = workers.start("run", linger_seconds=4)
    assert wait_until(lambda: len(rows_of(archive)) == 1, PATIENCE)
    send(archive.settings, [sent(Kind.NODE_INTROSPECTION, "after")])
    assert run.result(PATIENCE).drained.caught_up
    assert len(rows_of(archive)) == 2
    assert next(failures, None) is None

    def gone(self: PageArchive, *arguments: Any, **named: Any) -> Any:
        raise InfraConnectionError("The broker is away.")

    monkeypatch.setattr(PageArchive, "take_cut", gone)
    with pytest.raises(InfraConnectionError):
        workers.start("other").result(PATIENCE)
    assert ending_of(archive, "other") == "released"


def test_whoever_has_the_lease_gives_signs_of_life_under_its_number(
    archive: PageArchive, workers: Workers
) -> None:
    with topics_for_a_while(archive.settings, [LEASE_HEARTBEAT]) as [topic]:
        before = end_positions(archive.settings, [topic])
        terms = Terms(bounded=False, linger_seconds=5)
        workers.start("one", terms, as_contracts_say).result(PATIENCE)
        records = list(read_to_end(archive.settings, [topic], before))
    told = [decoded(LEASE_HEARTBEAT, record.value() or b"") for record in records]
    signs = [sign for sign in told if sign["lease_name"] == NAME]
    [lease] = leases_of_runs(archive.database, ["one"])["one"]
    assert {sign["fence"] for sign in signs} == {lease.number}
    assert [sign["is_last"] for sign in signs] == [False, True]

"""The graph at work on real servers: runs drain, assets materialise, sensors start and watch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.graph import Graph, hour_key, hours_ago, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.long]

Kind = EnumEventKind


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def graph(
    pipeline_settings: Settings, spark: SparkSession, instance: dg.DagsterInstance
) -> Iterator[Graph]:
    yield Graph(pipeline_settings, instance)
    assert spark.range(1).count() == 1  # runs leave a session alone that was there before


INTROSPECTION = load_catalogue().for_kind(Kind.NODE_INTROSPECTION).topic
ERRORS = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic


def _join(graph: Graph, *nodes: str) -> None:
    send(graph.settings, [sent(Kind.NODE_INTROSPECTION, node) for node in nodes])


def test_a_run_drains_what_waits_and_says_what_it_did(graph: Graph) -> None:
    _join(graph, "a", "b", "c")
    send(graph.settings, [sent(Kind.NODE_HEARTBEAT, "a", value=b"not json")])
    run = graph.run("drain_registration")
    assert run.success
    [rows, snapshots] = run.asset_materializations_for_node("drain_input")
    assert rows.asset_key == wiring.REGISTRATION_PROJECTIONS
    found = numbers(rows.metadata)
    # The six decisions are published, and read again as echoes.
    assert (found["read"], found["archived"], found["parked before the log"]) == (10, 3, 1)
    assert (found["facts"], found["applied"], found["rows"]) == (6, 9, 3)
    assert found["duplicate"] == found["echoes"] == 6
    assert found["broker clock ahead by seconds"] == 0  # one machine, one clock
    assert snapshots.asset_key == wiring.REGISTRATION_SNAPSHOTS
    published = numbers(snapshots.metadata)
    assert (published["snapshots"], published["events"], published["waiting"]) == (3, 6, 0)
    [pages] = run.asset_observations_for_node("drain_input")
    assert pages.asset_key == wiring.EVENT_PAGES
    checked = {check.check_name: check for check in run.get_asset_check_evaluations()}
    assert set(checked) == {
        "accounting",
        "fold_keeps_up",
        "nobody_is_set_aside",
        "no_overdue_without_fact",
        "live_equals_replay",
    }
    assert all(check.passed for check in checked.values())
    account = numbers(checked["accounting"].metadata)
    assert (account["read"], account["parked before the log"], account["folded"]) == (10, 1, 9)
    assert numbers(checked["live_equals_replay"].metadata)["equal"] == 3


def test_an_hour_is_closed_archived_folded_and_kept_in_one_run(graph: Graph) -> None:
    run = graph.run("close_hour", partition_key=hour_key(hours_ago(datetime.now(UTC), 1)))
    assert [event.asset_key for event in run.get_asset_materialization_events()] == [
        wiring.EVENT_PAGES,
        wiring.REGISTRATION_PROJECTIONS,
        wiring.REGISTRATION_HISTORY,
    ]


def test_a_node_that_is_set_aside_fails_its_check_and_no_run(graph: Graph) -> None:
    _execute(graph, "ALTER TABLE handed_projections ADD CONSTRAINT odd CHECK (node_name <> 'sick')")
    _join(graph, "a", "sick", "b")
    run = graph.run("drain_registration")
    assert run.success
    failed = {c.check_name for c in run.get_asset_check_evaluations() if not c.passed}
    assert failed == {"nobody_is_set_aside", "live_equals_replay"}
    assert _check_numbers(run, "nobody_is_set_aside")["set aside"] == 1
    # Neither the hour nor the nightly proof stops for it.
    hour = hour_key(hours_ago(datetime.now(UTC), 1))
    assert graph.run("close_hour", partition_key=hour).success
    assert graph.run("prove_registration").success
    _execute(graph, "ALTER TABLE handed_projections DROP CONSTRAINT odd")
    config = {"dry_run": False, "entity": "sick"}
    swapped = graph.run(
        "rebuild_registration", run_config={"ops": {"rebuild_rows": {"config": config}}}
    )
    assert _output_numbers(swapped, "rebuild_rows")["set aside"] == 1
    proof = graph.run("prove_registration")
    assert all(check.passed for check in proof.get_asset_check_evaluations())


def test_rows_that_are_not_what_the_log_says_are_found_and_rebuilt(graph: Graph) -> None:
    _join(graph, "a", "b", "c")
    graph.run("drain_registration")
    _execute(
        graph, "UPDATE registration_projections SET node_version = 'forged' WHERE node_name = 'b'"
    )

    proof = graph.run("prove_registration", raise_on_error=False)
    assert not proof.success
    passed = {check.check_name: check.passed for check in proof.get_asset_check_evaluations()}
    assert [name for name, verdict in passed.items() if not verdict] == ["live_equals_replay"]
    assert len(passed) == 7
    found = _check_numbers(proof, "live_equals_replay")
    assert (found["equal"], found["differing"]) == (2, 1)

    tried = graph.run("rebuild_registration")
    assert _output_numbers(tried, "rebuild_rows")["differing"] == 1
    assert not graph.run("prove_registration", raise_on_error=False).success

    swap = {"ops": {"rebuild_rows": {"config": {"dry_run": False}}}}
    graph.run("rebuild_registration", run_config=swap)
    proof = graph.run("prove_registration")
    assert _check_numbers(proof, "live_equals_replay")["equal"] == 3
    assert _check_numbers(proof, "pages_are_sound")["read pages"] == 2


def test_accounts_that_do_not_add_up_fail_the_run(graph: Graph) -> None:
    _join(graph, "a")
    graph.run("drain_registration")
    _execute(graph, "UPDATE batch_outcomes SET read = read + 1, applied = applied + 1")
    # The run has counted it: that it changed since is for the nightly proof to find.
    proof = graph.run("prove_registration", raise_on_error=False)
    assert not _check(proof, "accounting").passed
    _execute(graph, "DELETE FROM verified_accounts")
    folded = graph.materialize(wiring.REGISTRATION_PROJECTIONS, raise_on_error=False)
    assert not folded.success
    assert not _check(folded, "accounting").passed
    assert _check(folded, "accounting").blocking
    _join(graph, "b")
    assert not graph.run("drain_registration", raise_on_error=False).success


def test_lag_starts_one_run_at_a_time(graph: Graph) -> None:
    assert "Nothing waits" in graph.tick("drain_when_behind").skip_message
    _join(graph, "a")
    [request] = graph.tick("drain_when_behind", cursor="not a cursor").run_requests
    assert request.run_key is None  # a key would be good for one run only
    job = graph.definitions.resolve_job_def("drain_registration")
    run = graph.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert "about to take the lease" in graph.tick("drain_when_behind").skip_message
    graph.instance.report_run_failed(run)
    # Once may be an accident, and the next one starts at once.
    assert len(graph.tick("drain_when_behind").run_requests) == 1
    graph.instance.report_run_failed(graph.instance.create_run_for_job(job))
    assert "2 runs of drain_registration failed" in graph.tick("drain_when_behind").skip_message
    assert graph.run("drain_registration").success
    assert "Nothing waits" in graph.tick("drain_when_behind").skip_message


def test_facts_that_wait_and_events_that_are_not_folded_start_a_run_as_well(graph: Graph) -> None:
    _join(graph, "a")
    graph.run("drain_registration")
    assert "Nothing waits" in graph.tick("drain_when_behind").skip_message
    _execute(graph, "UPDATE fold_cursors SET position = position - 3600000::bigint * 1048576")
    assert len(graph.tick("drain_when_behind").run_requests) == 1
    _execute(graph, "UPDATE fold_cursors SET position = position + 3600000::bigint * 1048576")
    _execute(
        graph,
        "INSERT INTO fact_inbox (event_id, domain, entity_id, kind, tenant, occurred_at, payload)"
        " VALUES (gen_random_uuid(), 'registration', gen_random_uuid(),"
        " 'registry.node.deregistered', 'acme', now(), '{\"node_id\": \"a\"}')",
    )
    assert len(graph.tick("drain_when_behind").run_requests) == 1


def test_topics_are_observed_when_they_have_news(graph: Graph) -> None:
    _join(graph, "a", "b")
    seen = graph.tick("observe_topics", cursor="{not a cursor")
    topic = wiring.topic_key(INTROSPECTION)
    [observation] = [
        event
        for event in seen.asset_events
        if isinstance(event, dg.AssetObservation) and event.asset_key == topic
    ]
    found = numbers(observation.metadata)
    assert (found["lag in events"], found["lag verdict"], found["lost events"]) == (2, "ok", 0)
    assert found["end offset"] >= 2
    assert found["retention left in seconds"] > 3600
    checked = {
        event.check_name: event.passed
        for event in seen.asset_events
        if isinstance(event, dg.AssetCheckEvaluation) and event.asset_key == topic
    }
    assert checked == {"archive_keeps_up": True, "broker_dates_records": True}
    observed = {event.asset_key for event in seen.asset_events}
    assert observed == {wiring.topic_key(contract.topic) for contract in load_catalogue()}
    assert "No topic has news" in graph.tick("observe_topics", cursor=seen.cursor).skip_message


def test_the_lag_of_one_topic_can_be_checked_by_hand(graph: Graph) -> None:
    _join(graph, "a")
    topic = wiring.topic_key(INTROSPECTION)
    job = graph.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(),
        asset_check_selection={dg.AssetCheckKey(topic, "archive_keeps_up")},
    )
    [check] = job.execute_in_process(instance=graph.instance).get_asset_check_evaluations()
    assert check.asset_key == topic
    assert numbers(check.metadata)["lag in events"] == 1


def test_small_pages_are_merged_when_there_are_enough(graph: Graph) -> None:
    # Each run leaves a page of records, and one of decisions; their echoes leave none.
    few = graph.settings.pages.model_copy(update={"compact_when": 6})
    graph = Graph(graph.settings.model_copy(update={"pages": few}), graph.instance)
    sensor = "compact_when_small_pages_pile_up"
    for node in "ab":
        _join(graph, node)
        graph.run("drain_registration")
    assert "4 pages are worth merging; 6 start a run" in graph.tick(sensor).skip_message
    _join(graph, "c")
    graph.run("drain_registration")
    assert len(graph.tick(sensor).run_requests) == 1

    trial = {"ops": {"merge_pages": {"config": {"dry_run": True}}}}
    planned = _output_numbers(graph.run("compact_pages", run_config=trial), "merge_pages")
    assert (planned["groups"], planned["pages"]) == (1, 6)
    merged = _output_numbers(graph.run("compact_pages"), "merge_pages")
    assert (merged["pages"], merged["merged_pages"]) == (6, 1)
    assert "0 pages are worth merging" in graph.tick(sensor).skip_message
    assert graph.run("prove_registration").success

    trial = {"ops": {"sweep_pages": {"config": {"dry_run": True}}}}
    assert _output_numbers(graph.run("sweep_replaced_pages", run_config=trial), "sweep_pages") == {
        "pages": 0,  # within the grace period
        "bytes": 0,
    }


def test_the_ledger_forgets_only_what_no_topic_can_deliver_again(graph: Graph) -> None:
    _join(graph, "a")
    graph.run("drain_registration")
    kept = _output_numbers(graph.run("prune_ledger"), "forget_event_ids")
    assert kept["forgotten ids"] == 1  # the sender's clock is months behind
    assert _output_numbers(graph.run("prune_ledger"), "forget_event_ids")["forgotten ids"] == 0


def test_a_failed_run_becomes_an_event_without_secrets(graph: Graph) -> None:
    @dg.op
    def connect() -> None:
        raise ConnectionError("postgresql://onex:hunter2@db.internal:5432/onex refused us")

    @dg.job
    def reaches_for_a_server() -> None:
        connect()

    before = end_positions(graph.settings, [ERRORS])
    run = reaches_for_a_server.execute_in_process(instance=graph.instance, raise_on_error=False)

    told = graph.tick("publish_runs")
    assert (
        "No run has begun or ended" in graph.tick("publish_runs", cursor=told.cursor).skip_message
    )
    graph.tick("publish_runs", cursor="lost")
    first, again = read_to_end(graph.settings, [ERRORS], before)
    assert first.key() == run.run_id.encode()
    event = json.loads(first.value())
    assert event["event_type"] == Kind.ERROR_DETECTED.event_type
    assert UUID(event["correlation_id"]) == UUID(run.run_id)
    assert event["payload"]["error_code"] == "CONNECTION_ERROR"
    assert event["payload"]["operation"] == "reaches_for_a_server"
    assert event["payload"]["context"]["step"] == "connect"
    assert "refused us" in event["payload"]["message"]
    assert b"hunter2" not in first.value()
    assert json.loads(again.value())["event_id"] == event["event_id"]


def test_a_run_that_was_found_dead_becomes_an_event_with_the_reason(graph: Graph) -> None:
    job = graph.definitions.resolve_job_def("drain_registration")
    run = graph.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    before = end_positions(graph.settings, [ERRORS])
    graph.instance.report_run_failed(run, "The run is dead: it has not renewed its lease.")
    graph.tick("publish_runs")
    [told] = read_to_end(graph.settings, [ERRORS], before)
    assert "not renewed its lease" in json.loads(told.value())["payload"]["message"]


def test_a_failure_that_can_not_be_told_now_is_told_later(graph: Graph) -> None:
    kafka = graph.settings.kafka.model_copy(
        update={"bootstrap_servers": "127.0.0.1:1", "connect_timeout_seconds": 0.1}
    )
    without_broker = Graph(graph.settings.model_copy(update={"kafka": kafka}), graph.instance)
    assert not without_broker.run("drain_registration", raise_on_error=False).success
    with pytest.raises(InfraError):
        without_broker.tick("publish_runs")
    before = end_positions(graph.settings, [ERRORS])
    graph.tick("publish_runs")
    [event] = read_to_end(graph.settings, [ERRORS], before)
    assert json.loads(event.value())["payload"]["error_code"] == "INFRA_CONNECTION_ERROR"


def _execute(graph: Graph, statement: str) -> None:
    with (
        open_archive(graph.settings) as archive,
        archive.database.transaction() as cursor,
    ):
        cursor.execute(statement)


def _check(run: dg.ExecuteInProcessResult, name: str) -> dg.AssetCheckEvaluation:
    [check] = [found for found in run.get_asset_check_evaluations() if found.check_name == name]
    return check


def _check_numbers(run: dg.ExecuteInProcessResult, name: str) -> dict[str, Any]:
    return numbers(_check(run, name).metadata)


def _output_numbers(run: dg.ExecuteInProcessResult, op: str) -> dict[str, Any]:
    [output] = [event for event in run.events_for_node(op) if event.is_successful_output]
    return numbers(output.step_output_data.metadata)

"""The snapshots in the graph: asset, sensor, sweep and check on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.graph import Graph, numbers
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers


@pytest.fixture
def graph(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("SNAPSHOT_TOPIC", registry.config.topic)
    monkeypatch.setenv("SNAPSHOT_PARTITION_COUNT", str(registry.config.partition_count))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Graph(registry.settings, instance)


def _config(**fields: Any) -> dict[str, Any]:
    return {"ops": {"registration_snapshots": {"config": fields}}}


def _verdicts(run: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {check.check_name: check for check in run.get_asset_check_evaluations()}


def test_materialising_publishes_what_waits_and_checks_the_topic(
    graph: Graph, registry: Registry
) -> None:
    registry.change(1, 2)
    registry.close(2)
    run = graph.materialize(wiring.REGISTRATION_SNAPSHOTS)
    assert run.success
    [event] = run.asset_materializations_for_node("registration_snapshots")
    found = numbers(event.metadata)
    assert (found["snapshots"], found["tombstones"], found["waiting"]) == (1, 1, 0)
    assert found["topic"] == registry.config.topic
    verdicts = _verdicts(run)
    assert all(check.passed for check in verdicts.values())
    assert numbers(verdicts["snapshot_topic_equals_projection"].metadata)["equal"] == 2
    assert numbers(verdicts["compaction_keeps_up"].metadata)["records"] == 2


def test_chosen_entities_are_published_though_nothing_changed(
    graph: Graph, registry: Registry
) -> None:
    registry.change(1, 2)
    graph.run("publish_snapshots")
    run = graph.run("publish_snapshots", run_config=_config(entities=[str(number_id(1))]))
    [event] = run.asset_materializations_for_node("registration_snapshots")
    assert numbers(event.metadata)["queued on demand"] == 1
    assert [state.entity_id for state in registry.published()].count(number_id(1)) == 2


def test_chosen_entities_that_nobody_knows_are_named(graph: Graph, registry: Registry) -> None:
    registry.change(1)
    chosen = [str(number_id(1)).upper(), "nobody"]
    run = graph.run("publish_snapshots", run_config=_config(entities=chosen))
    [event] = run.asset_materializations_for_node("registration_snapshots")
    found = numbers(event.metadata)
    assert (found["queued on demand"], found["not in the registry"]) == (1, "nobody")
    with pytest.raises(ConfigurationError, match="entities='': node_id is empty"):
        graph.run("publish_snapshots", run_config=_config(entities=[""]))


def test_a_node_that_is_too_large_is_named_in_the_graph(graph: Graph, registry: Registry) -> None:
    registry.change(1, capabilities={"text": "x" * 5_000_000})
    run = graph.run("publish_snapshots")
    [event] = run.asset_materializations_for_node("registration_snapshots")
    found = numbers(event.metadata)
    assert (found["too large"], found["too large nodes"]) == (1, str(number_id(1)))
    check = _verdicts(graph.run("sweep_snapshots"))["snapshot_topic_equals_projection"]
    assert not check.passed
    assert str(number_id(1)) in str(check.description)


def test_the_sensor_starts_the_relay_when_something_waits_and_nobody_drains(
    graph: Graph, registry: Registry
) -> None:
    def tick() -> Any:
        return graph.tick("publish_when_outbox_waits")

    assert "empty" in str(tick().skip_message)
    registry.change(1)
    assert len(tick().run_requests) == 1
    draining = graph.definitions.resolve_job_def(wiring.DRAINING_JOB)
    graph.instance.create_run_for_job(draining, status=dg.DagsterRunStatus.STARTED)
    assert wiring.DRAINING_JOB in str(tick().skip_message)


def test_the_sweep_says_what_it_found_and_repairs_it(graph: Graph, registry: Registry) -> None:
    registry.change(1, 2)
    with registry.store.database.transaction() as cursor:
        cursor.execute("DELETE FROM outbox")
    sweeping = {"ops": {"compare_and_repair": {"config": {"dry_run": True}}}}
    for expected in (False, False):  # a dry run changes nothing, so the next one finds the same
        run = graph.run("sweep_snapshots", run_config=sweeping)
        check = _verdicts(run)["snapshot_topic_equals_projection"]
        assert check.passed is expected
        assert numbers(check.metadata)["missing"] == 2
    for expected in (False, True):  # the one that repairs still tells
        verdicts = _verdicts(graph.run("sweep_snapshots"))
        assert verdicts["snapshot_topic_equals_projection"].passed is expected
        assert verdicts["compaction_keeps_up"].passed
    registry.require_topic_equals_rows()


def test_the_sweep_runs_every_five_minutes_and_at_night(graph: Graph) -> None:
    schedules = [
        schedule
        for schedule in graph.definitions.get_repository_def().schedule_defs
        if schedule.job_name == "sweep_snapshots"
    ]
    assert {schedule.cron_schedule for schedule in schedules} == {"*/5 * * * *", "32 2 * * *"}
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.RUNNING}


def test_the_nightly_sweep_compares_contents(graph: Graph, registry: Registry) -> None:
    registry.change(1, 2)
    graph.run("publish_snapshots")
    [nightly] = [
        schedule
        for schedule in graph.definitions.get_repository_def().schedule_defs
        if schedule.name == "sweep_snapshots_with_contents"
    ]
    [tick] = nightly.evaluate_tick(dg.build_schedule_context()).run_requests
    for config, compared in ((None, 0), (tick.run_config, 2)):
        run = graph.run("sweep_snapshots", run_config=config)
        check = _verdicts(run)["snapshot_topic_equals_projection"]
        assert (check.passed, numbers(check.metadata)["contents compared"]) == (True, compared)


def test_the_graph_leads_from_the_rows_to_the_topic(graph: Graph) -> None:
    assets = graph.definitions.resolve_asset_graph()
    topic = wiring.topic_key(load_catalogue().snapshot("registration").topic)
    assert assets.get(wiring.REGISTRATION_SNAPSHOTS).parent_keys == {
        wiring.REGISTRATION_PROJECTIONS
    }
    assert assets.get(topic).parent_keys == {wiring.REGISTRATION_SNAPSHOTS}

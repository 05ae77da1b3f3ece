"""Dagster's side: the graph loads, holds every topic, and its instance runs on PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph import AssetNode
from dagster._core.instance.config import PoolGranularity

from onex_platform import wiring
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.base.settings import RegistrationSettings, Settings
from onex_platform.definitions import build_definitions
from onex_platform.topics.catalogue import Catalogue, load_catalogue

CHECKOUT = project_folder("contracts").parent

# What an import must not do: reach the network, start a program, read a contract or a setting.
# Dagster, imported before the rule holds, starts `file` to learn about the machine.
_IMPORT_WITHOUT_EFFECTS = """
import sys
import dagster

def refuse(event, args):
    if event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.system", "os.fork"):
        raise AssertionError(f"{event} {args} at import")
    if event == "open" and str(args[0]).endswith((".yaml", ".sql", ".env")):
        raise AssertionError(f"{args[0]} read at import")

sys.addaudithook(refuse)
import onex_platform.definitions
print("imported")
"""


def _topics(definitions: dg.Definitions) -> dict[str, AssetNode]:
    nodes = definitions.resolve_asset_graph().asset_nodes
    return {node.key.path[1]: node for node in nodes if node.key.path[0] == "kafka"}


def _specs() -> dict[str, dg.AssetSpec]:
    return {name: node.to_asset_spec() for name, node in _topics(build_definitions()).items()}


def test_every_topic_of_the_catalogue_is_an_external_asset() -> None:
    topics = _topics(build_definitions())
    assert set(topics) == {contract.topic for contract in load_catalogue()}
    assert not any(node.is_materializable for node in topics.values())


def test_a_topic_shows_its_contract() -> None:
    specs = _specs()
    for contract in load_catalogue():
        spec = specs[contract.topic]
        assert spec.kinds == {"kafka"}
        assert spec.group_name == "topics"
        assert spec.owners == [f"team:{contract.owner}"]
        assert contract.description in (spec.description or "")
        assert spec.metadata["message key"] == contract.key
        assert spec.metadata["partitions"] == contract.partitions


def test_a_legacy_topic_warns() -> None:
    specs = _specs()
    for contract in load_catalogue().legacy():
        assert (contract.warning or "?") in (specs[contract.topic].description or "")


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_asset_keys_are_the_same_in_every_environment(environment: str) -> None:
    settings = Settings(environment=environment)
    graph = build_definitions(settings=settings).resolve_asset_graph()
    assert (
        graph.get_all_asset_keys() == build_definitions().resolve_asset_graph().get_all_asset_keys()
    )


def test_arguments_replace_parts() -> None:
    settings, double = Settings(tenant="acme"), object()
    built = build_definitions(
        settings=settings, catalogue=Catalogue([]), resources={"double": double}
    )
    assert not _topics(built)
    assert built.resources is not None
    assert built.resources["settings"] is settings
    assert built.resources["double"] is double


def test_the_log_begins_from_the_input_topics_and_the_rows_from_the_log() -> None:
    graph = build_definitions().resolve_asset_graph()
    inputs = {wiring.topic_key(found.topic) for found in load_catalogue().registration_inputs()}
    assert graph.get(wiring.EVENT_PAGES).parent_keys == inputs
    assert graph.get(wiring.REGISTRATION_PROJECTIONS).parent_keys == {wiring.EVENT_PAGES}
    assert graph.get(wiring.REGISTRATION_HISTORY).parent_keys == {
        wiring.EVENT_PAGES,
        wiring.REGISTRATION_PROJECTIONS,
    }


def test_hours_become_partitions_when_they_are_over_and_backfill_in_one_run() -> None:
    graph = build_definitions().resolve_asset_graph()
    for key in (wiring.EVENT_PAGES, wiring.REGISTRATION_HISTORY):
        node = graph.get(key)
        assert node.backfill_policy == dg.BackfillPolicy.single_run()
        assert node.partitions_def is not None
        last = node.partitions_def.get_last_partition_key()
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        assert last == (hour - timedelta(hours=1)).strftime("%Y-%m-%d-%H:%M")


def test_automation_is_on_from_the_start() -> None:
    repository = build_definitions().get_repository_def()
    assert repository.sensor_defs
    assert repository.schedule_defs
    for sensor in repository.sensor_defs:
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    for schedule in repository.schedule_defs:
        assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


def test_steps_that_extend_log_or_rows_run_one_at_a_time() -> None:
    definitions = build_definitions()
    steps = [
        definitions.resolve_job_def("close_hour").get_node_named(key.path[0])
        for key in (
            wiring.EVENT_PAGES,
            wiring.REGISTRATION_PROJECTIONS,
            wiring.REGISTRATION_HISTORY,
        )
    ]
    assert {step.definition.pool for step in steps} == {wiring.WRITER_POOL}
    # A draining run waits for its lease instead: in a pool, no successor could warm up beside it.
    draining = definitions.resolve_job_def("drain_registration").get_node_named("drain_input")
    assert draining.definition.pool is None


def test_a_ledger_that_forgets_too_early_is_refused_when_the_graph_is_made() -> None:
    settings = Settings(registration=RegistrationSettings(ledger_days=1))
    with pytest.raises(ConfigurationError, match="ONEX_REGISTRATION_LEDGER_DAYS=1 is too short"):
        build_definitions(settings=settings)


def test_importing_the_entry_point_has_no_effects() -> None:
    answer = _python("-c", _IMPORT_WITHOUT_EFFECTS)
    assert answer.stdout.strip() == "imported", answer.stderr


def test_dagster_validates_the_workspace_as_a_code_location_of_its_own(tmp_path: Path) -> None:
    workspace = str(CHECKOUT / "workspace.yaml")
    answer = _python(
        *("-m", "dagster", "definitions", "validate", "--load-with-grpc", "--workspace", workspace),
        environment={"DAGSTER_HOME": str(tmp_path)},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Validation successful for code location onex_platform" in answer.stdout + answer.stderr


@pytest.mark.servers
def test_the_instance_of_dagster_yaml_runs_on_postgresql(
    stack_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stack_settings.postgres.dagster_url is not None
    monkeypatch.setenv(
        "ONEX_POSTGRES_DAGSTER_URL", stack_settings.postgres.dagster_url.get_secret_value()
    )
    shutil.copy(CHECKOUT / "dagster.yaml", tmp_path)

    @dg.op(pool="writer")
    def write() -> None: ...

    @dg.job
    def job() -> None:
        write()

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = job.execute_in_process(instance=instance)
        assert instance.get_run_by_id(run.run_id) is not None
        assert instance.event_log_storage.get_concurrency_info("writer").slot_count == 1

        for storage in (
            instance.run_storage,
            instance.event_log_storage,
            instance.schedule_storage,
        ):
            assert type(storage).__name__.startswith("Postgres")
        pools = instance.get_concurrency_config().pool_config
        assert pools.pool_granularity is PoolGranularity.OP
        assert pools.default_pool_limit == 1
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] > 0
        assert instance.run_retries_enabled
        assert not instance.run_retries_retry_on_asset_or_op_failure
        assert not instance.telemetry_enabled


def _python(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )

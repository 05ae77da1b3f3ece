"""The graph in processes of its own: Dagster's daemon, a run worker, a Spark Connect server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from onex_platform import wiring
from onex_platform.base.paths import project_file
from onex_platform.base.settings import Settings, SparkSettings, address_variables
from onex_platform.domain.events import EnumEventKind
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.daemon import running_daemon
from onex_platform_tests.support.graph import numbers
from onex_platform_tests.support.stacks import connect

pytestmark = [pytest.mark.servers, pytest.mark.long]

NODES = ("a", "b", "c")

# Steps of one run, in a process that has no session yet.
_TWO_STEPS = """
import sys
import dagster as dg
from pyspark.sql import SparkSession
from onex_platform.definitions import build_definitions

seen = []

@dg.asset
def first(spark: dg.ResourceParam[object]) -> None:
    session = spark.spark_session
    workers = session.range(1).mapInPandas(
        lambda frames: (frame.assign(id=sys.executable) for frame in frames), "id string"
    )
    seen.append((session, workers.first().id))

@dg.asset(deps=[first])
def second(spark: dg.ResourceParam[object]) -> None:
    seen.append((spark.spark_session, sys.executable))

result = dg.materialize([first, second], resources=build_definitions().resources)
[(one, worker), (other, driver)] = seen
print(one is other, worker == driver, SparkSession.getActiveSession() is None)
"""
_DRAIN = """
import json
from onex_platform.definitions import build_definitions

run = build_definitions().resolve_job_def("drain_registration").execute_in_process()
[rows, _snapshots] = run.asset_materializations_for_node("drain_input")
print(json.dumps({name: value.value for name, value in rows.metadata.items()}))
"""


def _environment(settings: Settings, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        **address_variables(settings),
        "ONEX_STACK_CACHE": str(settings.stack.cache),
        "ONEX_PAGES_URL": str(settings.pages.url),
        "ONEX_PAGES_SETTLE_SECONDS": "0.05",
        "ONEX_PIPELINE_LINGER_SECONDS": "0.5",
        "ONEX_REGISTRATION_HEARTBEAT_SECONDS": "0.4",
        **more,
    }


def _python(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def _rows(settings: Settings) -> int:
    with connect(settings) as connection:
        [(rows,)] = connection.execute("SELECT count(*) FROM registration_projections").fetchall()
    return int(rows)


def test_a_lag_is_drained_by_a_run_that_the_sensor_starts(
    pipeline_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(project_file("dagster.yaml"), home)
    environment = _environment(
        pipeline_settings, DAGSTER_HOME=str(home), ONEX_SPARK_MASTER="local[1]"
    )
    monkeypatch.setenv("ONEX_POSTGRES_DAGSTER_URL", environment["ONEX_POSTGRES_DAGSTER_URL"])
    send(pipeline_settings, [sent(EnumEventKind.NODE_INTROSPECTION, node) for node in NODES])
    log = tmp_path / "log"
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        running_daemon(environment, log) as daemon,
    ):

        def is_drained() -> bool:
            runs = instance.get_runs(dg.RunsFilter(job_name="drain_registration"))
            return any(run.is_finished for run in runs) or not daemon.is_running()

        assert wait_until(is_drained, 240, interval_seconds=0.5), log.read_text()
        [run] = instance.get_runs(dg.RunsFilter(job_name="drain_registration"))
        assert run.is_success, log.read_text()
        assert run.tags["dagster/sensor_name"] == "drain_when_behind"
        event = instance.get_latest_materialization_event(wiring.REGISTRATION_PROJECTIONS)
        assert event is not None
        assert event.asset_materialization is not None
        assert numbers(event.asset_materialization.metadata)["rows"] == len(NODES)
    assert _rows(pipeline_settings) == len(NODES)


def test_steps_of_a_run_share_a_session_that_ends_with_it(pipeline_settings: Settings) -> None:
    environment = _environment(pipeline_settings, ONEX_SPARK_MASTER="local[1]")
    assert _python(_TWO_STEPS, environment) == "True True True"


def test_the_same_job_runs_on_a_spark_connect_server(
    pipeline_settings: Settings, remote_spark: Settings
) -> None:
    send(pipeline_settings, [sent(EnumEventKind.NODE_INTROSPECTION, node) for node in NODES])
    assert remote_spark.spark.remote is not None
    spark = SparkSettings(remote=remote_spark.spark.remote)
    settings = pipeline_settings.model_copy(update={"spark": spark})
    account = json.loads(_python(_DRAIN, _environment(settings)))
    # Each node is accepted and asked for its acknowledgement; both are read again.
    assert (account["read"], account["rows"]) == (3 * len(NODES), len(NODES))

"""The pipeline runs unchanged on a Spark master with a worker, and on a Spark Connect server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onex_platform.base.environment import child_environment
from onex_platform.base.settings import Settings, SparkSettings, address_variables
from onex_platform.ingest.verification import verify_log
from onex_platform.log.verify.page_check import verify_pages
from onex_platform.stack.java import java_environment, pyspark_folder
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import start, stop, wait_until
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send
from onex_platform_tests.support.folded_logs import require_live_equals_replay
from onex_platform_tests.support.pipeline_runs import a_mixed_morning

pytestmark = [pytest.mark.servers, pytest.mark.long]

# What a run and a compaction do, in a process of its own: this one has a session already.
_RUN = """
import json
from onex_platform.engines.spark.session import open_session
from onex_platform.log.compaction import compact
from onex_platform_tests.support.archives import open_archive
from onex_platform.pipeline import drain
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.projections.fold.refold import folded_to
from onex_platform.base.settings import load_settings
from onex_platform.stack.jars import spark_jars
settings = load_settings()
jars = [str(jar) for jar in spark_jars(settings)]
with open_session(settings, jars) as spark, open_archive(settings) as archive:
    account = drain(spark, archive, linger_seconds=0.1)
    merged = compact.compact(spark, archive.log, folded_to(archive.database, archive.domain))
    print(json.dumps({
        "read": account.read,
        "replaced": merged.pages,
        "failures": merged.failures,
        "holds": live_equals_replay(spark, archive.log).holds,
        "session": type(spark).__module__,
        "remote_tasks": [] if settings.spark.remote else sorted(
            set(spark.sparkContext.parallelize(range(4), 4).map(_who).collect())
        ),
    }))
"""
_WHO = """
def _who(_):
    import os
    return os.getcwd()
"""


@pytest.fixture
def spark_master(stack_settings: Settings, tmp_path: Path) -> Iterator[str]:
    """A standalone master with one worker, as a cluster has them, on loopback."""
    url = f"spark://{LOOPBACK}:{free_port()}"
    environment = java_environment(
        stack_settings, SPARK_HOME=str(pyspark_folder()), SPARK_LOCAL_IP=LOOPBACK
    )
    spark_class = str(pyspark_folder() / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    common = [f"--host={LOOPBACK}", "--webui-port=0"]
    log = tmp_path / "spark.log"
    servers = [
        start(
            [spark_class, f"{deploy}.master.Master", *_words(common), "--port", url.split(":")[-1]],
            environment=environment,
            log=log,
        ),
        start(
            [
                *(spark_class, f"{deploy}.worker.Worker", *_words(common)),
                *("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), url),
            ],
            environment=environment,
            log=log,
        ),
    ]
    try:
        registered = "Successfully registered with master"
        assert wait_until(lambda: registered in log.read_text(), 60), log.read_text()
        yield url
    finally:
        stop(servers)


def _words(options: list[str]) -> list[str]:
    return [word for option in options for word in option.split("=")]


def run(settings: Settings, spark: SparkSettings) -> dict[str, Any]:
    variables = address_variables(settings.model_copy(update={"spark": spark})) | {
        "ONEX_SPARK_MASTER": spark.master or "",
        "ONEX_PAGES_URL": settings.pages.url or "",
        "ONEX_PAGES_SETTLE_SECONDS": "0.05",
        "ONEX_PAGES_SMALL_CUT_EVENTS": "0",
        "ONEX_STACK_CACHE": str(settings.stack.cache),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    done = subprocess.run(
        [sys.executable, "-c", _WHO + _RUN],
        env=child_environment(variables),
        stdout=subprocess.PIPE,
        timeout=240,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def require_whole(settings: Settings) -> None:
    with open_archive(settings) as archive:
        assert verify_log(archive.log).faults == verify_pages(archive.log).faults == []
        require_live_equals_replay(archive)


def test_a_master_with_a_worker_cuts_folds_and_compacts(
    spark_master: str, pipeline_settings: Settings, tmp_path: Path
) -> None:
    count = send(pipeline_settings, a_mixed_morning(20))
    report = run(pipeline_settings, SparkSettings(master=spark_master, shuffle_partitions=4))
    assert (report["read"], report["failures"], report["holds"]) == (count, [], True)
    assert report["replaced"] > 1
    # The tasks did run in the worker's executor, and not in the process that asked for them.
    assert report["remote_tasks"]
    assert all(place.startswith(str(tmp_path / "work")) for place in report["remote_tasks"])
    require_whole(pipeline_settings)


def test_a_connect_server_cuts_folds_and_compacts(
    remote_spark: Settings, pipeline_settings: Settings
) -> None:
    count = send(pipeline_settings, a_mixed_morning(20))
    report = run(pipeline_settings, remote_spark.spark)
    assert (report["read"], report["failures"], report["holds"]) == (count, [], True)
    assert report["replaced"] > 1
    assert report["session"] == "pyspark.sql.connect.session"
    require_whole(pipeline_settings)

"""`onex pipeline run` and `onex status`, in processes of their own on real servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from onex_platform.base.environment import child_environment
from onex_platform.base.settings import Settings, address_variables
from onex_platform.checks import Verdict
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.postgres.leases import (
    draining_lease,
    leases_of_runs,
    living,
    open_leases,
)
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline import drain
from onex_platform.pipeline.proof_times import note_proof
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NAME = draining_lease("registration")
PATIENCE = 120
ONEX = str(Path(sys.executable).with_name("onex"))


class Commands:
    """The command, on the test's database and archive."""

    def __init__(self, settings: Settings, folder: Path, opened: ExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self._environment = child_environment(
            {
                **address_variables(settings),
                "ONEX_STACK_CACHE": str(settings.stack.cache),
                "ONEX_PAGES_URL": str(settings.pages.url),
                "ONEX_PAGES_SETTLE_SECONDS": "0.05",
                "ONEX_PIPELINE_LEASE_SECONDS": "2",
            }
        )

    def start(self, *words: str) -> tuple[psutil.Popen, Path]:
        """A command that goes on, and where it writes."""
        log = self._folder / f"log-{len(list(self._folder.glob('log-*')))}"
        with log.open("w") as output:
            process = psutil.Popen([ONEX, *words], env=self._environment, stderr=output)
        self._opened.callback(self._end, process)
        return process, log

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ONEX, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def _end(self, process: psutil.Popen) -> None:
        if process.is_running():
            process.kill()
            process.wait()


@pytest.fixture
def commands(
    pipeline_settings: Settings, remote_spark: Settings, tmp_path: Path
) -> Iterator[Commands]:
    settings = pipeline_settings.model_copy(update={"spark": remote_spark.spark})
    with ExitStack() as opened:
        yield Commands(settings, tmp_path, opened)


@pytest.fixture
def archive(pipeline_settings: Settings) -> Iterator[PageArchive]:
    with open_archive(pipeline_settings) as opened:
        yield opened


def holder(archive: PageArchive) -> int | None:
    """The process that works."""
    leases = living(archive.database, NAME)
    return next((lease.process for lease in leases if lease.taken_at is not None), None)


def stands_by(archive: PageArchive, process: int) -> bool:
    leases = living(archive.database, NAME)
    return any(lease.process == process and lease.ready_at is not None for lease in leases)


def join(archive: PageArchive, *nodes: str) -> None:
    send(archive.settings, [sent(Kind.NODE_INTROSPECTION, node) for node in nodes])


def has(archive: PageArchive, rows: int) -> bool:
    return wait_until(lambda: len(rows_of(archive)) == rows, PATIENCE, interval_seconds=0.2)


def test_once_drains_what_waits_and_ends(commands: Commands, archive: PageArchive) -> None:
    join(archive, "a", "b")
    done = commands.run("pipeline", "run", "--once")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "2 rows written" in done.stderr
    assert len(rows_of(archive)) == 2
    assert open_leases(archive.database) == []


def test_one_of_two_works_the_other_takes_over_and_both_end_in_order(
    spark: SparkSession, commands: Commands, archive: PageArchive
) -> None:
    join(archive, "a")
    first, _ = commands.start("pipeline", "run", "--follow")
    assert has(archive, 1)
    assert holder(archive) == first.pid
    second, log = commands.start("pipeline", "run", "--follow")
    assert wait_until(lambda: stands_by(archive, second.pid), PATIENCE)
    # Somebody who wants it done once waits for whoever works.
    join(archive, "b")
    done = commands.run("pipeline", "run", "--once")
    assert (done.returncode, "Somebody else drained" in done.stderr) == (0, True), done.stderr
    first.kill()
    join(archive, "c")
    assert has(archive, 3)
    assert holder(archive) == second.pid
    # In the middle of its work.
    send(archive.settings, [sent(Kind.NODE_HEARTBEAT, "a") for _ in range(20_000)])
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE) == 0
    assert "Traceback" not in log.read_text()
    assert "the lease is given back" in log.read_text()
    assert living(archive.database) == []
    drain(spark, archive, linger_seconds=0.3)
    require_live_equals_replay(archive)


def test_neither_and_both_are_refused(commands: Commands) -> None:
    for words in ((), ("--once", "--follow")):
        done = commands.run("pipeline", "run", *words)
        assert (done.returncode, "Give one of --once and --follow" in done.stderr) == (2, True)


def test_status_tells_health_by_its_exit_code_and_writes_nothing(
    spark: SparkSession, commands: Commands, archive: PageArchive
) -> None:
    well = commands.run("status")
    assert (well.returncode, well.stdout.startswith("healthy at")) == (0, True), well.stdout
    join(archive, "a")
    waits = commands.run("status", "--json")
    document = json.loads(waits.stdout)
    assert (waits.returncode, document["healthy"]) == (1, False)
    [drains] = [station for station in document["stations"] if station["name"] == "drain"]
    assert (drains["healthy"], drains["numbers"]["records"]) == (False, 1)
    late = commands.run("status", "--exit-when-healthy", "--timeout", "1")
    assert late.returncode == 1
    drain(spark, archive, linger_seconds=0.2)
    with archive.database.transaction() as cursor:
        cursor.execute("DELETE FROM outbox")  # nobody publishes here
    assert commands.run("status", "--exit-when-healthy", "--timeout", "60").returncode == 0
    with archive.database.transaction() as cursor:
        [(watches,)] = cursor.execute("SELECT count(*) FROM deadline_watches").fetchall()
    assert watches == 0  # looking at the deadlines is no watch
    note_proof(archive.platform, "live_equals_replay", Verdict(False, "1 row differs.", {}))
    failed = commands.run("status")
    assert (failed.returncode, "live_equals_replay: 1 row differs." in failed.stdout) == (1, True)


def test_status_shows_who_works_and_who_died(commands: Commands, archive: PageArchive) -> None:
    process, _ = commands.start("pipeline", "run", "--follow")
    assert wait_until(lambda: holder(archive) == process.pid, PATIENCE)
    shown = commands.run("status").stdout
    assert f"process {process.pid} on" in shown
    assert "at work for" in shown
    process.kill()
    process.wait()
    assert wait_until(lambda: holder(archive) is None, PATIENCE)
    assert "expired for" in commands.run("status").stdout
    assert leases_of_runs(archive.database, []) == {}

"""How long an event takes from Kafka to the snapshot topic, and where that time goes.

    python -m benchmarks.latency
    python -m benchmarks.latency --only boundaries --run-seconds 45
    python -m benchmarks.latency --only "idle warm" --only "idle cold" --idle-seconds 300

Each on a stack of its own, one after the other:

- floor: produce an event, consume it, upsert one row, produce the snapshot: what no design avoids
- lingering run: nodes announce themselves one by one while a run lingers; the clock runs from the
  time that the broker gave the event to the time that a consumer holds the node's snapshot
- boundaries: with Dagster, one new node a second while runs follow each other, ten hand-overs long
- idle warm: with Dagster and a warm run, one event after a time in which nothing came
- idle cold: the same without: a sensor has to see the event and to launch a run that starts Spark
- follow, follow idle: `onex pipeline run --follow`, one node a second, and one after an idle time

Percentiles in seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import click

from onex_platform import stack
from onex_platform.base.environment import child_environment
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import Settings, address_variables
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.postgres.database import Database, open_engine
from onex_platform.engines.postgres.leases import LeaseRecord, draining_lease, living
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.pipeline.service import ServiceAccount, serve
from onex_platform.stack.jars import spark_jars
from onex_platform.stack.processes import wait_until
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.campaigns.house import House
from onex_platform_tests.campaigns.probing import (
    Arrivals,
    Fleet,
    announce,
    assign_ends,
    introspection,
    snapshot_topic,
)
from onex_platform_tests.support.stacks import embedded_settings

_PATIENCE_SECONDS = 240
_WARM_UPS = 3
_BEFORE_HANDOVER = 30


class Trial(NamedTuple):
    """What the scenarios are told."""

    settings: Settings
    folder: Path
    events: int
    pause: float
    boundaries: int
    run_seconds: float
    idle_seconds: float
    idle_events: int


def _floor(trial: Trial) -> list[float]:
    """Produce, consume, upsert, produce, one event at a time."""
    settings = trial.settings
    topic = load_catalogue().for_kind(EnumEventKind.NODE_INTROSPECTION).topic
    database = Database(open_engine(settings), CircuitBreaker("PostgreSQL"))
    with database.transaction() as cursor:
        cursor.execute("CREATE TABLE floor_rows (id uuid PRIMARY KEY, value bytea)")
    seconds = []
    with (
        open_producer(settings, **{"linger.ms": 0}) as producer,
        open_consumer(settings, None, **{"fetch.wait.max.ms": 10}) as consumer,
    ):
        assign_ends(settings, consumer, topic)
        for _ in range(trial.events):
            node = uuid4()
            record = introspection(node)
            began = time.time()
            produce_all(producer, [record])
            while (message := consumer.poll(1)) is None or message.error() is not None:
                pass
            with database.transaction() as cursor:
                cursor.execute(
                    "INSERT INTO floor_rows VALUES (%s, %s)"
                    " ON CONFLICT (id) DO UPDATE SET value = excluded.value",
                    [node, message.value()],
                )
            produce_all(producer, [KafkaRecord(snapshot_topic(), record.value, str(node))])
            seconds.append(time.time() - began)
    database.engine.dispose()
    return seconds


def _lingering(trial: Trial) -> list[float]:
    settings = trial.settings
    accounts: list[ServiceAccount] = []
    with (
        open_session(settings, [str(jar) for jar in spark_jars(settings)]) as spark,
        open_archive(settings, load_catalogue()) as archive,
    ):
        serve(spark, archive, linger_seconds=1)
        run = threading.Thread(
            target=lambda: accounts.append(serve(spark, archive, linger_seconds=10))
        )
        run.start()
        seconds = _stream(trial, trial.pause)
        run.join()
    _show_steps(accounts[0])
    return seconds


def _boundaries(trial: Trial) -> list[float]:
    """One node a second while so many runs hand over."""
    variables = {
        "ONEX_PIPELINE_WARM_RUNS": "1",
        "ONEX_PIPELINE_RUN_SECONDS": str(trial.run_seconds),
        "ONEX_PIPELINE_HANDOVER_SECONDS": str(_BEFORE_HANDOVER),
        "ONEX_PIPELINE_LINGER_SECONDS": str(trial.run_seconds - 1),
    }
    with _dagster(trial, variables) as archive, Fleet(trial.settings, 1.0) as fleet:
        _await_answers(fleet, _WARM_UPS)
        began, seen = time.time(), {_holder(archive)}
        while len(seen) <= trial.boundaries:
            _require(lambda: _holder(archive) not in {*seen, None}, "nobody took over")
            seen.add(_holder(archive))
        time.sleep(5)
        fleet.hush()
        _require(lambda: fleet.await_all(0.1), "nodes without an answer")
        return [a.seconds for a in fleet.answers() if a.seconds is not None and a.sent >= began]


def _idle(warm_runs: int) -> Callable[[Trial], list[float]]:
    def measure(trial: Trial) -> list[float]:
        with _dagster(trial, {"ONEX_PIPELINE_WARM_RUNS": str(warm_runs)}):
            return _after_pauses(trial)

    return measure


def _follow(trial: Trial) -> list[float]:
    with _following(trial):
        return _stream(trial, 1.0)


def _follow_idle(trial: Trial) -> list[float]:
    with _following(trial):
        return _after_pauses(trial)


SCENARIOS: dict[str, Callable[[Trial], list[float]]] = {
    "floor": _floor,
    "lingering run": _lingering,
    "boundaries": _boundaries,
    "idle warm": _idle(warm_runs=1),
    "idle cold": _idle(warm_runs=0),
    "follow": _follow,
    "follow idle": _follow_idle,
}


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="By default all.")
@click.option("--events", default=100, show_default=True)
@click.option("--pause", default=0.5, show_default=True, help="Seconds between two events.")
@click.option("--boundaries", default=10, show_default=True, help="Hand-overs to wait for.")
@click.option("--run-seconds", default=60.0, show_default=True, help="Of a run that hands over.")
@click.option("--idle-seconds", default=300.0, show_default=True)
@click.option("--idle-events", default=2, show_default=True)
def main(only: tuple[str, ...], **options: float) -> None:
    for name in only or SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            embedded = embedded_settings(Path(folder) / "stack")
            with stack.running(embedded) as settings:
                migrate(settings)
                create_topics(settings, load_catalogue())
                trial = Trial(settings, Path(folder), **options)  # type: ignore[arg-type]
                _show(name, SCENARIOS[name](trial))


def _stream(trial: Trial, pause: float) -> list[float]:
    """New nodes in steps of `pause`, whether those before have their answer or not."""
    with Fleet(trial.settings, pause) as fleet:
        _await_answers(fleet, _WARM_UPS)
        began = time.time()
        _require(lambda: _counted(fleet, began) >= trial.events, "too few answers")
        fleet.hush()
        return [a.seconds for a in fleet.answers() if a.seconds is not None and a.sent >= began]


def _is_seen(arrivals: Arrivals, node: UUID) -> bool:
    return arrivals.seen(node) is not None


def _after_pauses(trial: Trial) -> list[float]:
    """Single nodes, each after an idle time; the first one warms up what stays warm."""
    seconds = []
    with (
        open_producer(trial.settings, **{"linger.ms": 0}) as producer,
        Arrivals(trial.settings) as arrivals,
    ):
        for number in range(trial.idle_events + 1):
            node: UUID = uuid4()
            sent = announce(producer, node)
            _require(partial(_is_seen, arrivals, node), "no answer")
            seconds.append((arrivals.seen(node) or 0) - sent)
            if number < trial.idle_events:
                time.sleep(trial.idle_seconds)
    return seconds[1:]


@contextmanager
def _dagster(trial: Trial, variables: dict[str, str]) -> Iterator[PageArchive]:
    """Dagster's processes on the stack; the archive to ask for leases."""
    with (
        open_archive(trial.settings, load_catalogue()) as archive,
        House(trial.settings, trial.folder, variables),
    ):
        yield archive


@contextmanager
def _following(trial: Trial) -> Iterator[None]:
    variables = {
        **address_variables(trial.settings),
        "ONEX_STACK_FOLDER": str(trial.settings.stack.folder),
        "ONEX_STACK_CACHE": str(trial.settings.stack.cache),
    }
    command = [str(Path(sys.executable).with_name("onex")), "pipeline", "run", "--follow"]
    process = subprocess.Popen(command, env=child_environment(variables), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _holder(archive: PageArchive) -> int | None:
    """The number of the lease of whoever works."""
    leases: Sequence[LeaseRecord] = living(archive.database, draining_lease(archive.domain))
    return next((lease.number for lease in leases if lease.taken_at is not None), None)


def _await_answers(fleet: Fleet, count: int) -> None:
    _require(lambda: _counted(fleet, 0) >= count, "no answers")


def _counted(fleet: Fleet, since: float) -> int:
    return sum(a.answered is not None and a.sent >= since for a in fleet.answers())


def _require(condition: Callable[[], bool], complaint: str) -> None:
    if not wait_until(condition, _PATIENCE_SECONDS, interval_seconds=0.1):
        raise click.ClickException(complaint)


def _show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)

    def share(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]

    print(
        f"{name:14} p50 {share(0.5):7.3f} s   p95 {share(0.95):7.3f} s   p99 {share(0.99):7.3f} s"
        f"   worst {ordered[-1]:7.3f} s   ({len(ordered)} events)",
        flush=True,
    )


def _show_steps(account: ServiceAccount) -> None:
    drained = account.drained
    print(f"  {drained.cuts} cuts with records, {drained.batches} batches; seconds per step:")
    for step, seconds in sorted(drained.seconds.items(), key=lambda item: -item[1]):
        print(f"    {step:10} {seconds:7.2f}")


if __name__ == "__main__":
    main()

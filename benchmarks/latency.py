"""How long an event takes from Kafka to the snapshot topic, and where that time goes.

    python -m benchmarks.latency --events 100 --sensor-events 3

On one stack, one after the other:

- floor: produce an event, consume it, upsert one row, produce the snapshot: what no design avoids
- lingering run: nodes announce themselves one by one while a run lingers; the clock runs from the
  time that the broker gave the event to the time that a consumer holds the node's snapshot
- sensor path: the same with Dagster's daemon and no run in flight: the sensor has to see the event,
  and launch a run that starts Spark

Percentiles in seconds. `--sensor-events 0` leaves the daemon out.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import click
from confluent_kafka import TopicPartition
from pydantic_core import to_json

from onex_platform import stack
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka import (
    KafkaConsumer,
    KafkaProducer,
    KafkaRecord,
    end_positions,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka_sender import Sender
from onex_platform.engines.migrations import migrate
from onex_platform.engines.postgres import open_engine, transaction
from onex_platform.engines.spark import open_session
from onex_platform.pages.archive import open_archive
from onex_platform.paths import project_file
from onex_platform.pipeline.service import ServiceAccount, serve
from onex_platform.resilience import shared_breaker
from onex_platform.settings import Settings, address_variables, load_settings
from onex_platform.stack.jars import spark_jars
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.pipeline.daemon import running_daemon

_PATIENCE_SECONDS = 180


class Arrivals:
    """Follows the snapshot topic, and notes when each node's first snapshot is there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: dict[UUID, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Arrivals:
        self._thread.start()
        self._ready.wait(_PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def await_all(self, nodes: Sequence[UUID], seconds: float) -> dict[UUID, float]:
        limit = time.monotonic() + seconds
        while not all(node in self._seen for node in nodes) and time.monotonic() < limit:
            time.sleep(0.01)
        return {node: self._seen[node] for node in nodes}

    def _follow(self) -> None:
        topic = _snapshot_topic()
        # Small waits: the clock is read when the record is handed over.
        with open_consumer(self._settings, None, **{"fetch.wait.max.ms": 10}) as consumer:
            _assign_ends(self._settings, consumer, topic)
            self._ready.set()
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    key = UUID(message.key().decode())
                    self._seen.setdefault(key, time.time())


@click.command(help=__doc__)
@click.option("--events", default=100, show_default=True)
@click.option("--pause", default=0.5, show_default=True, help="Seconds between two events.")
@click.option("--sensor-events", default=3, show_default=True)
def main(events: int, pause: float, sensor_events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = load_settings()
        own = own.model_copy(
            update={"stack": own.stack.model_copy(update={"folder": Path(folder)})}
        )
        with stack.running(own) as settings:
            migrate(settings)
            create_topics(settings)
            _show("floor", _floor(settings, events))
            latencies, account = _lingering(settings, events, pause)
            _show("lingering run", latencies)
            _show_steps(account)
            if sensor_events:
                _show("sensor path", _sensor_path(settings, sensor_events, Path(folder)))


def _floor(settings: Settings, events: int) -> list[float]:
    """Produce, consume, upsert, produce, one event at a time."""
    topic = load_catalogue().for_kind(EnumEventKind.NODE_INTROSPECTION).topic
    engine, breaker = open_engine(settings), shared_breaker("PostgreSQL", settings.breaker)
    with transaction(engine, breaker) as cursor:
        cursor.execute("CREATE TABLE floor_rows (id uuid PRIMARY KEY, value bytea)")
    seconds = []
    overrides = {"fetch.wait.max.ms": 10}
    with (
        open_producer(settings, **{"linger.ms": 0}) as producer,
        open_consumer(settings, None, **overrides) as consumer,
    ):
        _assign_ends(settings, consumer, topic)
        for _ in range(events):
            node = uuid4()
            record = _introspection(node)
            began = time.time()
            produce_all(producer, [record])
            while (message := consumer.poll(1)) is None or message.error() is not None:
                pass
            with transaction(engine, breaker) as cursor:
                cursor.execute(
                    "INSERT INTO floor_rows VALUES (%s, %s)"
                    " ON CONFLICT (id) DO UPDATE SET value = excluded.value",
                    [node, message.value()],
                )
            produce_all(producer, [KafkaRecord(_snapshot_topic(), record.value, str(node))])
            seconds.append(time.time() - began)
    engine.dispose()
    # What was played here is no input of the measurements that follow, nor are its snapshots.
    return seconds


def _lingering(settings: Settings, events: int, pause: float) -> tuple[list[float], ServiceAccount]:
    jars = [str(jar) for jar in spark_jars(settings)]
    accounts: list[ServiceAccount] = []
    with (
        open_session(settings, jars) as spark,
        open_archive(settings) as archive,
        open_producer(settings, **{"linger.ms": 0}) as producer,
        Arrivals(settings) as arrivals,
    ):
        serve(spark, archive, linger_seconds=1)  # takes in what the floor left
        warm_up = [uuid4() for _ in range(3)]
        run = threading.Thread(
            target=lambda: accounts.append(serve(spark, archive, linger_seconds=10))
        )
        run.start()
        for node in warm_up:
            _announce(producer, node)
            arrivals.await_all([node], _PATIENCE_SECONDS)
        sent = {}
        for _ in range(events):
            node = uuid4()
            sent[node] = _announce(producer, node)
            time.sleep(pause)
        arrived = arrivals.await_all(list(sent), _PATIENCE_SECONDS)
        run.join()
    return [arrived[node] - sent[node] for node in sent], accounts[0]


def _sensor_path(settings: Settings, events: int, folder: Path) -> list[float]:
    seconds = []
    with (
        Arrivals(settings) as arrivals,
        open_producer(settings, **{"linger.ms": 0}) as producer,
        _daemon(settings, folder / "dagster") as log,
    ):
        for _ in range(events + 1):  # the first one waits for the daemon to start
            node = uuid4()
            sent = _announce(producer, node)
            try:
                seconds.append(arrivals.await_all([node], _PATIENCE_SECONDS)[node] - sent)
            except KeyError:
                raise click.ClickException(
                    f"No snapshot in {_PATIENCE_SECONDS} s:\n{log.read_text()[-3000:]}"
                ) from None
            time.sleep(20)  # the run lingers for a second, checks its rows, and ends
    return seconds[1:]


@contextmanager
def _daemon(settings: Settings, home: Path) -> Iterator[Path]:
    """Dagster's daemon on these servers."""
    home.mkdir()
    shutil.copy(project_file("dagster.yaml"), home)
    environment = {
        **os.environ,
        **address_variables(settings),
        "ONEX_STACK_FOLDER": str(settings.stack.folder),
        "ONEX_PIPELINE_LINGER_SECONDS": "1",
        "DAGSTER_HOME": str(home),
    }
    log = home / "log"
    with running_daemon(environment, log):
        yield log


def _announce(producer: KafkaProducer, node: UUID) -> float:
    """Send a node's introspection; the time that the broker gave it."""
    appended: list[int] = []
    sender = Sender(producer)
    sender.send(_introspection(node), appended.append)
    while not appended:
        sender.wait(0.1)
    return appended[0] / 1000


def _introspection(node: UUID) -> KafkaRecord:
    kind = EnumEventKind.NODE_INTROSPECTION
    envelope = {
        "event_id": uuid4(),
        "event_type": kind.event_type,
        "source": "benchmark",
        "timestamp": "2026-01-01T00:00:00Z",
        "payload": {
            "node_id": node,
            "node_type": "effect",
            "node_version": "1.0.0",
            "capabilities": {"database": True},
        },
    }
    return KafkaRecord(load_catalogue().for_kind(kind).topic, to_json(envelope), str(node))


def _snapshot_topic() -> str:
    return load_catalogue().snapshot(REGISTRATION_DOMAIN).topic


def _assign_ends(settings: Settings, consumer: KafkaConsumer, topic: str) -> None:
    ends = end_positions(settings, [topic])
    consumer.assign([TopicPartition(*place, offset) for place, offset in ends.items()])


def _show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    print(
        f"{name:14} p50 {statistics.median(ordered):7.3f} s   p95 {p95:7.3f} s"
        f"   worst {ordered[-1]:7.3f} s   ({len(ordered)} events)"
    )


def _show_steps(account: ServiceAccount) -> None:
    drained = account.drained
    print(f"  {drained.cuts} cuts with records, {drained.batches} batches; seconds per step:")
    for step, seconds in sorted(drained.seconds.items(), key=lambda item: -item[1]):
        print(f"    {step:10} {seconds:7.2f}")


if __name__ == "__main__":
    main()

"""A whole fleet at once: what a restart of a data centre costs, and where the time goes.

    python -m benchmarks.herd --nodes 10000 --only announce
    python -m benchmarks.herd --nodes 100000
    python -m benchmarks.herd --nodes 100000 --only announce --no-rivals --profile profiles

All nodes announce themselves, acknowledge once they are asked, beat, and leave, each phase as soon
as the last one is answered. A warm run serves on embedded servers of its own. A phase is answered
when every row says so and the outbox is empty, and settled when the registry's own events, which
come back through Kafka, are in the log and folded too. Beside it, on the same servers, one after
the other and from the same records:

- floor: read them, one COPY and one upsert, one record per node: what no design avoids
- plain: a consumer in one Python process: admits and folds event by event with the same policy, and
  writes with executemany. It proves nothing, archives nothing and forgets everything when it ends

Where the time goes is the loop's own account. Processor seconds are those of everything that runs,
server by server. With `--profile`, what Spark's Python workers and the driver's steps did is left
in a folder, and the costliest of each is printed.
"""

from __future__ import annotations

import logging
import math
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import click
import psutil
import structlog
from pydantic_core import to_json

from benchmarks.herd_profile import profiled
from benchmarks.herd_rivals import Floor, Plain, Rival
from benchmarks.measuring import peak_memory
from onex_platform import stack
from onex_platform.base.settings import RegistrationSettings, Settings, SparkSettings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    Positions,
    end_positions,
    open_producer,
    produce_all,
)
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.pipeline.loop import DrainAccount, FixedTerm
from onex_platform.pipeline.service import serve
from onex_platform.projections.backlog import measure_backlog
from onex_platform.stack.jars import spark_jars
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.stacks import embedded_settings

CORES = 2
_LONG = 86_400  # nobody is declared dead while a slow contestant works
_LOOK_SECONDS = 0.1
_NODE, _EVENT = "the node", "the event"  # in a template

# What every node says in a phase, and what its row says when that is answered.
PHASES = {
    "announce": (EnumEventKind.NODE_INTROSPECTION, "p.current_state = 'awaiting_ack'"),
    "acknowledge": (EnumEventKind.NODE_ACK, "p.current_state = 'active'"),
    "beat": (EnumEventKind.NODE_HEARTBEAT, "l.last_heartbeat_at IS NOT NULL"),
    "leave": (EnumEventKind.NODE_SHUTDOWN, "p.deregistered_at IS NOT NULL"),
}
_ANSWERED = (
    "SELECT count(*) AS nodes FROM registration_projections AS p"
    " JOIN registration_liveness AS l USING (domain, entity_id) WHERE {} AND domain = %s"
)


@click.command(help=__doc__)
@click.option("--nodes", default=100_000, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(PHASES)), help="By default all.")
@click.option("--rivals/--no-rivals", default=True, show_default=True)
@click.option("--warm-up", default=1000, show_default=True, help="Nodes that came and left before.")
@click.option("--profile", type=click.Path(path_type=Path), help="Leave profiles in this folder.")
def main(
    nodes: int, only: tuple[str, ...], rivals: bool, warm_up: int, profile: Path | None
) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with ExitStack() as resources:
        settings = resources.enter_context(_servers())
        profiler = resources.enter_context(profiled(profile))
        jars = [str(jar) for jar in spark_jars(settings)]
        spark = resources.enter_context(open_session(settings, jars))
        archive = resources.enter_context(open_archive(settings, load_catalogue()))
        herd = resources.enter_context(_served(spark, archive))
        for phase in PHASES:
            herd.say(phase, [uuid4() for _ in range(warm_up)] if phase == "announce" else None)
            herd.await_settled()
        contestants: list[Rival] = [Floor(settings), Plain(settings)] if rivals else []
        names = [uuid4() for _ in range(nodes)]
        herd.gone = warm_up
        for phase in list(PHASES)[: 1 + max(map(list(PHASES).index, only or PHASES))]:
            profiler.clear()
            start = end_positions(settings, [_topic_of(phase)])
            figures = herd.play(phase, names)
            print(f"{phase}: {nodes} nodes", flush=True)
            print(figures, flush=True)
            end = end_positions(settings, [_topic_of(phase)])
            for contestant in contestants:
                _compare(contestant, phase, nodes, figures.answered, start, end)
            profiler.show()


class Figures:
    """What a phase came to."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.sent = self.answered = self.settled = 0.0
        self.steps: dict[str, float] = {}
        self.computed: dict[str, float] = {}
        self.cuts = 0
        self.megabytes = 0.0

    def __str__(self) -> str:
        steps, computed = _listed(self.steps, ".2f"), _listed(self.computed, ".1f")
        return (
            f"  answered   {self.answered:7.2f} s  {self.nodes / self.answered:9,.0f} nodes/s"
            f"   (sent in {self.sent:.2f} s, settled after {self.settled:.2f} s)\n"
            f"  steps      {steps}; {self.cuts} cuts\n"
            f"  processor  {computed}; at most {self.megabytes:,.0f} MB"
        )


class Herd:
    """Nodes that all do the same at once, and the run that answers them."""

    def __init__(self, archive: PageArchive) -> None:
        self.archive = archive
        self.account = DrainAccount()
        self.gone = 0  # nodes that left before
        self._nodes: list[UUID] = []
        self._failure: BaseException | None = None

    def say(self, phase: str, nodes: list[UUID] | None = None) -> None:
        """Let every node say what belongs to the phase."""
        self._nodes = nodes or self._nodes
        with open_producer(self.archive.settings) as producer:
            produce_all(producer, _records(phase, self._nodes))

    def play(self, phase: str, nodes: list[UUID]) -> Figures:
        figures = Figures(len(nodes))
        steps, cuts = dict(self.account.seconds), self.account.cuts
        folded, computed, began = self._folded(), _computed(), time.monotonic()
        with peak_memory(_is_ours, every_seconds=1) as memory:
            self.say(phase, nodes)
            figures.sent = time.monotonic() - began
            self._await(lambda: self._folded() - folded >= len(nodes))
            self._await(self._nothing_waits)
            self._await(lambda: self._is_answered(phase))
            figures.answered = time.monotonic() - began
            self.await_settled()
            figures.settled = time.monotonic() - began
        figures.steps = _since(steps, self.account.seconds)
        figures.cuts = self.account.cuts - cuts
        figures.computed = _since(computed, _computed())
        figures.megabytes = memory[0]
        return figures

    def await_settled(self) -> None:
        def settled() -> bool:
            backlog = measure_backlog(self.archive.platform) if self._nothing_waits() else True
            return not backlog and self._nothing_waits()

        self._await(settled)

    def fail(self, error: BaseException) -> None:
        self._failure = error

    def _folded(self) -> int:
        """How many events came to something: those of the nodes, and what followed from them."""
        return self.account.outcomes[EnumOutcome.APPLIED]

    def _await(self, condition: Callable[[], bool]) -> None:
        """Look until it is so; a look that takes long is taken rarely, or it would slow what it
        looks at."""
        while True:
            began = time.monotonic()
            if condition():
                return
            if self._failure is not None:
                raise self._failure
            time.sleep(max(_LOOK_SECONDS, 10 * (time.monotonic() - began)))

    def _is_answered(self, phase: str) -> bool:
        if not self._nothing_waits():  # counting costs more
            return False
        gone = 0 if phase == "announce" else self.gone
        query = _ANSWERED.format(PHASES[phase][1])
        with self.archive.database.transaction() as cursor:
            rows = cursor.execute(query, [self.archive.domain]).fetchone()
        return rows is not None and rows.nodes == len(self._nodes) + gone

    def _nothing_waits(self) -> bool:
        # By the index: the table itself is full of entries that have gone.
        query = "SELECT FROM outbox WHERE domain = %s ORDER BY id LIMIT 1"
        with self.archive.database.transaction() as cursor:
            return cursor.execute(query, [self.archive.domain]).fetchone() is None


class _UntilTold(FixedTerm):
    """A term that ends when the benchmark does."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.pipeline, math.inf)
        self.told = threading.Event()

    def is_over(self, account: DrainAccount) -> bool:
        return self.told.is_set()


@contextmanager
def _served(spark: Any, archive: PageArchive) -> Iterator[Herd]:
    """A warm run serves for the block; the herd sees its account as it grows."""
    herd, term = Herd(archive), _UntilTold(archive.settings)

    def run() -> None:
        try:
            serve(spark, archive, term=term, on_progress=keep)
        except BaseException as error:
            herd.fail(error)

    def keep(account: DrainAccount) -> None:
        herd.account = account

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield herd
    finally:
        term.told.set()
        thread.join()


def _compare(
    contestant: Rival,
    phase: str,
    nodes: int,
    ours: float,
    start: Positions,
    end: Positions,
) -> None:
    began = time.monotonic()
    contestant.work(PHASES[phase][0], start, end)
    spent = time.monotonic() - began
    print(
        f"  {contestant.name:10} {spent:7.2f} s  {nodes / spent:9,.0f} nodes/s"
        f"   (answered takes {ours / spent:.2f} times as long)",
        flush=True,
    )


def _topic_of(phase: str) -> str:
    return load_catalogue().for_kind(PHASES[phase][0]).topic


def _records(phase: str, nodes: list[UUID]) -> Iterator[KafkaRecord]:
    kind, topic = PHASES[phase][0], _topic_of(phase)
    told = {"node_type": "effect", "node_version": "1.4.0"}
    says: dict[str, dict[str, Any]] = {
        "announce": {
            **told,
            "capabilities": {
                "database": True,
                "supported_operations": ["describe", "health", "run"],
                "protocols": ["http", "grpc"],
                "max_concurrent_requests": 16,
            },
            "endpoints": {"health": "http://node:8080/health"},
            "metadata": {"environment": "benchmark", "region": "region-1"},
        },
        "acknowledge": {},
        "beat": {**told, "uptime_seconds": 30.0},
        "leave": {"node_type": "effect", "reason": "graceful_shutdown"},
    }
    envelope = {
        "event_id": _EVENT,
        "event_type": kind.event_type,
        "source": "herd",
        "timestamp": datetime.now(UTC),
        "payload": {"node_id": _NODE, **says[phase]},
    }
    # Nodes make their records by themselves, and all at once.
    template = to_json(envelope).decode()
    for node in map(str, nodes):
        yield KafkaRecord(topic, template.replace(_NODE, node).replace(_EVENT, str(uuid4())), node)


def _since(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: spent - before.get(name, 0.0) for name, spent in now.items()}


def _listed(seconds: dict[str, float], form: str) -> str:
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {spent:{form}}" for name, spent in ordered)


def _computed() -> dict[str, float]:
    """Processor seconds so far, of everything that this program started."""
    me = psutil.Process()
    total: dict[str, float] = defaultdict(float)
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total[_name_of(process, me)] += times.user + times.system
            if process != me:  # of those below that have ended
                total[_name_of(process, me)] += times.children_user + times.children_system
    return total


def _is_ours(process: psutil.Process) -> bool:
    return _name_of(process, psutil.Process()) in ("driver", "JVM", "workers")


def _name_of(process: psutil.Process, me: psutil.Process) -> str:
    if process == me:
        return "driver"
    command = " ".join(process.cmdline())
    if "kafka.Kafka" in command:
        return "broker"
    if "java" in command:
        return "JVM"
    return "PostgreSQL" if "postgres" in command else "workers"


@contextmanager
def _servers() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory() as folder:
        patient = RegistrationSettings(
            ack_seconds=_LONG,
            first_liveness_seconds=_LONG,
            heartbeat_liveness_seconds=_LONG,
        )
        own = embedded_settings(Path(folder) / "stack").model_copy(
            update={"registration": patient, "spark": SparkSettings(master=f"local[{CORES}]")}
        )
        with stack.running(own, services=["postgres", "kafka"]) as settings:
            migrate(settings)
            create_topics(settings, load_catalogue())
            yield settings


if __name__ == "__main__":
    main()

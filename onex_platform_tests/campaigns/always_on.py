"""Kill, stop and restart every process under a living registry, and see how soon it answers again.

    python -m onex_platform_tests.campaigns.always_on
    python -m onex_platform_tests.campaigns.always_on --only "kill the run" --only "kill everything"

With the default settings and two warm runs, as `onex stack dev` has them: a code server and a
daemon that are started again when they end, a new node every second, and a few nodes that have
registered and beat all the time. For each fault: the seconds from it to the snapshot of the next
new node. At the end every node that announced itself has a row and a snapshot, nobody who beats has
expired, every offset was read once, and the rows are what the log says.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import click
import dagster as dg
import psutil
import pytest

from onex_platform import stack
from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import open_producer, produce_all
from onex_platform.engines.postgres.leases import LeaseRecord, draining_lease, living
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.verification import verify_log
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.rebuild.proof import live_equals_replay
from onex_platform.stack.processes import wait_until
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.campaigns.house import House
from onex_platform_tests.campaigns.probing import Fleet
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import sent
from onex_platform_tests.support.stacks import embedded_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = EnumEventKind
State = EnumRegistrationState

GOAL_SECONDS = 30
_BEATING = 5
_BEAT_SECONDS = 2.0
_WARM_RUNS = "ONEX_PIPELINE_WARM_RUNS"
_WARM = {_WARM_RUNS: "2"}


class Steady:
    """Nodes that register and then beat, whatever happens."""

    def __init__(self, settings: Settings) -> None:
        self.nodes = [uuid4() for _ in range(_BEATING)]
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def register(self, archive: PageArchive, seconds: float) -> None:
        """Announce and acknowledge; they beat from now on."""
        reader = ProjectionReaderRegistration(archive.database)

        def all_are(state: State) -> Callable[[], bool]:
            return lambda: all(reader.get_registration_status(n) is state for n in self.nodes)

        self._send(Kind.NODE_INTROSPECTION)
        assert wait_until(all_are(State.AWAITING_ACK), seconds, interval_seconds=0.3)
        self._send(Kind.NODE_ACK)
        assert wait_until(all_are(State.ACTIVE), seconds, interval_seconds=0.3)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _send(self, kind: EnumEventKind) -> None:
        with open_producer(self._settings) as producer:
            produce_all(producer, [sent(kind, str(node)) for node in self.nodes])

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            try:
                self._send(Kind.NODE_HEARTBEAT)
            except InfraError:  # a node would try again as well
                continue


@dataclass
class Trial:
    """A living registry, and what may be done to it."""

    settings: Settings
    embedded: Settings  # with no addresses: its servers can be stopped and started
    house: House
    fleet: Fleet
    archive: PageArchive
    steady: Steady
    pair: bool  # whether one run works and another one stands by
    stopped: list[psutil.Process] = field(default_factory=list)

    def holder(self) -> LeaseRecord | None:
        """Who works."""
        return next((lease for lease in self._claims() if lease.taken_at is not None), None)

    def stands_by(self) -> bool:
        return any(lease.taken_at is None and lease.ready_at for lease in self._claims())

    def await_ready(self, seconds: float, *, pair: bool) -> LeaseRecord:
        """Wait until one works and, if it is a pair that is wanted, another one stands by."""

        def is_ready() -> bool:
            return self.holder() is not None and (self.stands_by() or not pair)

        ready = wait_until(is_ready, seconds, interval_seconds=0.3)
        holder = self.holder()
        assert ready and holder is not None, f"nobody is ready\n{self.house.log('daemon')[-3000:]}"
        return holder

    def strike(self, fault: Fault, patience: float) -> Blow:
        """Let it happen, and wait for the next new node's snapshot."""
        before = self.await_ready(patience, pair=self.pair and fault.ends_as is not None)
        moment = time.time()
        fault.happens(self)
        answer = self.fleet.await_answer_after(moment, patience)
        for process in self.stopped:
            with suppress(psutil.NoSuchProcess):
                if fault.is_mended:  # though nobody waits for it: small cuts need no Spark
                    process.wait(patience)
                process.resume()
        self.stopped.clear()
        seconds = None if answer is None else answer.answered or 0
        return Blow(fault.name, seconds and seconds - moment, before.run_id or "")

    def signal_run(self, number: signal.Signals) -> None:
        holder = self.holder()
        assert holder is not None
        self.send_signal(psutil.Process(holder.process), number)

    def signal_jvm(self, number: signal.Signals) -> None:
        holder = self.holder()
        assert holder is not None
        children = psutil.Process(holder.process).children(recursive=True)
        [jvm] = [child for child in children if child.name() == "java"]
        self.send_signal(jvm, number)

    def signal_server(self, name: str, number: signal.Signals) -> None:
        """A server of Dagster's with the processes that belong to it, but no run."""
        runs = {lease.process for lease in living(self.archive.database)}
        server = self.house.process(name)
        family = [server, *server.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):  # ended meanwhile, maybe with its parent
                ancestors = {process.pid, *(parent.pid for parent in process.parents())}
                if not ancestors & runs:
                    self.send_signal(process, number)

    def send_signal(self, process: psutil.Process, number: signal.Signals) -> None:
        process.send_signal(number)
        if number == signal.SIGSTOP:
            self.stopped.append(process)

    def restart(self, server: str) -> None:
        """Stop a server of the stack and start it again, on the same port."""
        stack.down(self.embedded, services=(server,))
        stack.up(self.embedded, services=(server,))

    def _claims(self) -> list[LeaseRecord]:
        try:
            return living(self.archive.database, draining_lease(self.archive.domain))
        except InfraError:
            return []


class Fault(NamedTuple):
    """Something that happens to a process."""

    name: str
    happens: Callable[[Trial], None]
    ends_as: str | None = None  # what Dagster has to show of the run then
    is_mended: bool = False  # the run misses what was stopped, and kills it


class Blow(NamedTuple):
    """What a fault did: seconds to the next new node's snapshot, and who had worked before."""

    fault: str
    seconds: float | None
    run_id: str


_KILL, _STOP = signal.SIGKILL, signal.SIGSTOP
# In an order in which a successor warms up while others are tried.
FAULTS = [
    Fault("end the run", lambda trial: trial.signal_run(signal.SIGTERM), ends_as="CANCELED"),
    Fault("kill the run", lambda trial: trial.signal_run(_KILL), ends_as="FAILURE"),
    Fault("restart PostgreSQL", lambda trial: trial.restart("postgres")),
    Fault("kill its JVM", lambda trial: trial.signal_jvm(_KILL), ends_as="FAILURE"),
    Fault("restart Kafka", lambda trial: trial.restart("kafka")),
    Fault("stop the run", lambda trial: trial.signal_run(_STOP), ends_as="FAILURE"),
    Fault("stop the daemon", lambda trial: trial.signal_server("daemon", _STOP)),
    Fault("stop its JVM", lambda trial: trial.signal_jvm(_STOP), "FAILURE", is_mended=True),
    Fault("stop the code server", lambda trial: trial.signal_server("code-server", _STOP)),
    Fault("kill the daemon", lambda trial: trial.signal_server("daemon", _KILL)),
    Fault("kill the code server", lambda trial: trial.signal_server("code-server", _KILL)),
    Fault("kill everything", lambda trial: trial.house.kill_everything(), ends_as="FAILURE"),
]


@contextmanager
def living_registry(
    embedded: Settings, folder: Path, variables: Mapping[str, str], patience: float
) -> Iterator[Trial]:
    """A stack, Dagster on it, and nodes that come and beat."""
    chosen = _WARM | dict(variables)
    pair = chosen[_WARM_RUNS] == _WARM[_WARM_RUNS]
    with (
        stack.running(embedded) as settings,
        pytest.MonkeyPatch.context() as environment,
    ):
        migrate(settings)
        create_topics(settings, load_catalogue())
        assert settings.postgres.dagster_url is not None
        address = settings.postgres.dagster_url.get_secret_value()
        environment.setenv("ONEX_POSTGRES_DAGSTER_URL", address)
        with (
            open_archive(settings) as archive,
            House(settings, folder, chosen) as house,
        ):
            steady = Steady(settings)
            steady.register(archive, patience)
            with Fleet(settings) as fleet:
                try:
                    yield Trial(settings, embedded, house, fleet, archive, steady, pair)
                finally:
                    steady.stop()
                    # One that was restarted is meant to stay, whoever it was started for.
                    stack.down(embedded)


def require_everything(trial: Trial, spark: SparkSession, seconds: float) -> None:
    """Every node is there, nobody has expired, and the rows are what the log says."""
    trial.fleet.hush()
    assert trial.fleet.await_all(seconds), "nodes without a snapshot"
    reader = ProjectionReaderRegistration(trial.archive.database)
    nodes = [answer.node for answer in trial.fleet.answers()]
    found = {key.entity_id for key in reader.get_many(nodes)}
    assert found == set(nodes), "nodes without a row"
    states = {node: reader.get_registration_status(node) for node in trial.steady.nodes}
    assert set(states.values()) == {State.ACTIVE}, states
    rows = reader.get_many(trial.steady.nodes).values()
    assert not [row for row in rows if row.liveness_timeout_emitted_at is not None]
    assert verify_log(trial.archive.log).faults == []
    proof = live_equals_replay(spark, trial.archive.log)
    assert proof.holds, proof


def require_shown(trial: Trial, fault: Fault, blow: Blow, seconds: float) -> None:
    """Dagster tells that the run is over, and how it ended."""
    if fault.ends_as is None:
        return
    with dg.DagsterInstance.from_config(str(trial.house.home)) as instance:

        def is_shown() -> bool:
            run = instance.get_run_by_id(blow.run_id)
            return run is not None and run.status.value == fault.ends_as

        assert wait_until(is_shown, seconds, interval_seconds=0.5), blow


@click.command(help=__doc__)
@click.option("--only", multiple=True, help="The name of a fault; all if none is given.")
@click.option("--patience", default=180.0, show_default=True, help="Seconds to wait for anything.")
def main(only: tuple[str, ...], patience: float) -> None:
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    with tempfile.TemporaryDirectory() as folder:
        embedded = embedded_settings(Path(folder) / "stack")
        with living_registry(embedded, Path(folder), {}, patience) as trial:
            blows = []
            for fault in faults:
                blow = trial.strike(fault, patience)
                blows.append(blow)
                shown = "never" if blow.seconds is None else f"{blow.seconds:6.1f} s"
                click.echo(f"{fault.name:22} {shown}")
                require_shown(trial, fault, blow, patience)
            with open_session(trial.settings, []) as spark:
                require_everything(trial, spark, patience)
    click.echo("nothing lost, nobody expired, live equals replay, dead runs shown as failed")
    late = [b for b in blows if b.seconds is None or b.seconds > GOAL_SECONDS]
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()

"""`onex demo`: the platform's job from end to end, once, on a simulated fleet."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from onex_platform import stack
from onex_platform.base.settings import Settings, load_settings
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import Positions, end_positions, read_to_end
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import open_archive
from onex_platform.migration.present import catalogue_now
from onex_platform.pipeline import DrainAccount, ServiceAccount, serve
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.rebuild.proof import ReplayProof, live_equals_replay
from onex_platform.simulate.captured_writer import CaptureSight, watch_capture
from onex_platform.simulate.kafka_player import PlayReport, play_to_kafka
from onex_platform.simulate.plan import DEFAULT_SEED, FleetPlan, plan_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.watched_lives import Sight, watch_lives
from onex_platform.snapshots.audit.comparison import TopicComparison, compare
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.stack.jars import spark_jars
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue


@dataclass(frozen=True)
class RegistryReport:
    """What the pipeline made of the records, and whether log and topic bear it out."""

    account: ServiceAccount
    lives: list[Sight]
    states: dict[EnumRegistrationState, int]
    proof: ReplayProof
    snapshots: TopicComparison


# Whole lives within a few seconds: at this speed a node is missed after 1.5 s of silence.
_SPEED = 60
# The one in which every scenario happens and everything goes wrong.
_PROFILE = "stormy"
# Nothing else will come: everything has been sent before the run begins.
_LINGER = 0.5


@click.command("demo")
@click.option("--nodes", type=click.IntRange(min=1), default=60, show_default=True)
@click.option("--seconds", type=click.IntRange(min=1), default=12, show_default=True)
@click.option("--seed", type=int, default=DEFAULT_SEED, show_default=True)
def command(nodes: int, seconds: int, seed: int) -> None:
    """Play a simulated fleet through Kafka, pages, projections and snapshots, and prove the result.
    Then capture a writer's events, kill the snapshotter meanwhile, and replay them.

    The exit code is 1 if a record was lost, if the live rows are not what the log says, if the
    snapshot topic does not say what the rows say, or if the replay is not what the writer was
    promised. Servers that run already are used and left running; those started here are stopped
    again.
    """
    settings = load_settings()
    plan = plan_for(
        settings,
        nodes=nodes,
        duration=timedelta(seconds=seconds),
        seed=seed,
        speed=_SPEED,
        profile=PROFILES[_PROFILE],
    )
    with stack.running(settings, report=_say) as attached:
        _prepare_database(attached)
        played, received = play_fleet(attached, plan)
        registry = run_pipeline(attached)
    _say("Capturing a writer's events, and killing the snapshotter meanwhile")
    captured = watch_capture()
    verdicts = [show(played, received), show_registry(registry), show_capture(captured)]
    sys.exit(0 if all(verdicts) else 1)


def play_fleet(settings: Settings, plan: FleetPlan) -> tuple[PlayReport, Counter[str]]:
    """Create the topics, play the fleet on them; what was sent, and what a consumer finds."""
    before = _prepare_topics(settings)
    played = _play(settings, plan)
    return played, _read_back(settings, before)


def _prepare_database(settings: Settings) -> None:
    applied = migrate(settings)
    _say(f"The database is up to date ({len(applied)} migrations applied)")


def _prepare_topics(settings: Settings) -> Positions:
    """Create what is missing; where the topics end that existed, with what earlier runs wrote."""
    report = create_topics(settings, catalogue_now(settings, load_whole_catalogue()))
    _say(f"{len(report.created)} topics created, {len(report.existing)} existed")
    return end_positions(settings, report.existing)


def _play(settings: Settings, plan: FleetPlan) -> PlayReport:
    _say(f"Playing {plan.nodes} nodes for {plan.duration.total_seconds():g} s")
    played = play_to_kafka(settings, load_catalogue(), plan)
    if played.interrupted:
        raise KeyboardInterrupt
    return played


def _read_back(settings: Settings, since: Positions) -> Counter[str]:
    """How many records of each topic a consumer finds."""
    _say("Reading the topics back")
    topics = [contract.topic for contract in catalogue_now(settings, load_catalogue())]
    return Counter(str(message.topic()) for message in read_to_end(settings, topics, since))


def run_pipeline(settings: Settings) -> RegistryReport:
    """Records become pages, rows, snapshots; then log and topic are compared with the rows."""
    _say("Starting Spark")
    with (
        open_session(settings, [str(jar) for jar in spark_jars(settings, _say)]) as spark,
        open_archive(settings, load_catalogue()) as archive,
    ):
        _say("Draining the topics into pages, the pages onto the rows, the rows into snapshots")
        account = serve(spark, archive, linger_seconds=_LINGER, on_progress=_say_progress)
        _say("Watching two nodes live: one leaves, one falls silent")
        lives = watch_lives(
            archive,
            lambda served: serve(spark, served, linger_seconds=_LINGER),
            lambda moment: _say(f"  {moment}"),
        )
        _say("Folding the whole log again, and reading the snapshot topic, to compare")
        reader = ProjectionReaderRegistration(archive.database)
        catalogue = catalogue_now(settings, archive.platform.catalogue)
        topic = ModelSnapshotTopicConfig.default(catalogue, settings.environment)
        return RegistryReport(
            account=account,
            lives=lives,
            states=reader.count_by_state(),
            proof=live_equals_replay(spark, archive.log),
            snapshots=compare(settings, archive.database, topic),
        )


def _say_progress(account: DrainAccount) -> None:
    _say(
        f"  {account.read} records read, {account.facts} facts decided, {account.rows} rows written"
    )


def show(played: PlayReport, received: Counter[str]) -> bool:
    """Print what happened; whether every topic gave back as many records as it was sent."""
    console = Console()
    console.print(_topics_table(played, received))
    console.print(_lives_table(played))
    complete = played.is_complete and received == played.acknowledged
    counts = f"{played.summary.records} records produced, {received.total()} consumed"
    _print_verdict(console, counts, complete, ", topic by topic")
    return complete


def show_registry(report: RegistryReport) -> bool:
    """Print states, outcomes, two lives and the verdicts; whether all is as it should be."""
    console = Console()
    console.print(_counts_table("state", "Nodes per state", report.states))
    outcomes = report.account.drained.outcomes
    console.print(_counts_table("outcome", "Outcomes", outcomes))
    console.print(_sights_table(report.lives))
    proof, topic = report.proof, report.snapshots
    verdicts = [
        (f"Live rows and the replay of {proof.events} events", proof.holds),
        (f"Snapshot topic and {topic.rows} rows", topic.equal == topic.rows and not topic.faults),
    ]
    for subject, holds in verdicts:
        _print_verdict(console, subject, holds)
    return all(holds for _, holds in verdicts) and all(s.is_as_expected for s in report.lives)


def show_capture(sight: CaptureSight) -> bool:
    """Print what became of a writer's events; whether the replay is what it was promised."""
    console = Console()
    moments = {
        "acknowledged, then SIGKILL": sight.acknowledged_before,
        "recovered from its log": sight.recovered,
        "acknowledged in the end": sight.acknowledged,
        "replayed from its pages": sight.replayed,
    }
    console.print(_counts_table("what happened", "A captured writer", moments))
    subject = f"{sight.acknowledged} captured events and their replay"
    _print_verdict(console, subject, sight.is_equal)
    return sight.is_equal


def _print_verdict(console: Console, subject: str, holds: bool, detail: str = "") -> None:
    verdict, style = ("equal", "green") if holds else ("not equal", "red")
    console.print(f"{subject}: {verdict}{detail}.", style=f"bold {style}")


def _counts_table(name: str, title: str, counts: Mapping[Any, int]) -> Table:
    table = Table(name, title=title)
    table.add_column("number", justify="right")
    for key, count in counts.items():
        table.add_row(str(key), str(count))
    return table


def _sights_table(sights: list[Sight]) -> Table:
    table = Table("what happened", "node", "registry", "snapshot topic", title="Two lives")
    for moment, node, row, snapshot, _ in sights:
        registered = "unknown" if row is None else row.current_state.value
        if row is not None and row.is_closed():
            registered = "deregistered"
        published = "tombstone"
        if snapshot is not None:
            published = f"{snapshot.current_state.value} (v{snapshot.snapshot_version})"
        table.add_row(moment, node, registered, published)
    return table


def _topics_table(played: PlayReport, received: Counter[str]) -> Table:
    table = Table("topic", title="Records per topic")
    table.add_column("produced", justify="right")
    table.add_column("consumed", justify="right")
    produced = played.summary.by_topic
    for topic in sorted(produced | received):
        table.add_row(topic, str(produced[topic]), str(received[topic]))
    return table


def _lives_table(played: PlayReport) -> Table:
    table = Table("scenario", title="Lives per scenario")
    table.add_column("lives", justify="right")
    for scenario, lives in sorted(played.summary.scripts.items()):
        table.add_row(scenario, str(lives))
    return table


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)

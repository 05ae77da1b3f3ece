"""`onex snapshots`: publish what waits, look at the topic, compare it with the rows, rebuild it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import load_settings
from onex_platform.base.telemetry import shortened
from onex_platform.cli.options import tenant_option
from onex_platform.migration.present import catalogue_now
from onex_platform.projections.rebuild.scopes import entity_of
from onex_platform.snapshots import checks
from onex_platform.snapshots.audit.sweep import Sweep, look, queue_entities, sweep
from onex_platform.snapshots.publish.publisher import SnapshotPublisherRegistration
from onex_platform.snapshots.publish.relay import OutboxRelay, open_relay
from onex_platform.snapshots.publish.republish import rebuild_topic
from onex_platform.snapshots.publish.topic_setup import ensure_topic
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_catalogue

_SHOWN = 20
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Change nothing, say what would be.")


_contents_option = click.option(
    "--contents", is_flag=True, help="Compare what the records say, not only their versions."
)


@click.group("snapshots")
def command() -> None:
    """Publish the registry's snapshots and events, and keep the snapshot topic right.

    A NODE is a UUID in any spelling, or the plain-text id that it uses within its tenant.
    """


@command.command("publish")
@click.argument("nodes", metavar="[NODE]…", nargs=-1)
@tenant_option
@_json_option
def publish_command(nodes: tuple[str, ...], tenant: str | None, as_json: bool) -> None:
    """Publish what waits in the outbox, and the snapshots of each NODE whether they changed or not.

    Exit code 1 if a NODE is not in the registry, or if a snapshot is too large for the topic.
    """
    with _relay() as relay:
        entities = {node: entity_of(relay.settings, node, tenant) for node in nodes}
        known = queue_entities(relay, set(entities.values())) if entities else set()
        account = relay.publish_pending()
    _show(checks.relayed_numbers(account), as_json)
    unknown = [node for node, entity in entities.items() if entity not in known]
    if unknown:
        click.echo(f"Not in the registry: {shortened(unknown)}.", err=True)
    sys.exit(1 if _name_too_large(account.too_large) or unknown else 0)


@command.command("status")
@_contents_option
@_json_option
def status_command(contents: bool, as_json: bool) -> None:
    """Say what waits, and whether the topic says what the rows say; exit code 1 if it does not."""
    with _relay() as relay:
        waiting, found = relay.waiting(), look(relay, contents=contents)
        topics = ", ".join(relay.writer.topics())
    numbers = {"topic": topics, "waiting rows": waiting.rows}
    numbers |= {"waiting events": waiting.events}
    _show(numbers | checks.compared_numbers(found), as_json)
    _show_faults(Sweep(found), as_json)
    sys.exit(1 if found.faults else 0)


@command.command("show")
@click.argument("node")
@tenant_option
def show_command(node: str, tenant: str | None) -> None:
    """Show what the topic says of a NODE, as JSON; exit code 1 if it says nothing."""
    with _relay() as relay:
        catalogue = catalogue_now(relay.settings, relay.catalogue)
        publisher = SnapshotPublisherRegistration(relay.settings, relay.database, catalogue)
        found = publisher.get_latest_snapshot(entity_of(relay.settings, node, tenant))
    if found is None:
        click.echo(f"The topic has no snapshot of {node}.", err=True)
        sys.exit(1)
    click.echo(found.model_dump_json(indent=2))


@command.command("sweep")
@_dry_run_option
@click.option(
    "--raise-versions",
    is_flag=True,
    help="Lift rows that the topic is ahead of above it, so that readers take them.",
)
@_contents_option
@_json_option
def sweep_command(dry_run: bool, raise_versions: bool, contents: bool, as_json: bool) -> None:
    """Compare rows and topic, and publish what the topic lacks or has wrong.

    With --contents, a node whose record says something different at its row's version is published
    under the next version, since readers take no other record of the same one.

    Exit code 1 if a dry run finds something, if the topic is ahead of the rows, or if a snapshot
    is too large for it.
    """
    if dry_run and raise_versions:
        raise ConfigurationError("--dry-run and --raise-versions exclude each other.")
    too_large: list[str] = []
    with _relay() as relay:
        if dry_run:
            done = Sweep(look(relay, contents=contents))
        else:
            done = sweep(relay, raise_versions=raise_versions, contents=contents)
            too_large = relay.publish_pending().too_large
    _show(checks.swept_numbers(done, too_large), as_json)
    _show_faults(done, as_json)
    ahead = 0 if raise_versions else done.comparison.counts()["ahead"]
    if ahead:
        click.echo(
            f"The topic is ahead of {ahead} rows: was the database set back? "
            "`onex snapshots sweep --raise-versions` lifts them above it.",
            err=True,
        )
    left = done.comparison.faults if dry_run else ahead
    sys.exit(1 if _name_too_large(too_large) or left else 0)


@command.command("topic")
@_dry_run_option
def topic_command(dry_run: bool) -> None:
    """Create the snapshot topic, or alter what differs from contract and SNAPSHOT_ variables."""
    settings = attach(load_settings(), services=["kafka"])
    catalogue = catalogue_now(settings, load_catalogue())
    config = ModelSnapshotTopicConfig.default(catalogue, settings.environment)
    changes = ensure_topic(settings, catalogue, config, dry_run=dry_run)
    click.echo(f"{'would be ' if dry_run else ''}{changes}  {config.topic}")


@command.command("rebuild")
@click.option("--yes", is_flag=True, help="Don't ask.")
def rebuild_command(yes: bool) -> None:
    """Publish every row again; a topic that was deleted is created first.

    Nothing is deleted, and readers ignore versions that they have. It costs a record per node.
    Exit code 1 if a snapshot is too large for the topic.
    """
    with _relay() as relay:
        if not yes:
            topics = ", ".join(relay.writer.topics())
            click.confirm(f"Publish every node to {topics}?", abort=True, err=True)
        published = rebuild_topic(relay.settings, relay.writer, _say_progress)
    click.echo(f"{published.acknowledged} records published.")
    sys.exit(1 if _name_too_large(published.too_large) else 0)


def _name_too_large(nodes: Sequence[str]) -> bool:
    """Whether there are any; what to do about them stands in docs/snapshots.md."""
    if nodes:
        click.echo(f"Too large for the topic: {shortened(nodes)}.", err=True)
    return bool(nodes)


def _say_progress(records: int) -> None:
    click.echo(f"{records} records…", err=True)


@contextmanager
def _relay() -> Iterator[OutboxRelay]:
    settings = attach(load_settings(), services=["postgres", "kafka"])
    with open_relay(settings, load_catalogue()) as relay:
        yield relay


def _show_faults(done: Sweep, as_json: bool) -> None:
    faults: Iterable[Any] = [] if as_json else done.comparison.faults[:_SHOWN]
    for fault in faults:
        click.echo(f"{fault.kind.value}  {fault.entity_id}")


def _show(numbers: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({name.replace(" ", "_"): n for name, n in numbers.items()}, indent=2))
        return
    for name, value in numbers.items():
        click.echo(f"{name:<28}  {value}")

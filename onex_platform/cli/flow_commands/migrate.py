"""`onex migrate`: move topics to other names and versions, phase by phase, and back."""

from __future__ import annotations

import getpass
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from onex_platform.base.errors import (
    InfraConnectionError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.base.settings import load_settings
from onex_platform.cli.options import Duration
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.postgres.database import Database, open_database
from onex_platform.ingest.offsets import consumer_offsets
from onex_platform.migration.handover import Handover
from onex_platform.migration.mirror import MirrorAccount
from onex_platform.migration.moves import Migrator, MoveStatus, Order
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_whole_catalogue

_AWAY = (InfraConnectionError, InfraTimeoutError, InfraUnavailableError)

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_by_option = click.option(
    "--by", default=getpass.getuser, help="Who orders it; by default your user name."
)


@click.group("migrate")
def command() -> None:
    """Move topics to other names and versions: assess, dual, move, freeze, retired.

    What is to move stands in migration.yaml beside the contract of the topic that is left; SOURCE
    is that topic. Every phase is left by `advance` and undone by `rollback`.

    \b
    Examples:
      onex migrate status
      onex migrate advance node.request_introspection
      onex migrate handover node.heartbeat fleet-monitor --dry-run
      onex migrate rollback node.heartbeat --reason "the dashboard misses readings"
    """


@command.command("status")
@click.argument("source", required=False)
@_json_option
def status_command(source: str | None, as_json: bool) -> None:
    """Measure every condition of the present phase, of one move or of all; changes nothing."""
    with _migrator() as migrator:
        found = [migrator.status(one) for one in ([source] if source else migrator.sources())]
    if as_json:
        click.echo(json.dumps([_as_json(status) for status in found], indent=2, default=str))
        return
    for status in found:
        _echo_status(status)


@command.command("advance")
@click.argument("source")
@click.option("--force", is_flag=True, help="Waive conditions that are not about loss.")
@click.option("--reason", help="Why; needed with --force, and kept.")
@click.option("--delete", "deletes", is_flag=True, help="Delete the source when it is retired.")
@click.option("--name", help="The source's name once more, to delete it.")
@_by_option
def advance_command(
    source: str, force: bool, reason: str | None, deletes: bool, name: str | None, by: str
) -> None:
    """Enter the next phase if every condition holds; else all that do not are listed.

    \b
    Examples:
      onex migrate advance node.heartbeat
      onex migrate advance node.heartbeat --force --reason "dev has no authoriser"
      onex migrate advance node.heartbeat --delete --name node.heartbeat
    """
    order = Order(by, reason, force, name if deletes else None)
    with _migrator() as migrator:
        click.echo(f"{source} is in {migrator.advance(source, order)} now.")


@command.command("rollback")
@click.argument("source")
@click.option("--reason", required=True, help="Why; it is kept.")
@_by_option
def rollback_command(source: str, reason: str, by: str) -> None:
    """Go back one phase, also from a change that was interrupted."""
    with _migrator() as migrator:
        click.echo(f"{source} is in {migrator.rollback(source, Order(by, reason))} now.")


@command.command("handover")
@click.argument("source")
@click.argument("group")
@click.option("--back", is_flag=True, help="From the successor to the group.")
@click.option("--dry-run", is_flag=True, help="Set nothing, say what would be.")
@_json_option
def handover_command(source: str, group: str, back: bool, dry_run: bool, as_json: bool) -> None:
    """Set the successor of GROUP to where GROUP stopped; neither may have consumers."""
    with _migrator() as migrator:
        act = migrator.plan_handover if dry_run else migrator.handover
        done = act(source, group, back=back)
    if as_json:
        click.echo(json.dumps(_handover_json(done), indent=2))
        return
    verb = "would begin" if dry_run else "begins"
    for (topic, partition), offset in sorted(done.begins_at.items()):
        click.echo(f"{done.following.group} {verb} at {topic}[{partition}] {offset}")
    click.echo(f"{done.unread} events unread, {done.repeated} read a second time.")


@command.command("mirror")
@click.argument("source")
@click.option("--once", is_flag=True, help="One pass, then end.")
@click.option(
    "--every", type=Duration(), default="1s", show_default=True, help="Between two passes."
)
def mirror_command(source: str, once: bool, every: timedelta) -> None:
    """Copy what producers of the source alone write, until it is stopped.

    It may be killed at any time, and runs beside producers that write both. While Kafka or
    PostgreSQL is away it waits. A record that can't be lifted, or is too large for the other topic,
    holds up its partition.
    """
    with _migrator() as migrator:
        while True:
            try:
                done = migrator.mirror(source)
            except _AWAY as error:
                if once:
                    raise
                click.echo(f"Waiting: {error.message}", err=True)
                done = MirrorAccount()
            if once or done.copied:
                click.echo(f"{done.copied} copied, {done.waiting} wait for their producer.")
            for stuck in done.stuck:
                click.echo(f"Not copied: {stuck}", err=True)
            if once:
                sys.exit(1 if done.stuck else 0)
            time.sleep(every.total_seconds())


@contextmanager
def _migrator() -> Iterator[Migrator]:
    settings = attach(load_settings(), services=["postgres", "kafka"])
    with open_database(settings) as database:
        yield Migrator(
            settings, database, load_whole_catalogue(), lambda topic: _read(database, topic)
        )


def _read(database: Database, topic: str) -> Mapping[int, int]:
    """How far the registration log has read the topic."""
    with database.transaction() as cursor:
        reached = consumer_offsets(cursor, REGISTRATION_DOMAIN)
    return {partition: offset for (name, partition), offset in reached.items() if name == topic}


def _echo_status(status: MoveStatus) -> None:
    state = status.state
    since = f" since {state.entered_at:%Y-%m-%d %H:%M:%S} UTC" if state.entered_at else ""
    click.echo(f"{status.source} → {status.target}: {state.phase}{since}")
    if state.changing_to is not None:
        click.echo(f"  a change to {state.changing_to} was interrupted: run it again, or go back")
    for condition in status.conditions:
        click.echo(f"  {condition}")


def _as_json(status: MoveStatus) -> dict[str, Any]:
    return {
        "source": status.source,
        "target": status.target,
        **asdict(status.state),
        "conditions": [asdict(condition) for condition in status.conditions],
    }


def _handover_json(done: Handover) -> dict[str, Any]:
    return {
        "leaving": done.leaving._asdict(),
        "following": done.following._asdict(),
        "begins_at": {str(part): offset for (_, part), offset in sorted(done.begins_at.items())},
        "unread": done.unread,
        "repeated": done.repeated,
    }

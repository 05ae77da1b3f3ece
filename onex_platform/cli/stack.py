"""`onex stack`: start, stop and inspect the embedded servers, and open Dagster on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from onex_platform.base.settings import load_settings
from onex_platform.stack import lifecycle, logs
from onex_platform.stack.folders import StackFolder
from onex_platform.stack.ports import LOOPBACK

_spark_option = click.option("--spark", is_flag=True, help="Also a Spark Connect server.")
_schemas_option = click.option("--schemas", is_flag=True, help="Also a schema registry.")


@click.group("stack")
def command() -> None:
    """Start, stop and inspect the embedded servers: PostgreSQL, Kafka and others on demand.

    A server whose address is set, such as ONEX_POSTGRES_URL, is not started.
    """


@command.command("up")
@_spark_option
@_schemas_option
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then stop what was started.")
def up_command(spark: bool, schemas: bool, foreground: bool) -> None:
    """Start what does not run yet and wait until it answers; harmless when repeated."""
    settings, services = load_settings(), _services(spark, schemas)
    if not foreground:
        lifecycle.up(settings, services=services, report=_report)
        _show(lifecycle.status(settings))
        return
    with (
        suppress(KeyboardInterrupt),
        lifecycle.running(settings, services=services, report=_report),
    ):
        _show(lifecycle.status(settings))
        _report("Ctrl-C stops what was started here")
        lifecycle.supervise(settings, services=services)


@command.command("down")
@click.option("--delete-data", is_flag=True, help="Remove databases, topics and logs as well.")
def down_command(delete_data: bool) -> None:
    """Stop every process of the stack; its data stays."""
    lifecycle.down(load_settings(), delete_data=delete_data, report=_report)


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def status_command(as_json: bool) -> None:
    """Ask every server; exit code 1 if PostgreSQL or Kafka does not answer."""
    rows = lifecycle.status(load_settings())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _show(rows)
    needed = [row for row in rows if row.name in lifecycle.DEFAULT_SERVICES]
    sys.exit(0 if all(row.state in ("running", "external") for row in needed) else 1)


@command.command("logs")
@click.argument("service", required=False, type=click.Choice(list(lifecycle.SERVERS)))
@click.option("--follow", "-f", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(min=0), default=50, show_default=True)
def logs_command(service: str | None, follow: bool, lines: int) -> None:
    """Show the end of a server's log, or of all."""
    stack = StackFolder(load_settings())
    names = [service] if service else list(lifecycle.SERVERS)
    with suppress(KeyboardInterrupt):
        for name, line in logs.read(
            [stack.server(name) for name in names], lines=lines, follow=follow
        ):
            click.echo(line if service else f"{name:<8}  {line}")


@command.command("dev")
@_spark_option
@_schemas_option
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True)
def dev_command(spark: bool, schemas: bool, port: int) -> None:
    """Open Dagster's web interface on the stack; Ctrl-C stops what was started for it."""
    from onex_platform.stack.dev import develop
    from onex_platform.topics.catalogue import load_catalogue

    with suppress(KeyboardInterrupt):
        code = develop(
            load_settings(),
            load_catalogue(),
            services=_services(spark, schemas),
            port=port,
            report=_report,
        )
        sys.exit(code)


def _services(spark: bool, schemas: bool) -> tuple[str, ...]:
    wanted = {"spark": spark, "schemas": schemas}
    return (*lifecycle.DEFAULT_SERVICES, *(name for name, is_wanted in wanted.items() if is_wanted))


def _report(sentence: str) -> None:
    click.echo(sentence, err=True)


def _show(rows: Sequence[lifecycle.ServerStatus]) -> None:
    for row in rows:
        address = "" if row.port is None else f"{LOOPBACK}:{row.port}"
        process = "" if row.pid is None else f"process {row.pid}"
        click.echo(f"{row.name:<8}  {row.state:<13}  {address:<15}  {process}".rstrip())

"""Entry point of `onex`: finds the noun's module, runs it, turns errors into one clear sentence."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from onex_platform import __version__

# noun -> (module, one line for --help); the module is imported only when its noun is used.
COMMANDS = {
    "alerts": (
        "onex_platform.cli.flow_commands.alerts",
        "See and silence alerts on the service's numbers.",
    ),
    "canaries": (
        "onex_platform.cli.flow_commands.canaries",
        "Let the platform's own node and samples go through.",
    ),
    "db": ("onex_platform.cli.db", "Apply and inspect the database migrations."),
    "deadlines": ("onex_platform.cli.deadlines", "Declare timeouts; read and override holds."),
    "delivery": (
        "onex_platform.cli.flow_commands.delivery",
        "See and replay what handlers could not handle.",
    ),
    "demo": ("onex_platform.cli.demo", "Run the whole platform once on a simulated fleet."),
    "dlt": (
        "onex_platform.cli.flow_commands.dlt",
        "Read, replay and purge the log's dead letters.",
    ),
    "keys": (
        "onex_platform.cli.flow_commands.record_keys",
        "Make, rotate and destroy keys of records.",
    ),
    "migrate": (
        "onex_platform.cli.flow_commands.migrate",
        "Move topics to other names and versions.",
    ),
    "pages": ("onex_platform.cli.pages", "Inspect, merge and verify the pages of the log."),
    "pipeline": ("onex_platform.cli.pipeline", "Run the pipeline without Dagster."),
    "registry": ("onex_platform.cli.registry", "Ask the registry, now or then, and rebuild it."),
    "settings": ("onex_platform.cli.settings", "Show the settings in force and their source."),
    "simulate": ("onex_platform.cli.simulate", "Play a simulated fleet to Kafka or to files."),
    "snapshotter": ("onex_platform.cli.snapshotter", "Capture events and write them as pages."),
    "snapshots": ("onex_platform.cli.snapshots", "Publish, show, compare and rebuild snapshots."),
    "stack": ("onex_platform.cli.stack", "Start, stop and inspect the embedded servers."),
    "status": ("onex_platform.cli.status", "Say how the service is: who works, what waits."),
    "topics": ("onex_platform.cli.topics", "List, judge and make topics; bring them to a cluster."),
}

# What a shell says of a program that Ctrl-C ended.
_INTERRUPTED = 130


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(COMMANDS.items())])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onex")
def cli() -> None:
    """Run and inspect the ONEX platform: stack, database, topics, fleet, registry."""
    from onex_platform.base.errors import ConfigurationError
    from onex_platform.base.settings import INTERNAL_ENVIRONMENTS, LogSettings, load_settings
    from onex_platform.base.telemetry import configure_logging, hide_hosts

    try:
        settings = load_settings()
        log = settings.log
        hide_hosts(settings.environment not in INTERNAL_ENVIRONMENTS)
    except ConfigurationError:  # the command reports it, if it needs settings at all
        log = LogSettings()
    configure_logging(log.level, log.style)


def main(argv: list[str] | None = None) -> Any:
    """Run `onex`; an `OnexError` becomes one line on stderr and its exit code."""
    try:
        return cli.main(args=argv, prog_name="onex", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(_INTERRUPTED)
    except Exception as error:
        from onex_platform.base.errors import OnexError

        if not isinstance(error, OnexError):
            raise
        click.secho(f"error: {error.message}", fg="red", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        click.echo(f"  correlation id {error.correlation_id}", err=True)
        sys.exit(error.exit_code)

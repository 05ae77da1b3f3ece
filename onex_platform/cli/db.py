"""`onex db`: apply the database migrations and say where the database stands."""

from __future__ import annotations

import json

import click

from onex_platform.base.settings import Settings, load_settings
from onex_platform.engines.postgres.migrations import migrate, migration_status
from onex_platform.stack import attach


@click.group("db")
def command() -> None:
    """Apply and inspect the database migrations."""


@command.command("migrate")
def migrate_command() -> None:
    """Apply every pending migration; harmless when repeated or run twice at once."""
    applied = migrate(_settings())
    for name in applied:
        click.echo(f"applied  {name}")
    if not applied:
        click.echo("The database is up to date.")


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def status_command(as_json: bool) -> None:
    """List every migration: applied and when, pending, changed, late or unknown to this code."""
    rows = [
        {
            "name": status.name,
            "state": status.state.value,
            "applied_at": status.applied_at.isoformat(timespec="seconds")
            if status.applied_at
            else None,
        }
        for status in migration_status(_settings())
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['state']:<8}  {row['name']}  {row['applied_at'] or ''}".rstrip())


def _settings() -> Settings:
    return attach(load_settings(), services=["postgres"])

"""`onex deadlines`: declare timeouts by hand, see who is held back and why, let them go."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from onex_platform.cli.opening import attached_platform
from onex_platform.cli.options import Duration
from onex_platform.deadlines import scan_state
from onex_platform.deadlines.checks import account_numbers, no_overdue_without_fact
from onex_platform.deadlines.scan import scan

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_limit_option = click.option(
    "--limit", type=click.IntRange(min=1, max=10_000), default=100, show_default=True
)


@click.group("deadlines")
def command() -> None:
    """Watch the deadlines: what is overdue, what is held back, and by whose order it goes on."""


@command.command("scan")
@click.option("--dry-run", is_flag=True, help="Declare nothing, say what would be.")
@_json_option
def scan_command(dry_run: bool, as_json: bool) -> None:
    """Declare what is overdue, as far as the evidence and the guard allow."""
    with attached_platform("postgres", "kafka") as platform:
        account = scan(platform, datetime.now(UTC), dry_run=dry_run)
    _show(account_numbers(account), as_json)


@command.command("status")
@_json_option
def status_command(as_json: bool) -> None:
    """Say what is overdue and why it is not declared; exit code 1 if there is no reason.

    Holds, overrides in force and flapping nodes follow.
    """
    now = datetime.now(UTC)
    with attached_platform("postgres", "kafka") as platform:
        found = no_overdue_without_fact(platform, now)
        parts: dict[str, list[Any]] = {
            "holds": scan_state.holds(platform, "open"),
            "overrides": scan_state.overrides(platform, in_force_at=now),
            "flapping": scan_state.flapping(platform, now),
        }
    if as_json:
        lists = {name: [item._asdict() for item in items] for name, items in parts.items()}
        numbers = _json_names(found.verdict.metadata)
        _echo_json(numbers | lists | {"verdict": found.verdict.description})
    else:
        click.echo(found.verdict.description)
        _show(found.verdict.metadata, as_json=False)
        for name, items in parts.items():
            if items:
                click.echo(f"\n{name}")
                _show_records(items)
    if not (found.verdict.passed or found.is_warning):
        raise SystemExit(1)


@command.command("override")
@click.option("--tenant", required=True, help="Whose silent nodes may expire.")
@click.option("--reason", required=True, help="Why; it stays in the book.")
@click.option("--by", default=getpass.getuser, help="Who orders it; by default your user name.")
@click.option(
    "--for", "lasts", type=Duration(), default="10m", show_default=True, help="For how long."
)
def override_command(tenant: str, reason: str, by: str, lasts: timedelta) -> None:
    """Let all overdue nodes of a tenant expire, whatever its guard says; the order is audited."""
    with attached_platform("postgres") as platform:
        order = scan_state.override_guard(
            platform, tenant, reason=reason, by=by, now=datetime.now(UTC), lasts=lasts
        )
    click.echo(f"Until {_text(order.until)} every overdue node of {tenant} may expire.")


@command.command("holds")
@click.option("--all", "also_ended", is_flag=True, help="Those that have ended as well.")
@_limit_option
@_json_option
def holds_command(also_ended: bool, limit: int, as_json: bool) -> None:
    """List the holds, newest first."""
    with attached_platform("postgres") as platform:
        found = scan_state.holds(platform, "all" if also_ended else "open", limit)
    _list(found, as_json, "Nothing is held.")


@command.command("audit")
@_limit_option
@_json_option
def audit_command(limit: int, as_json: bool) -> None:
    """List who ordered an override, when, why and until when, newest first."""
    with attached_platform("postgres") as platform:
        found = scan_state.overrides(platform, limit=limit)
    _list(found, as_json, "Nobody has ordered an override.")


def _list(items: list[Any], as_json: bool, nothing: str) -> None:
    if as_json:
        _echo_json([item._asdict() for item in items])
    elif items:
        _show_records(items)
    else:
        click.echo(nothing)


def _show(numbers: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        _echo_json(_json_names(numbers))
        return
    for name, value in numbers.items():
        click.echo(f"{name:<28}  {value}")


def _json_names(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(" ", "_"): value for name, value in numbers.items()}


def _show_records(items: Iterable[Any]) -> None:
    """Each record on a line of its own, with the names of its fields."""
    for item in items:
        fields = ((name, value) for name, value in item._asdict().items() if value is not None)
        click.echo("  ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in fields))


def _text(value: Any) -> str:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value)


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))

"""`onex alerts`: what is wrong with the service, by which numbers, and who need not be told."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from onex_platform.cli.opening import attached_platform
from onex_platform.cli.options import Duration
from onex_platform.health import alerting, silences
from onex_platform.health.alert_rules import RULES, Measurement
from onex_platform.health.alerting import Alert, silenced_among
from onex_platform.health.measuring import measure
from onex_platform.health.thresholds import METRICS
from onex_platform.health.watching import look_after, standing
from onex_platform.ingest.archive import registration_log

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
_by_option = click.option("--by", default=getpass.getuser, help="Who; by default your user name.")
_limit_option = click.option(
    "--limit", type=click.IntRange(min=1, max=10_000), default=100, show_default=True
)


@click.group("alerts")
def command() -> None:
    """Alerts on the service's numbers: raised by rules, told once, silenced for a while.

    \b
    Examples:
      onex alerts list
      onex alerts silence late_archive --for 2h --reason "rebuild of the store"
      onex alerts silence everything --for 30m --reason "deployment"
      onex alerts unsilence everything
      onex alerts numbers --metric lag_seconds
      onex alerts check                                 measures now, without Dagster
    """


@command.command("list")
@click.option("--all", "also_resolved", is_flag=True, help="Those that are over as well.")
@_limit_option
@_json_option
def list_command(also_resolved: bool, limit: int, as_json: bool) -> None:
    """List what is raised, longest first; with --all what was, newest first.

    Silenced alerts are listed as such. Nothing is measured: `check` does that.
    """
    now = datetime.now(UTC)
    with attached_platform("postgres") as platform:
        found = standing(platform, now)
        shown = found.alerts[:limit]
        if also_resolved:
            with platform.database.transaction() as cursor:
                shown = alerting.alerts(cursor, platform.domain, limit)
    _show_alerts(shown, found.silences, as_json)


@command.command("check")
@_json_option
def check_command(as_json: bool) -> None:
    """Measure now, and raise, resolve and tell alerts; exit code 1 if one is raised and heard."""
    now = datetime.now(UTC)
    with attached_platform("postgres", "kafka") as platform:
        look_after(platform, registration_log(platform), now)
        found = standing(platform, now)
    _show_alerts(found.alerts, found.silences, as_json)
    if len(silenced_among(found.alerts, found.silences)) < len(found.alerts):
        sys.exit(1)


@command.command("numbers")
@click.option("--now", "measure_now", is_flag=True, help="Measure; it is shown and not kept.")
@click.option("--metric", type=click.Choice(list(METRICS)), help="Only this one.")
@_json_option
def numbers_command(measure_now: bool, metric: str | None, as_json: bool) -> None:
    """Show the numbers of the last ten minutes' newest measurement, each with its level."""
    now = datetime.now(UTC)
    with attached_platform("postgres", *(["kafka"] if measure_now else [])) as platform:
        last = (
            measure(platform, registration_log(platform), now)
            if measure_now
            else standing(platform, now).measurement
        )
    _show_numbers(last, metric, as_json)


@command.command("rules")
@_json_option
def rules_command(as_json: bool) -> None:
    """List the rules: at which tier an alert is raised, when its conditions hold for how long."""
    steps: list[dict[str, Any]] = [
        {
            "rule": rule.name,
            "tier": step.tier.value,
            "when": [str(each) for each in step.conditions],
            "after_seconds": step.after.total_seconds(),
        }
        for rule in RULES.values()
        for step in rule.steps
    ]
    if as_json:
        _echo_json(steps)
        return
    for step in steps:
        when = " and ".join(step["when"])
        after = f" for {step['after_seconds']:g} s" if step["after_seconds"] else ""
        click.echo(f"{step['rule']:<28}  {step['tier']:<9}  {when}{after}")


@command.command("silence")
@click.argument("target", metavar="RULE-OR-SCOPE")
@click.option("--for", "lasts", type=Duration(), required=True, help="For how long; 7d at most.")
@click.option("--reason", required=True, help="Why; it stays in the book.")
@click.option("--emergencies", is_flag=True, help="Don't tell of emergencies either.")
@_by_option
def silence_command(target: str, lasts: timedelta, reason: str, emergencies: bool, by: str) -> None:
    """Don't tell of the alerts of a rule, a topic, a group or a tenant, or of `everything`.

    They are raised, resolved and listed as ever. The silence ends by itself.

    \b
    Examples:
      onex alerts silence slow_publishing --for 2h --reason "broker is being replaced"
      onex alerts silence omnibase --for 15m --reason "load test"
    """
    with attached_platform("postgres") as platform:
        order = silences.silence(
            platform,
            target,
            reason=reason,
            by=by,
            now=datetime.now(UTC),
            lasts=lasts,
            emergencies=emergencies,
        )
    kept = "" if emergencies else " Emergencies are told all the same."
    click.echo(f"Until {_text(order.until)} nobody is told of {target}.{kept}")


@command.command("unsilence")
@click.argument("target", metavar="RULE-OR-SCOPE")
@_by_option
def unsilence_command(target: str, by: str) -> None:
    """End a silence before its time; what is raised then is told with the next look."""
    with attached_platform("postgres") as platform:
        lifted = silences.lift(platform, target, by=by, now=datetime.now(UTC))
    click.echo(f"{len(lifted)} silences of {target} are lifted.")


@command.command("audit")
@_limit_option
@_json_option
def audit_command(limit: int, as_json: bool) -> None:
    """List who silenced what, when, why and until when, newest first."""
    with attached_platform("postgres") as platform, platform.database.transaction() as cursor:
        book = silences.silences(cursor, platform.domain, limit)
    if as_json:
        _echo_json([order._asdict() for order in book])
        return
    for order in book:
        lifted = (
            f"  lifted {_text(order.lifted_at)} by {order.lifted_by}" if order.lifted_at else ""
        )
        click.echo(
            f"{order.target}  from {_text(order.ordered_at)} until {_text(order.until)}"
            f"  by {order.ordered_by}: {order.reason}{lifted}"
        )
    if not book:
        click.echo("Nobody has silenced anything.")


def _show_alerts(
    found: Sequence[Alert], in_force: Sequence[silences.Silence], as_json: bool
) -> None:
    silenced = silenced_among(found, in_force)
    if as_json:
        _echo_json([a._asdict() | {"silenced": a.alert_id in silenced} for a in found])
        return
    for alert in found:
        state = "over" if alert.resolved_at else alert.tier.value
        mark = " (silenced)" if alert.alert_id in silenced and not alert.resolved_at else ""
        click.echo(
            f"{state + mark:<20}  {alert.rule:<26}  since {_text(alert.raised_at)}"
            f"  {alert.scope}: {alert.says}"
        )
    if not found:
        click.echo("No alert is raised.")


def _show_numbers(last: Measurement | None, metric: str | None, as_json: bool) -> None:
    shown = [r for r in (last.readings if last else ()) if metric in (None, r.metric)]
    if as_json:
        numbers = [item._asdict() | {"unit": METRICS[item.metric].unit} for item in shown]
        _echo_json({"at": last and last.at, "numbers": numbers})
        return
    if last is None:
        click.echo("Nothing was measured in the last ten minutes; `--now` measures.")
    for item in shown:
        number = f"{item.value:g} {METRICS[item.metric].unit}"
        click.echo(f"{item.level:<8}  {item.metric:<28}  {number:>20}  {item.scope}")


def _text(value: datetime) -> str:
    return value.isoformat(timespec="seconds")


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))

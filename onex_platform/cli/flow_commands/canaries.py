"""`onex canaries`: let the platform's own node and samples go through, and see what they found."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from onex_platform.cli.opening import attached_platform
from onex_platform.context import PlatformContext
from onex_platform.health.canaries.following import CanaryReport, follow, look
from onex_platform.health.canaries.group_watch import forget_group
from onex_platform.health.canaries.lease_watch import forget_lease
from onex_platform.health.canaries.probe_reader import READER
from onex_platform.topics.catalogue import load_whole_catalogue

_PAUSE_SECONDS = 1.0
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


@click.group("canaries")
def command() -> None:
    """Let a node of the platform's own live through the pipeline, and samples through topics.

    Users see neither. A canary that is stopped, and a consumer group that does not read a sample
    within ONEX_CANARY_PERIOD_SECONDS, is told of once, and once more when it goes on.

    \b
    Examples:
      onex canaries status
      onex canaries once
      onex canaries follow --seconds 600
      onex canaries forget validator-onex-v1
    """


@command.command("status")
@_json_option
def status_command(as_json: bool) -> None:
    """Say how the last life went and where groups are; nothing is sent. Exit code 1 on trouble."""
    with _platform() as platform:
        report = look(platform, load_whole_catalogue(), datetime.now(UTC))
    _show(report, as_json)


@command.command("once")
@_json_option
def once_command(as_json: bool) -> None:
    """Go on as far as possible now, without waiting, as each tick of Dagster's sensor does.

    \b
    Example:
      onex canaries once --json | jq .troubles
    """
    with _platform() as platform:
        report = follow(platform, load_whole_catalogue(), datetime.now(UTC))
    _show(report, as_json)


@command.command("follow")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after so many seconds.")
def follow_command(seconds: float | None) -> None:
    """Go on until Ctrl-C, and print what changes: for a service without Dagster.

    \b
    Example:
      ONEX_CANARY_PERIOD_SECONDS=60 onex canaries follow
    """
    until = None if seconds is None else time.monotonic() + seconds
    shown: list[str] = []
    with _platform() as platform:
        while until is None or time.monotonic() < until:
            lines = _lines(follow(platform, load_whole_catalogue(), datetime.now(UTC)))
            for line in (line for line in lines if line not in shown):
                click.echo(line)
            shown = lines
            time.sleep(_PAUSE_SECONDS)


@command.command("forget")
@click.argument("name")
def forget_command(name: str) -> None:
    """Await nothing of NAME, a consumer group or whoever gave signs of life, that is gone for good;
    if it comes back, it is awaited.

    \b
    Example:
      onex canaries forget validator-onex-v1
    """
    with attached_platform("postgres") as platform, platform.database.transaction() as cursor:
        topics, beats = forget_group(cursor, name), forget_lease(cursor, name)
    click.echo(f"{name}: forgotten in {topics} topics.")
    if beats:
        click.echo(f"{name}: no sign of life is awaited.")


@contextmanager
def _platform() -> Iterator[PlatformContext]:
    with attached_platform("postgres", "kafka") as platform:
        yield platform


def _show(report: CanaryReport, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_document(report), indent=2))
    else:
        for line in _lines(report):
            click.echo(line)
    sys.exit(0 if report.is_well else 1)


def _lines(report: CanaryReport) -> list[str]:
    life, lines = report.life, []
    if life is None:
        lines.append("node    no life has begun")
    else:
        began = f"{life.begun_at:%Y-%m-%d %H:%M:%S}"
        stands = f"stopped at {life.stopped_at}" if life.stopped_at else _stand(report)
        lines.append(f"node    life of {began}: {stands}")
        lines += [f"        {name}: {spent:.1f} s" for name, spent in life.seconds().items()]
    for state in report.states:
        reads = "waits" if state.awaited else "reads"
        lines.append(f"group   {state.look.group} {reads} in {state.look.topic}")
    lines += [f"unnamed {group} in {topic}" for topic, group in report.unnamed]
    if report.probes.sent_at is not None:
        waits = report.probes.waiting_since
        stands = "has read its probes" if waits is None else f"waits since {waits:%H:%M:%S}"
        lines.append(f"reader  {READER} {stands}")
    for beat in report.leases:
        stands = "ended" if beat.is_last else f"heard at {beat.beaten_at:%Y-%m-%d %H:%M:%S}"
        lines.append(f"lease   {beat.lease_name} {stands}: {beat.holder}")
    lines += [f"TROUBLE {trouble.message}" for trouble in report.troubles if not trouble.over_at]
    return lines


def _stand(report: CanaryReport) -> str:
    step = report.life.next_step if report.life else None
    return "it went through" if step is None else f"next is {step.name}"


def _document(report: CanaryReport) -> dict[str, Any]:
    life = report.life
    return {
        "well": report.is_well,
        "life": life
        and {
            "epoch": life.epoch,
            "begun_at": life.begun_at.isoformat(),
            "stopped_at": life.stopped_at,
            "seconds": life.seconds(),
        },
        "groups": [
            {
                "topic": state.look.topic,
                "group": state.look.group,
                "lag": state.look.lag,
                "members": state.look.members,
                "waiting_since": state.awaited and state.awaited.since.isoformat(),
            }
            for state in report.states
        ],
        "unnamed": [{"topic": topic, "group": group} for topic, group in report.unnamed],
        "reader": {
            "sent_at": report.probes.sent_at and report.probes.sent_at.isoformat(),
            "waiting_since": report.probes.waiting_since
            and report.probes.waiting_since.isoformat(),
        },
        "leases": [
            {
                "name": beat.lease_name,
                "holder": beat.holder,
                "fence": beat.fence,
                "heard_at": beat.beaten_at.isoformat(),
                "ended": beat.is_last,
            }
            for beat in report.leases
        ],
        "troubles": [
            {"name": t.name, "since": t.since.isoformat(), "message": t.message}
            for t in report.troubles
            if t.over_at is None
        ],
    }

"""`onex status`: is the service well, and if not, what stands in the way?"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from onex_platform.cli.opening import attached_platform
from onex_platform.context import PlatformContext
from onex_platform.engines.postgres.leases import LeaseRecord
from onex_platform.pipeline.status import Status, look

_LOOK_SECONDS = 2.0


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead.")
@click.option("--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C.")
@click.option("--exit-when-healthy", is_flag=True, help="Watch, and end once all is well.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Watch for so many seconds at most.")
def command(as_json: bool, watch: bool, exit_when_healthy: bool, timeout: float | None) -> None:
    """Who holds which lease, how far each station is behind, what waits, and the last proof.

    Exit code 0 if all is well, 1 if not, 4 if PostgreSQL can't be asked. Spark is not needed.

    \b
    Examples:
      onex status
      onex status --json | jq .healthy
      onex status --exit-when-healthy --timeout 60     in a script that deploys
    """
    limit = None if timeout is None else time.monotonic() + timeout
    with attached_platform("postgres") as platform:
        status = look(platform, datetime.now(UTC))
        _show(status, as_json)
        if watch or exit_when_healthy:
            for status in _looks(platform, limit):
                if exit_when_healthy and status.healthy:
                    break
                _show(status, as_json)
    sys.exit(0 if status.healthy else 1)


def _looks(platform: PlatformContext, limit: float | None) -> Iterator[Status]:
    while limit is None or time.monotonic() < limit:
        yield look(platform, datetime.now(UTC))
        time.sleep(_LOOK_SECONDS)


def _show(status: Status, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(status.as_document()))
        return
    click.echo(f"{'healthy' if status.healthy else 'NOT HEALTHY'} at {status.at:%H:%M:%S} UTC")
    for lease in status.leases:
        click.echo(f"  lease  {lease.name:<20}  {_state(lease, status.at):<26}  {lease.owner}")
    for station in status.stations:
        mark = "ok    " if station.healthy else "FAILS "
        click.echo(f"  {mark} {station.name:<12}  {station.says}")


def _state(lease: LeaseRecord, now: datetime) -> str:
    if not lease.lives:
        return f"expired for {_age(now, lease.expires_at)}"
    if lease.taken_at is not None:
        return f"at work for {_age(now, lease.taken_at)}"
    if lease.ready_at is not None:
        return f"stands by for {_age(now, lease.ready_at)}"
    return f"warms up for {_age(now, lease.claimed_at)}"


def _age(now: datetime, moment: datetime) -> str:
    seconds = max(int((now - moment).total_seconds()), 0)
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"

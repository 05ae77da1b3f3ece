"""`onex pages replay` and `onex pages reconcile`: the pages of the snapshotter.

Both read the snapshotter's own configuration file, and reach its store and its index by it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import load_settings
from onex_platform.capture.config import load_config
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.read.event_replay import CursorFile, Progress, Sink, replay
from onex_platform.capture.read.page_selection import Selection
from onex_platform.capture.read.reconcile import reconcile
from onex_platform.capture.read.sinks import FileSink, KafkaSink, StreamSink
from onex_platform.capture.recovering import unflushed_events
from onex_platform.cli.options import Duration
from onex_platform.cli.snapshotter import config_option, open_archive, replica_of
from onex_platform.engines.kafka.clients import open_producer
from onex_platform.stack import attach

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Moment(click.ParamType[int]):
    """An ISO 8601 instant with its offset, as Unix microseconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        try:
            moment = datetime.fromisoformat(value)
            return (moment - _EPOCH) // _MICROSECOND
        except (ValueError, TypeError):
            self.fail(f"{value!r} is no instant; write 2026-03-01T12:00:00Z.", param, ctx)


class _Pair(click.ParamType[tuple[str, str]]):
    """NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        return name, text


@click.command("replay")
@config_option
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--writer", help="Only this writer's events.")
@click.option("--from", "from_us", type=_Moment(), help="Only events from this instant on.")
@click.option("--until", "until_us", type=_Moment(), help="Only events before this instant.")
@click.option(
    "--attribute", "attributes", type=_Pair(), multiple=True, help="Only events that have it."
)
@click.option(
    "--to",
    "target",
    default="stdout",
    show_default=True,
    help="stdout, file:PATH or kafka:TOPIC.",
)
@click.option(
    "--cursor",
    "cursor_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the progress in this file, and go on from it.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many events per second."
)
@click.option("--progress", is_flag=True, help="Tell the progress on standard error.")
def replay_command(
    path: Path,
    tenant: str,
    writer: str | None,
    from_us: int | None,
    until_us: int | None,
    attributes: tuple[tuple[str, str], ...],
    target: str,
    cursor_file: Path | None,
    rate: float | None,
    progress: bool,
) -> None:
    """Read captured events back, unflushed ones included: each once, in the order of its writer.

    With --cursor, an interrupted replay goes on where it was. A file then has each event once; a
    Kafka topic may get the last batch again, and its records carry their event ids.
    """
    selection = Selection(tenant, writer, from_us, until_us, dict(attributes))
    config = load_config(path)
    # What is in the log now is in pages before it leaves the log: so the log is read first.
    unflushed = unflushed_events(config.wal.folder)
    with open_archive(config) as archive, _sink(target) as sink:
        count = replay(
            archive.index,
            archive.storage,
            selection,
            sink,
            cursor=CursorFile(cursor_file, selection),
            unflushed=unflushed,
            events_per_second=rate,
            report=_tell if progress else lambda _: None,
        )
    click.echo(f"{count} events replayed", err=True)


@click.command("reconcile")
@config_option
@click.option("--rebuild", is_flag=True, help="Publish the entries that the index misses.")
@click.option("--delete", is_flag=True, help="Delete replaced pages whose grace has passed.")
@click.option(
    "--grace",
    type=Duration(),
    default="1h",
    show_default=True,
    help="What is younger is in flight and left alone.",
)
@click.option("--url", "replica", help="Compare with this copy of the store instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
def reconcile_command(
    path: Path,
    rebuild: bool,
    delete: bool,
    grace: timedelta,
    replica: str | None,
    as_json: bool,
) -> None:
    """Compare index and store; exit code 1 if a page is missing or damaged.

    It reports, unless told to rebuild or to delete.
    """
    config = load_config(path)
    days = config.index.config.ttl_days
    with open_archive(config) as archive:
        account = reconcile(
            archive.index,
            replica_of(archive, replica),
            archive.tenants,
            datetime.now(UTC),
            grace=grace,
            ttl=None if days is None else timedelta(days=days),
            rebuild=rebuild,
            delete=delete,
        )
    if as_json:
        click.echo(json.dumps(asdict(account), indent=2))
    else:
        for name, value in asdict(account).items():
            title = name.replace("_", " ")
            click.echo(f"{title:<10}  {len(value) if isinstance(value, list) else value}")
        for name in ("missing", "damaged", "gaps", "unindexed", "in_flight", "foreign"):
            for key in getattr(account, name):
                click.echo(f"{name.replace('_', ' ')}  {key}")
    sys.exit(1 if account.faults else 0)


@contextmanager
def _sink(target: str) -> Iterator[Sink]:
    kind, _, place = target.partition(":")
    if target == "stdout":
        yield StreamSink(sys.stdout.buffer)
    elif kind == "file" and place:
        with FileSink(Path(place)) as sink:
            yield sink
    elif kind == "kafka" and place:
        with open_producer(attach(load_settings(), services=("kafka",))) as producer:
            yield KafkaSink(producer, place)
    else:
        raise ConfigurationError(
            f"--to {target!r} can't be used.", hint="Write stdout, file:PATH or kafka:TOPIC."
        )


def _tell(progress: Progress) -> None:
    click.echo(f"{progress.pages} of {progress.of_pages} pages, {progress.events} events", err=True)

"""`onex simulate`: play a seeded fleet to Kafka or into a file, or look at what it would say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from onex_platform.base.settings import Settings, load_settings
from onex_platform.cli.options import Duration
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.history_files import write_file
from onex_platform.simulate.kafka_player import play_to_kafka
from onex_platform.simulate.plan import (
    DEFAULT_SEED,
    DEFAULT_START,
    FleetPlan,
    plan_for,
)
from onex_platform.simulate.profiles import PROFILES, Rates
from onex_platform.simulate.records import Record, Summary
from onex_platform.simulate.routes import routes_of
from onex_platform.simulate.scenarios import SCENARIOS
from onex_platform.simulate.wire import time_text
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_catalogue

_SHOWN_BYTES = 600
_SHOWN_RECORDS = 20


class _Assignment(click.ParamType[tuple[str, float]]):
    """NAME=NUMBER; whether the name is known is the profile's business."""

    name = "name=number"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        name, _, number = value.partition("=")
        try:
            return name, float(number)
        except ValueError:
            self.fail(f"{value!r} is no assignment; write it like {name}=0.5.", param, ctx)


def _plan_options(*, nodes: int, duration: str | None) -> Callable[[Any], Any]:
    """The options that every form of playing shares."""
    options = [
        click.option("--nodes", default=nodes, show_default=True, help="Size of the fleet."),
        click.option(
            "--duration",
            type=Duration(),
            default=duration,
            help="Length of the history, such as 90s, 15m, 6h, 30d; "
            + (f"{duration} by default." if duration else "by default what --events needs, or 1d."),
        ),
        click.option("--events", type=int, help="End after so many records."),
        click.option(
            "--profile",
            type=click.Choice(list(PROFILES)),
            default="default",
            show_default=True,
            help="How rough it is; `onex simulate profiles` explains.",
        ),
        click.option(
            "--rate",
            "rates",
            type=_Assignment(),
            multiple=True,
            help="Change one rate of the profile: --rate malformed=0.05. May be repeated.",
        ),
        click.option(
            "--scenario",
            "scenarios",
            type=_Assignment(),
            multiple=True,
            help="Play only these scenarios, by weight: --scenario silent=1. May be repeated.",
        ),
        click.option(
            "--seed", default=DEFAULT_SEED, show_default=True, help="Same seed, same history."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
    ]

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.group("simulate")
def command() -> None:
    """Play a simulated fleet to Kafka or to files.

    The fleet is seeded: the same seed and options give the same records. Nodes join, beat, change,
    fall silent, return and leave by scenarios; duplicates, late, foreign and malformed records are
    mixed in at the rates of a profile.
    """


@command.command("kafka")
@_plan_options(nodes=50, duration="1m")
@click.option(
    "--speed",
    default=10.0,
    show_default=True,
    help="How much faster than in earnest: at 10, a node that beats every 30 s beats every 3 s.",
)
@click.option(
    "--registry/--nodes-only",
    default=None,
    help="Also play the registry's events, or leave them to the platform's decider. "
    "By default they are played where ONEX_REGISTRATION_DECIDER_ENABLED is off.",
)
def kafka_command(registry: bool | None, as_json: bool, **options: Any) -> None:
    """Play the fleet to the catalogue's topics, in real time, until --duration or Ctrl-C.

    Time is the broker's. The platform's windows stay as they are set: at a higher speed, shorten
    ONEX_REGISTRATION_ACK_SECONDS and its kin alike, or play the registry as well.
    """
    settings = attach(load_settings(), services=["kafka"])
    if registry is None:
        registry = not settings.registration.decider_enabled
    plan = _plan(settings, registry=registry, **options)
    with _progress("playing") as watch:
        report = play_to_kafka(settings, load_catalogue(), plan, watch)
    _echo_summary(report.summary, as_json)
    if report.interrupted:
        raise click.Abort


@command.command("file")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@_plan_options(nodes=100, duration=None)
@click.option(
    "--start",
    type=click.DateTime(),
    help=f"When the history begins, in UTC; {DEFAULT_START:%Y-%m-%d} by default.",
)
@click.option(
    "--registry/--nodes-only",
    default=True,
    show_default=True,
    help="Also write the registry's events, or only those of the nodes.",
)
def file_command(path: Path, start: datetime | None, as_json: bool, **options: Any) -> None:
    """Write a history with its own times to PATH, a .parquet, .ndjson or .jsonl file.

    The columns are those of Spark's Kafka source; in NDJSON, bytes are in base64.
    """
    begins = DEFAULT_START if start is None else start.replace(tzinfo=UTC)
    fleet = _fleet(_plan(load_settings(), start=begins, **options))
    with _progress("writing") as watch:
        summary = write_file(fleet, path, watch)
    _echo_summary(summary, as_json)


@command.command("show")
@_plan_options(nodes=5, duration=None)
@click.option("--registry/--nodes-only", default=True, help="With or without the registry's part.")
def show_command(events: int | None, as_json: bool, **options: Any) -> None:
    """Print the first records of a history, 20 by default; asks no server."""
    for record in _fleet(_plan(load_settings(), events=events or _SHOWN_RECORDS, **options)):
        click.echo(json.dumps(_document(record)) if as_json else _text(record))


@command.command("profiles")
def profiles_command() -> None:
    """List the profiles' rates and the scenarios with their weights."""
    click.echo(_table(["rate", *PROFILES, "what"], _rate_rows()))
    click.echo()
    click.echo(_table(["scenario", *PROFILES, "what"], _scenario_rows()))


def _plan(
    settings: Settings,
    *,
    profile: str,
    rates: Iterable[tuple[str, float]],
    scenarios: Iterable[tuple[str, float]],
    events: int | None,
    **options: Any,
) -> FleetPlan:
    mix = PROFILES[profile].changed(dict(rates), dict(scenarios))
    return plan_for(settings, profile=mix, max_events=events, **options)


def _fleet(plan: FleetPlan) -> Fleet:
    return Fleet(plan, routes_of(load_catalogue()))


@contextmanager
def _progress(verb: str) -> Iterator[Callable[[Fleet], None]]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(verb, total=1)

        def watch(fleet: Fleet) -> None:
            progress.update(
                task, completed=fleet.progress, description=f"{verb} {fleet.played} records"
            )

        yield watch


def _echo_summary(summary: Summary, as_json: bool) -> None:
    document = summary.as_dict()
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for name, value in document.items():
        if not isinstance(value, dict):
            click.echo(f"{name}: {value}")
        elif value:
            click.echo(f"{name}:")
            click.echo(_table([], [[f"  {key}", str(count)] for key, count in value.items()]))


def _document(record: Record) -> dict[str, Any]:
    return {
        "time": time_text(record.time_ms),
        "topic": record.topic,
        "partition": record.partition,
        "key": record.key.decode(),
        "headers": {name: value.decode() for name, value in record.headers},
        "value": _shortened(record.value),
        "scenario": record.scenario,
        "disturbance": record.disturbance,
        "parked_as": record.malformed,
    }


def _text(record: Record) -> str:
    document = _document(record)
    notes = ", ".join(
        str(note) for note in (record.scenario, record.disturbance, record.malformed) if note
    )
    tenant = "".join(f"  {name}={value}" for name, value in document["headers"].items())
    return (
        f"{document['time']}  {record.topic}[{record.partition}]  ({notes})\n"
        f"  key={document['key']}{tenant}\n  {document['value']}"
    )


def _shortened(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return text if len(value) <= _SHOWN_BYTES else f"{text}… ({len(value)} bytes)"


def _rate_rows() -> Iterator[list[str]]:
    for name, field in Rates.model_fields.items():
        shares = [f"{getattr(profile.rates, name):g}" for profile in PROFILES.values()]
        yield [name, *shares, field.description or ""]


def _scenario_rows() -> Iterator[list[str]]:
    for name, scenario in SCENARIOS.items():
        weights = [f"{profile.weights.get(name, 0):g}" for profile in PROFILES.values()]
        yield [name, *weights, scenario.about]


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [line for line in (head, *rows) if line]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )

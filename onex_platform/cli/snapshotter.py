"""`onex snapshotter`: the capture service, and the pages that its store would not take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onex_platform.capture.config import CaptureConfig
    from onex_platform.capture.flush.dead_letters import DeadLetter, DeadLetters
    from onex_platform.capture.read.kafka_relay import Relay
    from onex_platform.capture.slots import PageIndex
    from onex_platform.capture.storage.objects import ObjectStore

config_option = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The snapshotter's configuration file.",
)


@click.group("snapshotter")
def command() -> None:
    """Capture events durably and write them as pages."""


@command.command("serve")
@config_option
def serve_command(path: Path) -> None:
    """Serve until SIGTERM or Ctrl-C; then store what is left and stop."""
    from onex_platform.capture.api.serving import run
    from onex_platform.capture.config import load_config

    config = load_config(path)
    with open_slots(config) as (storage, index), _relay(config) as relay:
        _probe(storage, config)
        run(config, storage, index, lambda grpc, http: _say_ready(config, grpc, http), relay)


@command.command("check")
@config_option
def check_command(path: Path) -> None:
    """Say whether a configuration file can be used, and what follows from it."""
    from onex_platform.capture.config import load_config

    config = load_config(path)
    click.echo(f"{path}: good")
    click.echo(f"pages     {config.page.format}, {config.page.compression}, {config.page_bytes} B")
    click.echo(f"storage   {config.storage.backend}")
    click.echo(f"index     {config.index.backend}, {config.index.mode}")
    click.echo(f"answers   {config.default_durability.name}")
    click.echo(f"tenants   {', '.join(sorted({token.tenant for token in config.tokens})) or '-'}")


def _probe(storage: ObjectStore, config: CaptureConfig) -> None:
    """Ask the store what it can do. One that is down is no reason not to start: events are safe in
    the log until it is back."""
    from onex_platform.capture.flush.retrying import RETRIED
    from onex_platform.capture.storage import require_abilities

    try:
        abilities = require_abilities(storage, config.storage)
    except RETRIED as error:
        click.echo(f"warning: the store could not be probed: {error}", err=True)
        return
    if not abilities["conditional_create"]:
        click.echo("warning: the store overwrites silently; unique keys protect pages.", err=True)


def _say_ready(config: CaptureConfig, grpc_port: int, http_port: int) -> None:
    host = config.listen.host
    click.echo(f"The snapshotter is ready: gRPC {host}:{grpc_port}, HTTP {host}:{http_port}")


@contextmanager
def open_slots(config: CaptureConfig) -> Iterator[tuple[ObjectStore, PageIndex]]:
    """The store and the index that a configuration names, for the block."""
    from onex_platform.base.settings import load_settings
    from onex_platform.capture.index import open_index
    from onex_platform.capture.storage import open_storage
    from onex_platform.stack import attach

    settings = load_settings()
    if config.index.backend == "postgres" and config.index.config.connection is None:
        settings = attach(settings, services=("postgres",))
    storage, index = open_storage(config.storage), open_index(config.index, settings)
    try:
        yield storage, index
    finally:
        index.close()
        storage.close()


@contextmanager
def _relay(config: CaptureConfig) -> Iterator[Relay | None]:
    if not config.relay.enabled:
        yield None
        return
    from onex_platform.base.settings import load_settings
    from onex_platform.capture.read.kafka_relay import open_relay
    from onex_platform.ingest.archive import input_topics
    from onex_platform.stack import attach
    from onex_platform.topics.catalogue import load_catalogue

    settings = attach(load_settings(), services=("postgres", "kafka"))
    topics = config.relay.topics or tuple(input_topics(load_catalogue()))
    with open_relay(settings, config.instance, topics) as relay:
        yield relay


@click.group("dlq")
def dead_letters_command() -> None:
    """The pages that the snapshotter gave up after its last retry."""


@dead_letters_command.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
def list_command(path: Path, as_json: bool) -> None:
    """List dead letters, oldest first."""
    letters = sorted(_letters(path).letters(), key=lambda letter: letter.since)
    if as_json:
        click.echo(json.dumps([_summary(letter) for letter in letters], indent=2))
        return
    for letter in letters:
        info = letter.entry.info
        click.echo(f"{info.page_id}  {letter.since:%Y-%m-%d %H:%M:%S}  {info.event_count} events")
    click.echo(f"{len(letters)} dead letters")


@dead_letters_command.command("show")
@config_option
@click.argument("page_id")
def show_command(path: Path, page_id: str) -> None:
    """Show what is known of one."""
    click.echo(json.dumps(_summary(_letters(path).find(page_id)), indent=2))


@dead_letters_command.command("redrive")
@config_option
@click.argument("page_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Redrive all of them.")
def redrive_command(path: Path, page_ids: tuple[str, ...], everything: bool) -> None:
    """Store and index pages after all; each is kept until that has succeeded."""
    from onex_platform.capture.config import load_config

    letters = _letters(path)
    with open_slots(load_config(path)) as (storage, index):
        for page_id in _chosen(letters, page_ids, everything):
            click.echo(f"stored {letters.redrive(page_id, storage, index).key}")


@dead_letters_command.command("purge")
@config_option
@click.argument("page_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Purge all of them.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def purge_command(path: Path, page_ids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Remove pages for good: their events are lost."""
    letters = _letters(path)
    chosen = _chosen(letters, page_ids, everything)
    events = sum(letters.find(page_id).entry.info.event_count for page_id in chosen)
    if not yes:
        click.confirm(f"Lose {events} events in {len(chosen)} pages?", abort=True)
    for page_id in chosen:
        letters.purge(page_id)
    click.echo(f"{len(chosen)} dead letters purged")


def _letters(path: Path) -> DeadLetters:
    from onex_platform.capture.config import load_config
    from onex_platform.capture.flush.dead_letters import DeadLetters

    return DeadLetters(load_config(path).wal.folder / "dead_letters")


def _chosen(letters: DeadLetters, page_ids: tuple[str, ...], everything: bool) -> list[str]:
    if bool(page_ids) == everything:
        raise click.UsageError("Name page ids, or use --all.")
    return list(page_ids) or [letter.entry.info.page_id for letter in letters.letters()]


def _summary(letter: DeadLetter) -> dict[str, object]:
    from onex_platform.capture.flush.page_json import entry_to_json

    return entry_to_json(letter.entry) | {"error": letter.error, "since": str(letter.since)}

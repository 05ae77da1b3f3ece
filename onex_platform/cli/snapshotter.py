"""`onex snapshotter`: the capture service, and the pages that its store would not take."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onex_platform.base.errors import ConfigurationError

if TYPE_CHECKING:
    from onex_platform.capture.captured_archive import CapturedArchive
    from onex_platform.capture.config import CaptureConfig
    from onex_platform.capture.flush.dead_letters import DeadLetter, DeadLetters
    from onex_platform.capture.read.kafka_relay import Relay
    from onex_platform.capture.slots import ObjectStorage
    from onex_platform.engines.postgres.database import Database

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
    with open_archive(config) as archive, _relay(config) as relay:
        _probe(archive.storage, config)
        run(
            config,
            archive.storage,
            archive.index,
            lambda grpc, http: _say_ready(config, grpc, http),
            relay,
        )


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


@command.command("compact")
@config_option
@click.option("--dry-run", is_flag=True, help="Change nothing, say what would be merged.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Merge at most so many groups of pages.",
)
def compact_command(path: Path, dry_run: bool, limit: int) -> None:
    """Merge small captured pages on Spark; exit code 1 if a group failed.

    The old pages stay for readers that use them; `onex snapshotter sweep` removes them later.

    \b
    onex snapshotter compact --config snapshotter.yaml --dry-run
    onex snapshotter compact --config snapshotter.yaml --limit 10
    """
    from onex_platform.capture.compaction.compacting import compact, plan
    from onex_platform.engines.spark.session import open_session

    with _archive(path) as archive:
        if dry_run:
            for group in plan(archive, datetime.now(UTC), limit):
                click.echo(f"would merge  {group}, tenant {group.pages[0].info.tenant}")
            return
        # Merging reads pages only: none of Spark's connectors is needed.
        with open_session(archive.address.settings, []) as spark:
            account = compact(spark, archive, limit)
    for name, value in asdict(account).items():
        if name != "failures":
            click.echo(f"{name.replace('_', ' '):<14}  {value}")
    for failure in account.failures:
        click.echo(f"failed  {failure}")
    sys.exit(1 if account.failures else 0)


@command.command("sweep")
@config_option
@click.option("--dry-run", is_flag=True, help="Change nothing, say what would be deleted.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Delete at most so many pages.",
)
def sweep_command(path: Path, dry_run: bool, limit: int) -> None:
    """Delete captured pages that were replaced longer ago than the grace period."""
    from onex_platform.capture.compaction.compacting import sweep

    with _archive(path) as archive:
        swept = sweep(archive, datetime.now(UTC), limit, dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    click.echo(f"{verb} {swept.pages} replaced pages, {swept.bytes} bytes")


@command.command("verify")
@config_option
@click.option(
    "--sample", type=click.IntRange(min=0), help="Read so many pages, by chance; default: all."
)
@click.option("--url", "replica", help="Read the pages from this copy of the store instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
def verify_command(path: Path, sample: int | None, replica: str | None, as_json: bool) -> None:
    """Prove that captured pages are whole; exit code 1 if something is missing or damaged.

    Pages are read and compared with the index, and every writer's sequences are followed. What
    waits in the snapshotter's folder is not missing.

    \b
    onex snapshotter verify --config snapshotter.yaml
    onex snapshotter verify --config snapshotter.yaml --url s3://pages-of-another-region
    """
    from onex_platform.capture.read.page_proof import Waiting, prove_pages

    with _archive(path) as archive:
        waiting = Waiting(archive.config.wal.folder)
        storage = replica_of(archive, replica)
        proof = prove_pages(archive.index, storage, archive.tenants, waiting, sample=sample)
    if as_json:
        click.echo(json.dumps(asdict(proof), indent=2))
    else:
        click.echo(f"pages   {proof.pages}\nread    {proof.read}\nevents  {proof.events}")
        for fault in proof.faults:
            click.echo(f"fault   {fault}")
    sys.exit(1 if proof.faults else 0)


@command.command("relays")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")
def relays_command(as_json: bool) -> None:
    """List the relays that the deadline watch waits for; exit code 1 if one is silent."""
    from onex_platform.capture.read.kafka_relay import relay_states

    with _database() as database, database.transaction() as cursor:
        states = relay_states(cursor)
    if as_json:
        click.echo(json.dumps([state._asdict() for state in states], indent=2, default=str))
    else:
        for state in states:
            seconds = state.silent_for.total_seconds()
            word = "silent" if state.is_silent else "heard"
            until = f"{state.relayed_until:%Y-%m-%d %H:%M:%S}"
            click.echo(f"{state.instance}  relayed until {until}, {word} for {seconds:.0f} s")
        click.echo(f"{len(states)} relays")
    sys.exit(1 if any(state.is_silent for state in states) else 0)


@command.command("retire")
@click.argument("instance")
@click.option("--yes", is_flag=True, help="Don't ask.")
def retire_command(instance: str, yes: bool) -> None:
    """Let the deadline watch go on without a snapshotter that will not come back.

    Nodes may then expire whose heartbeats lie in its folder and were never relayed. If the folder
    still exists, start the snapshotter again instead.

    \b
    onex snapshotter relays
    onex snapshotter retire capture-2
    """
    from onex_platform.capture.read.kafka_relay import retire_relay

    with _database() as database:
        if not yes:
            click.confirm(f"Let nodes expire whose heartbeats only {instance} has?", abort=True)
        if not retire_relay(database, instance):
            raise ConfigurationError(
                f"Nobody waits for a snapshotter {instance!r}.",
                hint="`onex snapshotter relays` lists those that somebody waits for.",
            )
    click.echo(f"{instance} is retired")


@contextmanager
def _database() -> Iterator[Database]:
    from onex_platform.base.settings import load_settings
    from onex_platform.engines.postgres.database import open_database
    from onex_platform.stack import attach

    with open_database(attach(load_settings(), services=("postgres",))) as database:
        yield database


def replica_of(archive: CapturedArchive, url: str | None) -> ObjectStorage:
    """The archive's own store, or a copy of it elsewhere."""
    if url is None:
        return archive.storage
    from onex_platform.capture.storage.objects import ObjectStore
    from onex_platform.log.store import PageStore

    return ObjectStore("replica", PageStore(url))


def _probe(storage: ObjectStorage, config: CaptureConfig) -> None:
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
def open_archive(config: CaptureConfig) -> Iterator[CapturedArchive]:
    """The store and the index that a configuration names, for the block."""
    from onex_platform.base.settings import load_settings
    from onex_platform.capture.captured_archive import ArchiveAddress
    from onex_platform.stack import attach

    settings = load_settings()
    if config.index.backend == "postgres" and config.index.config.connection is None:
        settings = attach(settings, services=("postgres",))
    with ArchiveAddress(config, settings).open() as archive:
        yield archive


@contextmanager
def _archive(path: Path) -> Iterator[CapturedArchive]:
    from onex_platform.capture.config import load_config

    with open_archive(load_config(path)) as archive:
        yield archive


@contextmanager
def _relay(config: CaptureConfig) -> Iterator[Relay | None]:
    if not config.relay.enabled:
        yield None
        return
    from onex_platform.base.settings import load_settings
    from onex_platform.capture.read.kafka_relay import open_relay
    from onex_platform.ingest.inputs import input_topics
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
    letters = _letters(path)
    with _archive(path) as archive:
        for page_id in _chosen(letters, page_ids, everything):
            entry = letters.redrive(page_id, archive.storage, archive.index)
            click.echo(f"stored {entry.key}")


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

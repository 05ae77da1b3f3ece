"""`onex delivery`: keys that wait for another attempt, dead keys, their letters and their way back.

These are the dead letters of handlers; records that the log can't read are another command's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings, load_settings
from onex_platform.cli.flow_commands.shown_values import shown
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.delivery.entries import EnumEntry
from onex_platform.delivery.letters import (
    ParkedKey,
    dead_key,
    parked_keys,
    read_letters,
    request,
)
from onex_platform.stack import attach
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.policy import load_policy

_SHOWN_BYTES = 100


def _whose(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say whose letters are meant."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead."),
        click.option("--group", required=True, help="The consumers' group."),
        click.option("--topic", required=True, help="The source, as its contract calls it."),
    ):
        command = option(command)
    return command


_keys_argument = click.argument("keys", nargs=-1)
_all_option = click.option("--all", "is_all", is_flag=True, help="Every dead key.")


@click.group("delivery")
def command() -> None:
    """See which keys of a group wait or are dead, and let dead ones go on.

    \b
    onex delivery list --topic validator.evt.test-run-completed.v1 --group validator
    onex delivery preview run-7 --topic … --group …
    onex delivery replay run-7 --topic … --group …
    """


@command.command("list")
@_whose
def list_command(topic: str, group: str, as_json: bool) -> None:
    """List the keys that wait or are dead, as rty has them."""
    found = _parked(*_meant(topic, group))
    if as_json:
        _echo_json([_fields(parked) for parked in found])
        return
    for parked in found:
        click.echo("  ".join(f"{name}={value}" for name, value in _fields(parked).items()))
    if not found:
        click.echo(f"Nothing of {topic} waits for {group}, and no key is dead.")


@command.command("preview")
@_keys_argument
@_all_option
@_whose
def preview_command(
    keys: tuple[str, ...], is_all: bool, topic: str, group: str, as_json: bool
) -> None:
    """Show the letters that a replay would hand to the handler, in their order.

    Fields that the topic's schema calls highly private are hidden.
    """
    settings, config = _meant(topic, group)
    levels = load_whole_catalogue()[topic].private_fields
    letters: list[dict[str, Any]] = []
    for parked in _chosen(_parked(settings, config), keys, is_all):
        assert parked.dead is not None  # noqa: S101
        found = read_letters(settings, config, parked.partition, parked.dead)
        if not found.is_whole:
            gone = f"Letters of key {parked.name!r} are gone: it can be released, not replayed."
            click.echo(gone, err=True)
            continue
        letters += (
            {
                "key": parked.name,
                "partition": record.partition,
                "offset": record.offset,
                "bytes": len(record.value or b""),
                "value": _beginning(shown(record.value, levels)),
            }
            for record in found.records
        )
    if as_json:
        _echo_json(letters)
        return
    for letter in letters:
        click.echo("  ".join(f"{name}={value}" for name, value in letter.items()))
    click.echo(f"{len(letters)} letters would be handled again.")


@command.command("replay")
@_keys_argument
@_all_option
@_whose
def replay_command(
    keys: tuple[str, ...], is_all: bool, topic: str, group: str, as_json: bool
) -> None:
    """Let the letters of dead keys be handled again, in order, before their later records.

    Whoever owns the partition does it, at once or when there is somebody. `preview` shows what.
    """
    _ask(EnumEntry.REPLAY, keys, is_all, topic, group, as_json)


@command.command("release")
@_keys_argument
@_all_option
@_whose
def release_command(
    keys: tuple[str, ...], is_all: bool, topic: str, group: str, as_json: bool
) -> None:
    """Let dead keys go on without their letters, which stay in dlt until it deletes them."""
    _ask(EnumEntry.RELEASE, keys, is_all, topic, group, as_json)


def _ask(
    kind: EnumEntry, keys: tuple[str, ...], is_all: bool, topic: str, group: str, as_json: bool
) -> None:
    settings, config = _meant(topic, group)
    chosen = _chosen(_parked(settings, config), keys, is_all)
    count = request(settings, config, kind, chosen)
    if as_json:
        _echo_json({"asked": kind.value, "keys": [parked.name for parked in chosen]})
    else:
        click.echo(f"{count} keys: {kind.value} asked of the group {group}.")


def _meant(topic: str, group: str) -> tuple[Settings, DeliveryConfig]:
    """The cluster, and the group's delivery of the contract's topic on it."""
    settings = attach(load_settings(), services=["kafka"])
    naming = broker_names(settings, load_policy().home)
    contract = load_whole_catalogue()[topic]
    return settings, DeliveryConfig.from_contract(contract, group, naming)


def _parked(settings: Settings, config: DeliveryConfig) -> list[ParkedKey]:
    return parked_keys(settings, config, int(datetime.now(UTC).timestamp() * 1000))


def _chosen(found: list[ParkedKey], keys: Sequence[str], is_all: bool) -> list[ParkedKey]:
    if bool(keys) is is_all:
        raise ConfigurationError(
            "Either keys or --all say what is meant.",
            hint="`onex delivery list` shows the dead keys.",
        )
    if is_all:
        return [parked for parked in found if parked.dead is not None]
    return [dead_key(found, name) for name in keys]


def _fields(parked: ParkedKey) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": parked.name,
        "partition": parked.partition,
        "state": "waiting" if parked.dead is None else "dead",
        "waiting": parked.waiting,
    }
    if parked.due_ms is not None and parked.dead is None:
        due = datetime.fromtimestamp(parked.due_ms / 1000, UTC)
        fields |= {"failures": parked.failures, "due": due.isoformat(timespec="seconds")}
        fields["reason"] = parked.reason
    if parked.asked is not None:
        fields["asked"] = parked.asked.value
    return fields


def _beginning(value: bytes | None) -> str:
    return (value or b"")[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))

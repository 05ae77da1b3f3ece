"""`onex keys`: the keys that sign records and encrypt private fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import load_settings
from onex_platform.records.key_folder import SIGNING, TENANTS, KeyFolder, KeyInfo
from onex_platform.records.privacy import FieldCipher, parse_sealed


def _whose(command: Any) -> Any:
    """A tenant's key, which encrypts, or an actor's, which signs."""
    actor = click.option("--actor", help="Whose signing key: the name that x-actor carries.")
    tenant = click.option("--tenant", help="Whose key for private fields.")
    return tenant(actor(command))


@click.group("keys")
def command() -> None:
    """Make, list, rotate and destroy the keys of records.

    \b
    Examples:
      onex keys make                          the master key of a development environment
      onex keys make --tenant acme            the key that encrypts acme's private fields
      onex keys make --actor onex-platform    the key that signs what the platform publishes
      onex keys rotate --tenant acme          a new key from now on; the old ones go on reading
      onex keys destroy acme --yes            nobody reads acme's private fields any more
    """


@command.command("make")
@_whose
def make_command(tenant: str | None, actor: str | None) -> None:
    """Make a key, unless there is one; without a name, the master key of dev and test."""
    keys = _keys()
    if tenant is None and actor is None:
        made, what = keys.make_master(), "The master key"
    else:
        kind, name = _named(tenant, actor)
        made, what = keys.make(kind, name), f"The key of {name}"
    click.echo(f"{what} {'was made' if made else 'is there already'}: {keys.folder}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def list_command(as_json: bool) -> None:
    """List every key by its id, and what was destroyed; never a secret."""
    found = [_row(info) for info in _keys().list()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for row in found:
        state = f"destroyed {row['destroyed_at']}" if row["destroyed_at"] else f"{row['primary']}"
        if row["is_left"]:
            state += f", but its file is left: `onex keys destroy {row['name']} --yes` deletes it"
        click.echo(f"{row['kind']:<8}  {row['name']:<24}  {state}  of {len(row['keys'])}")
    if not found:
        click.echo("There are no keys; `onex keys make` makes the first one.")


@command.command("rotate")
@_whose
def rotate_command(tenant: str | None, actor: str | None) -> None:
    """Add a key that is used from now on; nothing is written again."""
    info = _keys().rotate(*_named(tenant, actor))
    click.echo(f"{info.name} uses key {info.primary} now; {len(info.keys)} keys read.")


@command.command("destroy")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Destroy it; without this, only say what would happen.")
def destroy_command(tenant: str, yes: bool) -> None:
    """Destroy a tenant's key: its private fields become unreadable, everywhere and for ever."""
    keys = _keys()
    found = [info for info in keys.list() if (info.kind, info.name) == (TENANTS, tenant)]
    if not found:
        raise ConfigurationError(
            f"There is no key of the tenant {tenant!r}.", hint="`onex keys list` shows them."
        )
    if not yes:
        ids = ", ".join(map(str, found[0].keys))
        click.echo(
            f"Would destroy key {ids} of {tenant}: nobody could read its private fields in Kafka,"
            " pages, the registry and snapshots any more. --yes does it."
        )
        return
    info = keys.destroy(tenant)
    click.echo(f"The key of {tenant} was destroyed at {info.destroyed_at}.")


@command.command("public")
@click.argument("actor")
def public_command(actor: str) -> None:
    """Print an actor's public keys, for those who are to trust it."""
    click.echo(_keys().public(actor))


@command.command("trust")
@click.argument("actor")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def trust_command(actor: str, file: Path) -> None:
    """Take the signatures of an actor, by a file with its public keys."""
    _keys().trust(actor, file.read_text())
    click.echo(f"Signatures of {actor} are taken.")


@command.command("reveal")
@click.argument("sealed")
def reveal_command(sealed: str) -> None:
    """Print a sealed value in clear; says which key it needs if that is not here."""
    if parse_sealed(sealed) is None:
        raise ConfigurationError(
            f"{sealed[:40]!r} is no sealed value.", hint="One begins with sealed:v1:."
        )
    click.echo(json.dumps(FieldCipher(_keys()).opened(sealed)))


def _keys() -> KeyFolder:
    return KeyFolder(load_settings())


def _named(tenant: str | None, actor: str | None) -> tuple[str, str]:
    if tenant is not None and actor is None:
        return TENANTS, tenant
    if actor is not None and tenant is None:
        return SIGNING, actor
    raise ConfigurationError(
        f"tenant={tenant!r}, actor={actor!r}: a key belongs to one of the two.",
        hint="Give --tenant or --actor.",
    )


def _row(info: KeyInfo) -> dict[str, Any]:
    destroyed = info.destroyed_at
    return info._asdict() | {
        "keys": list(info.keys),
        "destroyed_at": None if destroyed is None else destroyed.isoformat(timespec="seconds"),
    }

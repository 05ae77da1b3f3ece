"""What a lane asks to be done, and what it is told of it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from onex_platform.delivery.entries import Entry, EnumFailure, Key, Record


class Attempt(NamedTuple):
    """Let the handler try the first record of a key."""

    key: Key
    entry: Entry


class Bury(NamedTuple):
    """Write a key's records to `dlt`."""

    key: Key
    entries: tuple[Entry, ...]


class Revive(NamedTuple):
    """Read a dead key's letters, to hand them to `revive`."""

    key: Key
    dead: Entry


Work = Attempt | Bury | Revive


class Letters(NamedTuple):
    """What `dlt` has of a dead key, in order."""

    records: tuple[Record, ...]
    is_whole: bool  # else some are gone


class Failure(NamedTuple):
    """Why a handler did not handle a record."""

    kind: EnumFailure
    reason: str


class Alert(NamedTuple):
    """Something for people; told once while it lasts."""

    name: str
    message: str

"""Personal data in fields: encrypted before they leave, and hidden where nobody needs them.

A field whose schema says `pii: high` is encrypted on its own, under its tenant's key. What it
becomes is a text that names its place:

    sealed:v1:<tenant>:<topic>:<event id>:<field>:<ciphertext>

The place is bound to the ciphertext. In an event it must be the event's own, so that nobody moves a
value to where it means something else. Where a projection or a snapshot shows the field, it still
says where it came from, which is what a reader needs to open it. For everybody else the text is a
value like any other: it is folded, kept and compared as it is, with its key or without.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import tink
from tink import aead

from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.base.telemetry import REDACTED
from onex_platform.domain.headers import PiiLevel, steps_of
from onex_platform.records.key_folder import TENANTS, DestroyedKeyError, KeyFolder

_MARK = "sealed:v1:"
# Tink writes the key's id in front of a ciphertext, behind one byte.
_KEY_ID = slice(1, 5)


class UnreadableFieldError(OnexError):
    """A sealed value can't be opened here; the message names its key."""


class EnumAudience(StrEnum):
    """Who sees a document: topics of met, aud and log and the logs, or a person at a screen."""

    TELEMETRY = "telemetry"
    SCREEN = "screen"


_HIDDEN: Mapping[EnumAudience, frozenset[PiiLevel]] = {
    EnumAudience.TELEMETRY: frozenset({"low", "high"}),
    EnumAudience.SCREEN: frozenset({"high"}),
}


class Place(NamedTuple):
    """Where a value belongs; nobody can open it anywhere else."""

    tenant: str
    topic: str
    event_id: str
    field: str

    def bound(self) -> bytes:
        return json.dumps(self).encode()


class Sealed(NamedTuple):
    """An encrypted value, taken apart."""

    place: Place
    ciphertext: bytes

    @property
    def key_id(self) -> int:
        return int.from_bytes(self.ciphertext[_KEY_ID], "big")

    def __str__(self) -> str:
        names = ":".join(quote(part, safe="") for part in self.place)
        return f"{_MARK}{names}:{base64.urlsafe_b64encode(self.ciphertext).decode()}"


def parse_sealed(value: Any) -> Sealed | None:
    """The encrypted value in a field; None if it is a plain one."""
    if not isinstance(value, str) or not value.startswith(_MARK):
        return None
    *names, encoded = value.removeprefix(_MARK).split(":")
    try:
        return Sealed(Place(*map(unquote, names)), _decoded(encoded))
    except (TypeError, ValueError):  # too few names, or no base64: somebody's own text
        return None


def _decoded(encoded: str) -> bytes:
    return base64.b64decode(encoded, altchars=b"-_", validate=True)


class FieldCipher:
    """Encrypts and opens fields with the keys of a folder."""

    def __init__(self, keys: KeyFolder) -> None:
        self._keys = keys
        self._opened = lru_cache(maxsize=1000)(self._read)

    def protected(
        self, event: Mapping[str, Any], levels: Mapping[str, PiiLevel], topic: str, tenant: str
    ) -> dict[str, Any]:
        """The event's envelope with every high field encrypted; one that is so stays as it is.

        A tenant whose key was destroyed has no private values any more: they are hidden.
        """

        def seal(value: Any, field: str) -> Any:
            if value is None or parse_sealed(value) is not None:
                return value
            place = Place(tenant, topic, str(event["event_id"]), field)
            try:
                key = self._aead(tenant)
            except DestroyedKeyError:
                return REDACTED
            return str(Sealed(place, key.encrypt(json.dumps(value).encode(), place.bound())))

        return _changed(event, levels, frozenset({"high"}), seal)

    def opened(self, value: Any, place: Place | None = None) -> Any:
        """A field's value in clear; `place` is where it must have been sealed for, if known."""
        sealed = parse_sealed(value)
        if sealed is None:
            return value
        if place is not None and sealed.place != place:
            raise UnreadableFieldError(
                f"{place.field} of event {place.event_id} was sealed for {sealed.place.field} of "
                f"event {sealed.place.event_id} on {sealed.place.topic}.",
                hint="Somebody moved it here; its sender knows what belongs here.",
            )
        try:
            key = self._aead(sealed.place.tenant)
            return json.loads(key.decrypt(sealed.ciphertext, sealed.place.bound()))
        except (tink.TinkError, DestroyedKeyError, ConfigurationError) as error:
            said = error.message if isinstance(error, OnexError) else "It is not known here."
            raise UnreadableFieldError(
                f"{sealed.place.field} needs key id {sealed.key_id} of tenant "
                f"{sealed.place.tenant!r}. {said}",
                hint="`onex keys list` shows the keys that there are.",
            ) from None

    def revealed(self, document: Any) -> tuple[Any, list[str]]:
        """A document with everything in clear that can be opened here, wherever it was sealed, and
        why the rest stays as it is."""
        if isinstance(document, Mapping):
            items = {name: self.revealed(item) for name, item in document.items()}
            return {name: item for name, (item, _) in items.items()}, _all(items.values())
        if isinstance(document, list | tuple):
            parts = [self.revealed(item) for item in document]
            return [item for item, _ in parts], _all(parts)
        try:
            return self.opened(document), []
        except UnreadableFieldError as error:
            return document, [error.message]

    def _aead(self, tenant: str) -> aead.Aead:
        """The tenant's key as it is now: rotated or destroyed elsewhere, it is so here at once."""
        return self._opened(tenant, self._keys.changed_at(TENANTS, tenant))

    def _read(self, tenant: str, _changed_at: int | None) -> aead.Aead:
        return self._keys.read(TENANTS, tenant).primitive(aead.Aead)


def _all(parts: Iterable[tuple[Any, list[str]]]) -> list[str]:
    return [reason for _, reasons in parts for reason in reasons]


def redacted(
    document: Mapping[str, Any], levels: Mapping[str, PiiLevel], audience: EnumAudience
) -> dict[str, Any]:
    """The document without the fields that the audience must not see."""
    return _changed(
        document,
        levels,
        _HIDDEN[audience],
        lambda value, _: value if value is None else REDACTED,
    )


def _changed(
    document: Mapping[str, Any],
    levels: Mapping[str, PiiLevel],
    chosen: frozenset[PiiLevel],
    change: Callable[[Any, str], Any],
) -> dict[str, Any]:
    """The document with the values changed at the paths of some levels."""
    changed = dict(document)
    for path in (path for path, level in levels.items() if level in chosen):
        changed = _at(changed, steps_of(path), partial(_swapped, change, path))
    return changed


def _swapped(change: Callable[[Any, str], Any], path: str, value: Any) -> Any:
    return change(value, path)


def _at(value: Any, steps: list[str | None], change: Callable[[Any], Any]) -> Any:
    """The value, changed where the steps lead, and nowhere else. A path does not count the items of
    lists: every one of them is gone through."""
    if isinstance(value, list):
        return [_at(item, steps, change) for item in value]
    if not steps:
        return change(value)
    if not isinstance(value, Mapping):
        return value
    step, *rest = steps
    return {
        name: _at(item, rest, change) if step is None or step == name else item
        for name, item in value.items()
    }

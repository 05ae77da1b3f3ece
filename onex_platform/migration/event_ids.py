"""What identifies an event on two topics. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

# On a copy of a record that has no id of its own: the lift changes what the id was made of.
EVENT_ID = "x-event-id"
_CLOUD_EVENT_ID = "ce_id"

Headers = Sequence[tuple[str, bytes | str | None]]


class _Envelope(msgspec.Struct):
    event_id: str = ""


_DECODER = msgspec.json.Decoder(_Envelope)


def event_id_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | str | None]] | None
) -> str:
    """The id in the headers, else in the envelope, else one made of the record's bytes."""
    own = {name: content for name, content in headers or () if content}
    for name in (EVENT_ID, _CLOUD_EVENT_ID):
        if name in own:
            return _text(own[name])
    return _envelope_id(value) or _digest(key, value)


def id_to_add(key: bytes | None, value: bytes | None, headers: Headers) -> list[tuple[str, str]]:
    """The header with the id of a record that does not say it: what it is made of may change on
    the way to another topic."""
    says_it = any(name in (EVENT_ID, _CLOUD_EVENT_ID) and content for name, content in headers)
    if says_it or _envelope_id(value):
        return []
    return [(EVENT_ID, _digest(key, value))]


def _envelope_id(value: bytes | None) -> str:
    try:
        return _DECODER.decode(value or b"").event_id
    except msgspec.MsgspecError:
        return ""


def _digest(key: bytes | None, value: bytes | None) -> str:
    content = hashlib.sha256()
    for part in (key, value):
        content.update(b"-" if part is None else len(part).to_bytes(8) + part)
    return f"sha256:{content.hexdigest()}"


def _text(content: bytes | str | None) -> str:
    return content if isinstance(content, str) else (content or b"").decode(errors="replace")

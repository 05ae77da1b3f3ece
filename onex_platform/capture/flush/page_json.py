"""A page's metadata by 001's names: as JSON in pages and index entries, as text on objects.

Every place that keeps metadata takes it from here, so that an index can be rebuilt from the objects
and a page from either. Object stores take ASCII only, and less than 2 KB of it: what has no room
there is read from the page's own header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, get_type_hints
from urllib.parse import quote, unquote

import msgspec

from onex_platform.capture.captured_events import FORMAT_VERSION, PageEntry, PageInfo, WriterRange
from onex_platform.capture.errors import PageFormatError

ATTRIBUTE_BYTES = 2000
# The names of PageInfo's plain fields in 001; the fields that are lists or maps follow.
_PLAIN = {
    "page_id": "page_id",
    "tenant": "tenant",
    "page_sequence": "page_sequence",
    "start_time_us": "start_time",
    "end_time_us": "end_time",
    "event_count": "event_count",
    "page_size_bytes": "page_size_bytes",
    "format": "format",
    "format_version": "format_version",
    "compression": "compression",
    "reason": "reason",
}
_OPTIONAL = ("writers", "tags", "replaces", "writer_id")
_LEGIBLE = '":,[]{}'  # not escaped on objects; blanks are, since signatures merge them
_VERSION = re.compile(r"v(\d+)")


def info_to_json(info: PageInfo) -> dict[str, Any]:
    """Metadata as values that JSON can hold."""
    return {name: getattr(info, field) for field, name in _PLAIN.items()} | {
        "writer_id": info.writer_id,
        "writers": [list(astuple(span)) for span in info.writers],
        "tags": dict(sorted(info.tags.items())),
        "replaces": list(info.replaces),
    }


def info_schema() -> dict[str, Any]:
    """What `info_to_json` gives, as a JSON Schema."""
    hints = get_type_hints(PageInfo)
    text = {"type": "string"}
    properties: dict[str, Any] = {
        name: {"type": "integer"} if hints[field] is int else text for field, name in _PLAIN.items()
    } | {
        "writer_id": text,
        "writers": _list_of(_list_of({"type": ["string", "integer"]})),
        "tags": {"type": "object", "additionalProperties": text},
        "replaces": _list_of(text),
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def info_from_json(values: Mapping[str, Any]) -> PageInfo:
    """Metadata that `info_to_json` wrote, in this or an older version."""
    require_readable(values.get("format_version", ""))
    try:
        return PageInfo(
            **{field: values[name] for field, name in _PLAIN.items()},
            writers=tuple(WriterRange(*span) for span in values["writers"]),
            tags=dict(values["tags"]),
            replaces=tuple(values["replaces"]),
        )
    except (KeyError, TypeError) as error:
        raise PageFormatError(f"The metadata is no page's: {error!r}.") from None


def entry_to_json(entry: PageEntry) -> dict[str, Any]:
    """An index entry, by 001's names."""
    return info_to_json(entry.info) | {
        "page_key": entry.key,
        "storage_size_bytes": entry.storage_size_bytes,
        "checksum": entry.checksum,
    }


def entry_from_json(values: Mapping[str, Any]) -> PageEntry:
    """What `entry_to_json` wrote."""
    info = info_from_json(values)
    try:
        return PageEntry(info, values["page_key"], values["storage_size_bytes"], values["checksum"])
    except KeyError as error:
        raise PageFormatError(f"The entry of the page {info.page_id} lacks {error}.") from None


def encode_entry(entry: PageEntry) -> bytes:
    """An index entry for servers that keep bytes or text."""
    return msgspec.json.encode(entry_to_json(entry))


def decode_entry(data: bytes | str) -> PageEntry:
    """What `encode_entry` wrote."""
    return entry_from_json(msgspec.json.decode(data))


def info_to_attributes(info: PageInfo, checksum: str) -> dict[str, str]:
    """Metadata for the object: ASCII, below 2 KB. The list of writers, tags and replaced pages
    are left out, the longest first, until the rest fits."""
    values = info_to_json(info) | {"checksum": checksum}
    texts = {name: _text(value) for name, value in values.items()}
    optional = sorted(_OPTIONAL, key=lambda name: len(texts[name]))
    while sum(len(name) + len(text) for name, text in texts.items()) > ATTRIBUTE_BYTES:
        del texts[optional.pop()]
    return texts


def entry_from_attributes(key: str, size: int, attributes: Mapping[str, str]) -> PageEntry | None:
    """A page's entry from its object; none if it is no page or some had no room there: then the
    page's own header has it."""
    names = (*_PLAIN.values(), *_OPTIONAL, "checksum")
    try:
        values = {
            name: msgspec.json.decode(unquote(attributes[name]))
            for name in names
            if name in attributes
        }
        return entry_from_json(values | {"page_key": key, "storage_size_bytes": size})
    except (msgspec.DecodeError, PageFormatError):
        return None


def require_readable(version: str) -> None:
    """Raise for a format version that is newer than ours, or none at all."""
    match, ours = _VERSION.fullmatch(version), int(FORMAT_VERSION[1:])
    if match is None:
        raise PageFormatError(f"The page's format version is {version!r}, which is none.")
    if int(match[1]) > ours:
        raise PageFormatError(
            f"The page's format version is {version}; this release reads up to {FORMAT_VERSION}.",
            hint="Read it with the release that wrote it, or a newer one.",
        )


def _text(value: Any) -> str:
    return quote(msgspec.json.encode(value), safe=_LEGIBLE)

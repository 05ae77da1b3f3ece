"""Where a page lies in the store: 001's key template, made safe and unique.

Writer ids and tenants become one path segment each, whatever they contain. A template without
`{page_id}` gets it before the extension, because times and counters repeat.
"""

from __future__ import annotations

import re
from copy import copy
from datetime import UTC, datetime
from hashlib import sha256
from string import Formatter
from urllib.parse import quote

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_events import PageInfo

DEFAULT_TENANT = "default"
SHARED = "_shared"  # in place of the writer, where several share a page
DEFAULT_TEMPLATE = "snapshots/{year}/{month}/{day}/{writer_id}/{timestamp}_{sequence}"

_TIMES = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "date": "%Y-%m-%d"}
_FIELDS = _TIMES.keys() | {"writer_id", "tenant", "timestamp", "sequence", "page_id"}
_EXTENSION = re.compile(r"\.(?:pb|ndjson|parquet)(?:\.(?:gz|zst))?$")
_LONGEST_SEGMENT = 120  # file systems take 255 bytes; three escaped segments must fit a key as well


class KeyTemplate:
    """A checked template for one page format."""

    def __init__(self, template: str, extension: str) -> None:
        self._tenant_is_named = "{tenant}" in template
        stem = _checked(template, extension)
        self._pattern = stem if "{page_id}" in stem else f"{stem}-{{page_id}}"
        self._extension = extension

    def with_extension(self, extension: str) -> KeyTemplate:
        """The same places for pages of another format."""
        other = copy(self)
        other._extension = extension
        return other

    def key(self, info: PageInfo) -> str:
        """The key of a page, by the time of its first event."""
        start = datetime.fromtimestamp(info.start_time_us / 1_000_000, UTC)
        key = self._pattern.format(
            **{name: start.strftime(form) for name, form in _TIMES.items()},
            writer_id=path_segment(info.writer_id) if info.writer_id else SHARED,
            tenant=path_segment(info.tenant),
            timestamp=info.start_time_us,
            sequence=info.page_sequence,
            page_id=info.page_id,
        )
        if info.tenant != DEFAULT_TENANT and not self._tenant_is_named:
            key = f"{path_segment(info.tenant)}/{key}"
        return f"{key}.{self._extension}"


def path_segment(name: str) -> str:
    """A name as one path segment: no slash, no dots that lead elsewhere, not too long."""
    escaped = quote(name, safe="").replace("~", "%7E")
    if not escaped.strip("."):
        escaped = escaped.replace(".", "%2E")
    if escaped.startswith("_"):
        escaped = "%5F" + escaped[1:]  # ours begin with it
    if len(escaped) > _LONGEST_SEGMENT:
        digest = sha256(name.encode()).hexdigest()[:16]
        escaped = f"{escaped[: _LONGEST_SEGMENT - 17].rstrip('%')}-{digest}"
    return escaped


def _checked(template: str, extension: str) -> str:
    """The template without its extension, once it is known to be harmless."""
    try:
        fields = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise _refused(template, str(error)) from None
    if unknown := sorted(fields - _FIELDS):
        known = ", ".join(sorted(_FIELDS))
        raise _refused(template, f"{{{unknown[0]}}} is not one of {known}")
    if any(spec or conversion for _, _, spec, conversion in Formatter().parse(template)):
        raise _refused(template, "values are not formatted further")
    if "\\" in template or any(part in {"", ".", ".."} for part in template.split("/")):
        raise _refused(template, "it could lead out of its prefix")
    if not template.isprintable():
        raise _refused(template, "it has control characters")
    named = _EXTENSION.search(template)
    if named and named[0] != f".{extension}":
        raise _refused(template, f"it says {named[0]}, and the pages are .{extension}")
    return template[: named.start()] if named else template


def _refused(template: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"storage.config.key_template {template!r} can't be used: {reason}.",
        hint=f"A template that works: {DEFAULT_TEMPLATE!r}.",
    )

"""Headers of a record: their names, how they are read, and whether they fit the record.

Names and verdicts only: who puts headers on is `onex_platform.records`, what a contract asks of
them is in `topics.contract`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

# Specification 004's nine, which every record carries.
SCHEMA_VERSION = "x-schema-version"
CORRELATION_ID = "x-correlation-id"
TRACE_ID = "x-trace-id"
ACTOR = "x-actor"
TENANT = "x-tenant"
SCOPE = "x-scope"
ORIGIN = "x-origin"
ENCRYPTION_SCHEME = "x-encryption-scheme"
PII_LEVEL = "x-pii-level"
MINIMUM = (
    SCHEMA_VERSION,
    CORRELATION_ID,
    TRACE_ID,
    ACTOR,
    TENANT,
    SCOPE,
    ORIGIN,
    ENCRYPTION_SCHEME,
    PII_LEVEL,
)
# 004 keeps the region out of topic names; W3C has the name of the other.
REGION = "x-region"
TRACEPARENT = "traceparent"

# Of topics whose contract says `signed`.
PAYLOAD_SHA256 = "x-payload-sha256"
SIGNATURE_ALGORITHM = "x-sig-alg"
SIGNATURE = "x-sig"

# Of `rty` and `dlt`: what failed how often, and when it is tried again.
FAILURE_CLASS = "x-failure-class"
FAILURE_REASON = "x-failure-reason"
ATTEMPT = "x-attempt"
FIRST_SEEN = "x-first-seen-ts"
LAST_SEEN = "x-last-seen-ts"
NEXT_AT = "x-next-at"
# Whose failure it is, and where the record came from.
GROUP = "x-consumer-group"
SOURCE_TOPIC = "x-source-topic"
SOURCE_PARTITION = "x-source-partition"
SOURCE_OFFSET = "x-source-offset"

# A name may come twice, or without a value.
Headers = Sequence[tuple[str, bytes | None]]

MOST_BYTES = 4096  # of one header; whoever needs more has a payload for it
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOTHING = re.compile(r"0+")
_REFUSED_VERSION = "ff"


class Trace(NamedTuple):
    """Where a record stands in a trace, as W3C counts: 32 and 16 hexadecimal digits."""

    trace_id: str
    span_id: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


def trace_of(correlation_id: UUID, event_id: UUID) -> Trace:
    """The trace of an event that continues none: whoever sends it again names the same one."""
    return Trace(correlation_id.hex, f"{event_id.int >> 64:016x}")


def parse_traceparent(text: str | None) -> Trace | None:
    """The trace that a `traceparent` names; None if it is none, for which a new one begins."""
    found = None if text is None else _TRACEPARENT.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, span_id, _, more = found.groups()
    if version == _REFUSED_VERSION or (version == "00" and more):
        return None
    if _NOTHING.fullmatch(trace_id) or _NOTHING.fullmatch(span_id):
        return None
    return Trace(trace_id, span_id)


def text_of(headers: Headers, name: str) -> str | None:
    """What the last header of this name says; None if there is none that can be read."""
    for key, value in reversed(headers):
        if key == name:
            return readable(value)
    return None


def readable(value: bytes | None) -> str | None:
    """A header's value as text; None, as if it were absent, if it is too long or no text."""
    if value is None:
        return ""
    if len(value) > MOST_BYTES:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def unreadable(headers: Headers, names: Iterable[str]) -> list[str]:
    """Of some names, those whose last header can't be read."""
    last = dict(headers)
    return [name for name in names if name in last and readable(last[name]) is None]

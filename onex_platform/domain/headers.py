"""Headers of a record: their names, how they are read, and whether they fit the record.

Names and verdicts only: who puts headers on is `onex_platform.records`, what a contract asks of
them is in `topics.contract`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple, get_args
from urllib.parse import unquote
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
# On records of snapshot topics: the version of the row.
SNAPSHOT_VERSION = "snapshot_version"
SOURCE_TOPIC = "x-source-topic"
SOURCE_PARTITION = "x-source-partition"
SOURCE_OFFSET = "x-source-offset"
# Of the original, which no record of the other topic holds.
OMITTED_BYTES = "x-omitted-bytes"

# On a sample that the platform sends to see whether a topic is read: readers pass it by.
CANARY = "x-canary"

PiiLevel = Literal["none", "low", "high"]
PII_LEVELS: tuple[PiiLevel, ...] = get_args(PiiLevel)

# A name may come twice, or without a value.
Headers = Sequence[tuple[str, bytes | None]]

MOST_BYTES = 4096  # of one header; whoever needs more has a payload for it
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOTHING = re.compile(r"0+")
_REFUSED_VERSION = "ff"


def is_sample(headers: Headers | None) -> bool:
    """Whether a record with these headers is a canary's sample."""
    return any(name == CANARY for name, _ in headers or ())


class Trace(NamedTuple):
    """Where a record stands in a trace, as W3C counts: 32 and 16 hexadecimal digits."""

    trace_id: str
    span_id: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


def trace_of(correlation_id: UUID, event_id: UUID) -> Trace:
    """The trace of an event that continues none: whoever sends it again names the same one."""
    return Trace(correlation_id.hex, event_id.hex[:16])


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


# A step of a field's path that stands for every entry of a map, whatever its name.
EVERY_ENTRY = "*"
_ESCAPED = str.maketrans({".": "%2E", "*": "%2A", "%": "%25"})


def path_below(path: str, name: str) -> str:
    """The path of a field of this name. What would be read as a path's own signs is escaped."""
    return _joined(path, name.translate(_ESCAPED))


def path_of_entries(path: str) -> str:
    """The path of all values of the map at a path."""
    return _joined(path, EVERY_ENTRY)


def _joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step


def steps_of(path: str) -> list[str | None]:
    """A path's names, from the outermost inwards; None stands for every entry of a map."""
    return [None if step == EVERY_ENTRY else unquote(step) for step in path.split(".")]


def field_name(path: str) -> str:
    """The name of the field at a path; of entries, the name of their map."""
    return next((name for name in reversed(steps_of(path)) if name is not None), "")


@dataclass(frozen=True)
class PublishRules:
    """What a topic's contract asks of whoever publishes there.

    `private_fields` are the levels of fields by path; `telemetry` marks met, aud and log.
    """

    topic: str
    private_fields: Mapping[str, PiiLevel] = field(default_factory=dict)
    signed: bool = False
    telemetry: bool = False

    @cached_property
    def pii_level(self) -> PiiLevel:
        """The highest level of any field."""
        return max(self.private_fields.values(), key=PII_LEVELS.index, default="none")


class EnumOnRead(StrEnum):
    """What becomes of a record whose headers are not what its contract asks for."""

    IGNORE = "ignore"
    COUNT = "count"
    PARK = "park"


class EnumHeaderFinding(StrEnum):
    """What can be wrong about a record that its value does not show."""

    MISSING = "missing_header"
    UNREADABLE = "unreadable_header"
    ACTOR = "actor_is_not_source"
    KEY = "key_is_not_the_field"


@dataclass(frozen=True, slots=True)
class HeaderRules:
    """What a topic's contract asks of the headers and the key of its records.

    `key` is the field that the record's key repeats, `tenant` the one that the topic's name has.
    """

    on_read: EnumOnRead = EnumOnRead.IGNORE
    required: tuple[str, ...] = ()
    key: str | None = None
    signed: bool = False
    tenant: str | None = None


NOTHING_ASKED = HeaderRules()


def examined(rules: HeaderRules) -> tuple[str, ...]:
    """The headers that are read: those that are asked for, and those that say whose event it is."""
    return tuple(dict.fromkeys((*rules.required, ACTOR, TENANT)))


def findings(
    headers: Headers, rules: HeaderRules, *, source: str, key: bytes | None, keyed: str | None
) -> Iterator[tuple[EnumHeaderFinding, str]]:
    """What is wrong with a record's headers, each kind once, and with its key.

    `source` is the envelope's, `keyed` what the value has where the contract takes the key from.
    """
    if rules.on_read is EnumOnRead.IGNORE:
        return
    last = dict(headers)
    texts = {name: readable(last[name]) for name in examined(rules) if name in last}
    missing = [name for name in rules.required if texts.get(name) is None]
    broken = [name for name, text in texts.items() if text is None]
    if missing:
        yield EnumHeaderFinding.MISSING, f"no {', '.join(missing)}"
    if broken:
        yield EnumHeaderFinding.UNREADABLE, f"{', '.join(broken)}: no UTF-8, or too long"
    actor = texts.get(ACTOR)
    if actor is not None and actor != source:
        yield EnumHeaderFinding.ACTOR, f"{ACTOR}={actor[:80]!r} and source={source[:80]!r} differ"
    if rules.key is not None and (keyed is None or key != keyed.encode("utf-8", "surrogatepass")):
        yield EnumHeaderFinding.KEY, f"the key is not what {rules.key} says"


def signed_text(topic: str, key: bytes | None, headers: Headers, payload_sha256: str) -> bytes:
    """What a signature binds: the value by its hash, and all that says who meant it for whom."""
    bound = [text_of(headers, name) for name in (ACTOR, TENANT, SCOPE)]
    return json.dumps([topic, None if key is None else key.hex(), *bound, payload_sha256]).encode()


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

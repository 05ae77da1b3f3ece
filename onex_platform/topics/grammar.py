"""The grammar of topic names: four dialects, told apart by how a name begins.

    onex       onex.<domain>.<entity>.<event>.v<version>
    snapshot   onex.snapshot.<context>.<subject>.v<version>
    namespace  <environment>.<tenant>.<context>.<stream class>.<topic>.v<version>
    legacy     node.<subject>

Every legal name parses under exactly one of them. Pure: which topics exist is the catalogue's
business, not the grammar's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, Self

from onex_platform.base.errors import ConfigurationError

MAX_LENGTH = 249  # Kafka's own limit; a partition's folder name must fit into 255 bytes
_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class EnumTopicDialect(StrEnum):
    ONEX = "onex"
    NAMESPACE = "namespace"
    SNAPSHOT = "snapshot"
    LEGACY = "legacy"


class Segment(NamedTuple):
    """One part of a name between two dots: what it is called, what it may be, in words too."""

    label: str
    pattern: str
    allowed: str


def _one_of(label: str, *words: str) -> Segment:
    return Segment(label, "|".join(words), f"one of {', '.join(words)}")


def _snake(label: str) -> Segment:
    return Segment(label, r"[a-z][a-z0-9]*(_[a-z0-9]+)*", "lower-case words joined by '_'")


def _kebab(label: str) -> Segment:
    return Segment(label, r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case words joined by '-'")


_VERSION = Segment("version", r"v[1-9][0-9]*", "v1, v2, …")


@dataclass(frozen=True)
class _Name:
    """What the dialects share: the fields are the name's segments after `prefix`, in order."""

    dialect: ClassVar[EnumTopicDialect]
    prefix: ClassVar[tuple[str, ...]]
    segments: ClassVar[tuple[Segment, ...]]

    def __str__(self) -> str:
        words = (f"v{part}" if isinstance(part, int) else part for part in astuple(self))
        return ".".join((*self.prefix, *words))

    @classmethod
    def form(cls) -> str:
        """How a name of this dialect is built, for people."""
        return ".".join((*cls.prefix, *(f"<{segment.label}>" for segment in cls.segments)))

    @classmethod
    def read(cls, name: str) -> Self:
        parts = name.split(".")
        if len(parts) != len(cls.prefix) + len(cls.segments):
            raise _broken(name, f"has {len(parts)} parts; the {cls.dialect} form is {cls.form()}")
        fields: list[str | int] = []
        for word, segment in zip(parts[len(cls.prefix) :], cls.segments, strict=True):
            if not re.fullmatch(segment.pattern, word):
                raise _broken(name, f"has {segment.label} {word!r}; allowed: {segment.allowed}")
            fields.append(int(word[1:]) if segment is _VERSION else word)
        return cls(*fields)


@dataclass(frozen=True)
class OnexName(_Name):
    """An event topic of the platform."""

    domain: str
    entity: str
    event: str
    version: int

    dialect = EnumTopicDialect.ONEX
    prefix = ("onex",)
    segments = (_snake("domain"), _snake("entity"), _snake("event"), _VERSION)

    @property
    def event_kind(self) -> str:
        """The name without platform and version: what its events say."""
        return f"{self.domain}.{self.entity}.{self.event}"


@dataclass(frozen=True)
class SnapshotName(_Name):
    """A compacted topic that holds the latest state per entity."""

    context: str
    subject: str
    version: int

    dialect = EnumTopicDialect.SNAPSHOT
    prefix = ("onex", "snapshot")
    segments = (_kebab("context"), _kebab("subject"), _VERSION)


def snapshot_subject(domain: str) -> str:
    """What the snapshot topic of a domain is about, in its name."""
    return f"{domain.replace('_', '-')}-snapshots"


@dataclass(frozen=True)
class NamespaceName(_Name):
    """A topic of the company-wide namespace, which carries environment and tenant."""

    environment: str
    tenant: str
    context: str
    stream_class: str
    topic: str
    version: int

    dialect = EnumTopicDialect.NAMESPACE
    prefix = ()
    segments = (
        _one_of("environment", "dev", "stage", "prod", "sand", "test"),
        _kebab("tenant"),
        _kebab("context"),
        _one_of(
            "stream class", "evt", "cmd", "qrs", "ctl", "dlt", "rty", "cdc", "met", "aud", "log"
        ),
        _kebab("topic"),
        _VERSION,
    )


@dataclass(frozen=True)
class LegacyName(_Name):
    """A name from before the convention: no version, kept until its producers have moved."""

    subject: str

    dialect = EnumTopicDialect.LEGACY
    prefix = ("node",)
    segments = (_snake("subject"),)


TopicName = OnexName | SnapshotName | NamespaceName | LegacyName


def parse(name: str) -> TopicName:
    """The parts of `name`; a name outside the grammar is refused with the rule that it breaks."""
    require_legal(name)
    return _dialect_of(name).read(name)


def require_legal(name: str) -> None:
    """Refuse what no Kafka broker accepts as a topic name."""
    if not name or name in (".", ".."):
        raise _broken(name, "is empty or a folder; Kafka needs a real name")
    if len(name) > MAX_LENGTH:
        raise _broken(name, f"has {len(name)} characters; Kafka allows {MAX_LENGTH}")
    if not _KAFKA_NAME.fullmatch(name):
        raise _broken(name, "has characters that Kafka forbids; allowed: a-z, A-Z, 0-9, '.-_'")


def collisions(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of names that Kafka's metrics can't tell apart, since '.' and '_' are one to them."""
    groups: dict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[name.replace(".", "_")].add(name)
    return sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1)


def _dialect_of(name: str) -> type[TopicName]:
    first, _, rest = name.partition(".")
    if first == "onex":
        return SnapshotName if rest.split(".")[0] == SnapshotName.prefix[1] else OnexName
    if first == LegacyName.prefix[0]:
        return LegacyName
    if re.fullmatch(NamespaceName.segments[0].pattern, first):
        return NamespaceName
    forms = "; ".join(
        dialect.form() for dialect in (OnexName, SnapshotName, NamespaceName, LegacyName)
    )
    raise _broken(name, f"begins with {first!r}, which no dialect does; the forms are {forms}")


def _broken(name: str, rule: str) -> ConfigurationError:
    shown = name if len(name) <= MAX_LENGTH else f"{name[:60]}…"
    return ConfigurationError(
        f"Topic name {shown!r} {rule}.", hint="docs/topics.md explains the grammar."
    )

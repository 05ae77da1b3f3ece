"""The grammar of topic names: four dialects, told apart by how a name begins.

    onex       [<tenant>.]onex.<domain>.<entity>.<event>.v<version>
    snapshot   [<tenant>.]onex.snapshot.<context>.<subject>.v<version>
    namespace  <environment>.<tenant>.<context>.<stream class>.<topic>.v<version>
    legacy     node.<subject>

Every legal name parses under exactly one of them: no tenant is called like an environment or like
the first word of a dialect. Pure: which topics exist is the catalogue's business, not the
grammar's.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, NamedTuple, Self

from onex_platform.base.errors import ConfigurationError

MAX_LENGTH = 249  # Kafka's own limit; a partition's folder name must fit into 255 bytes
ENVIRONMENTS = ("dev", "stage", "prod", "sand", "test")
STREAM_CLASSES = ("evt", "cmd", "qrs", "ctl", "dlt", "rty", "cdc", "met", "aud", "log")
# A tenant of such a name would make a name of two dialects.
NOT_FOR_TENANTS = frozenset({*ENVIRONMENTS, "onex", "node"})
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
    words: tuple[str, ...] = ()  # a closed vocabulary, for suggestions


def suggestion(word: str, vocabulary: Collection[str]) -> str:
    """The right word that is meant, as the end of a sentence; nothing if none is near."""
    near = difflib.get_close_matches(word, vocabulary, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _one_of(label: str, words: tuple[str, ...]) -> Segment:
    return Segment(label, "|".join(words), f"one of {', '.join(words)}", words)


def _snake(label: str) -> Segment:
    return Segment(label, r"[a-z][a-z0-9]*(_[a-z0-9]+)*", "lower-case words joined by '_'")


def _kebab(label: str) -> Segment:
    return Segment(label, r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case words joined by '-'")


_VERSION = Segment("version", r"v[1-9][0-9]*", "v1, v2, …")
_TENANT = Segment(
    "tenant",
    rf"(?!({'|'.join(sorted(NOT_FOR_TENANTS))})$)[a-z0-9]+(-[a-z0-9]+)*",
    "lower-case words joined by '-', but no environment and no dialect's first word",
)


@dataclass(frozen=True)
class _Name:
    """What the dialects share: the fields are the name's segments after `prefix`, in order."""

    dialect: ClassVar[EnumTopicDialect]
    prefix: ClassVar[tuple[str, ...]]
    segments: ClassVar[tuple[Segment, ...]]

    def __str__(self) -> str:
        return ".".join((*self._before(), *self.prefix, *self._words()))

    @classmethod
    def form(cls) -> str:
        """How a name of this dialect is built, for people."""
        return ".".join((*cls.prefix, *(f"<{segment.label}>" for segment in cls.segments)))

    @classmethod
    def read(cls, parts: list[str], name: str) -> Self:
        """The name whose parts these are; `name` is the whole, for the refusal."""
        if len(parts) != len(cls.prefix) + len(cls.segments):
            count = name.count(".") + 1
            raise broken(name, f"has {count} parts; the {cls.dialect} form is {cls.form()}")
        fields = {}
        for word, segment in zip(parts[len(cls.prefix) :], cls.segments, strict=True):
            require_word(word, segment, name)
            fields[segment.label.replace(" ", "_")] = int(word[1:]) if segment is _VERSION else word
        return cls(**fields)

    def _words(self) -> list[str]:
        fields = [getattr(self, segment.label.replace(" ", "_")) for segment in self.segments]
        return [f"v{word}" if isinstance(word, int) else word for word in fields]

    def _before(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class _TenantName(_Name):
    """A dialect whose names may be one tenant's: then the tenant stands before them."""

    tenant: str | None = field(default=None, kw_only=True)

    def _before(self) -> tuple[str, ...]:
        return () if self.tenant is None else (self.tenant,)


@dataclass(frozen=True)
class OnexName(_TenantName):
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
class SnapshotName(_TenantName):
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
        _one_of("environment", ENVIRONMENTS),
        _TENANT,
        _kebab("context"),
        _one_of("stream class", STREAM_CLASSES),
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


@dataclass(frozen=True)
class StreamName(_Name):
    """A namespace name without environment and tenant: what one contract is about."""

    context: str
    stream_class: str
    topic: str
    version: int

    dialect = EnumTopicDialect.NAMESPACE
    prefix = ()
    segments = NamespaceName.segments[2:]

    def within(self, environment: str, tenant: str) -> NamespaceName:
        return NamespaceName(
            environment, tenant, self.context, self.stream_class, self.topic, self.version
        )


# What a broker calls a topic, and what its contract does: the same but for environment and tenant.
TopicName = OnexName | SnapshotName | NamespaceName | LegacyName
LogicalName = OnexName | SnapshotName | StreamName | LegacyName


def parse(name: str) -> TopicName:
    """The parts of `name`; a name outside the grammar is refused with the rule that it breaks."""
    require_legal(name)
    parts = name.split(".")
    if len(parts) > 1 and parts[1] == "onex" and parts[0] not in NOT_FOR_TENANTS:
        require_word(parts[0], _TENANT, name)
        return replace(_onex_dialect(parts[1:]).read(parts[1:], name), tenant=parts[0])
    return _dialect_of(parts, name).read(parts, name)


def parse_logical(name: str) -> LogicalName:
    """The name that a contract gives its topic, without environment and tenant."""
    require_legal(name)
    parts = name.split(".")
    if len(parts) == len(StreamName.segments) and (
        parts[0] not in ("onex", "node") or parts[1] in STREAM_CLASSES
    ):
        return StreamName.read(parts, name)
    found = parse(name)
    if isinstance(found, NamespaceName) or getattr(found, "tenant", None) is not None:
        raise broken(name, "names a tenant; a contract is one for all, so leave it out")
    return found


def logical(name: TopicName) -> LogicalName:
    """The contract's name of a broker's topic."""
    if isinstance(name, NamespaceName):
        return StreamName(name.context, name.stream_class, name.topic, name.version)
    return name if isinstance(name, LegacyName) else replace(name, tenant=None)


def physical(name: LogicalName, *, environment: str, tenant: str, home: str) -> TopicName:
    """The broker's name of a contract's topic; names of the tenant `home` carry no prefix."""
    if isinstance(name, StreamName):
        return name.within(environment, tenant)
    if tenant == home:
        return name
    if isinstance(name, LegacyName):
        raise broken(str(name), f"is a legacy name, and tenant {tenant!r} has none of those")
    return replace(name, tenant=tenant)


def require_legal(name: str) -> None:
    """Refuse what no Kafka broker accepts as a topic name."""
    if not name or name in (".", ".."):
        raise broken(name, "is empty or a folder; Kafka needs a real name")
    if len(name) > MAX_LENGTH:
        raise broken(name, f"has {len(name)} characters; Kafka allows {MAX_LENGTH}")
    if not _KAFKA_NAME.fullmatch(name):
        raise broken(name, "has characters that Kafka forbids; allowed: a-z, A-Z, 0-9, '.-_'")


def collisions(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of names that Kafka's metrics can't tell apart, since '.' and '_' are one to them."""
    groups: dict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[name.replace(".", "_")].add(name)
    return sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1)


def require_word(word: str, segment: Segment, name: str) -> None:
    """Refuse a part of a name that its segment does not allow."""
    if not re.fullmatch(segment.pattern, word):
        near = suggestion(word, segment.words)
        raise broken(name, f"has {segment.label} {word!r}; allowed: {segment.allowed}{near}")


def _onex_dialect(parts: list[str]) -> type[OnexName | SnapshotName]:
    return SnapshotName if parts[1:2] == [SnapshotName.prefix[1]] else OnexName


def _dialect_of(parts: list[str], name: str) -> type[TopicName]:
    first = parts[0]
    if first == "onex":
        return _onex_dialect(parts)
    if first == LegacyName.prefix[0]:
        return LegacyName
    if first in ENVIRONMENTS:
        return NamespaceName
    forms = "; ".join(
        dialect.form() for dialect in (OnexName, SnapshotName, NamespaceName, LegacyName)
    )
    near = suggestion(first, ("onex", "node", *ENVIRONMENTS))
    raise broken(name, f"begins with {first!r}, which no dialect does; the forms are {forms}{near}")


def broken(name: str, rule: str) -> ConfigurationError:
    """The refusal of a name; `rule` completes the sentence "Topic name … "."""
    shown = name if len(name) <= MAX_LENGTH else f"{name[:60]}…"
    return ConfigurationError(
        f"Topic name {shown!r} {rule}{'' if rule.endswith('?') else '.'}",
        hint="docs/topics explains the grammar.",
    )

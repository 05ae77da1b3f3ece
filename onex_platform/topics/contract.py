"""One topic's contract: the model behind each file in `contracts/topics`, and the rules it obeys.

What a topic is called is the grammar's business, how the contracts fit together the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.grammar import (
    LegacyName,
    OnexName,
    SnapshotName,
    TopicName,
    parse,
    snapshot_subject,
)

DEFAULT_PARTITIONS = 3
# Kafka deletes closed segments only. Without a bound of its own, a segment stays open for a week,
# and records outlive a retention of an hour by as much.
SEGMENTS_PER_RETENTION = 6
_ONE_BROKER = frozenset({"dev", "test"})


class EnumLagCategory(StrEnum):
    HEARTBEATS = "heartbeats"
    INTROSPECTION = "introspection"
    REGISTRY_STATE = "registry_state"
    WORKFLOW = "workflow"
    INFRASTRUCTURE = "infrastructure"


class LagThresholds(NamedTuple):
    """Seconds that a consumer may be behind: fine below the first, an alarm above the last."""

    acceptable: int
    warning: int
    critical: int


LAG_THRESHOLDS = {
    EnumLagCategory.HEARTBEATS: LagThresholds(30, 60, 120),
    EnumLagCategory.INTROSPECTION: LagThresholds(60, 120, 300),
    EnumLagCategory.REGISTRY_STATE: LagThresholds(30, 60, 120),
    EnumLagCategory.WORKFLOW: LagThresholds(120, 300, 600),
    EnumLagCategory.INFRASTRUCTURE: LagThresholds(60, 120, 300),
}

Party = Literal["node", "registry", "orchestrator", "infrastructure", "observability"]


class _EventClass(NamedTuple):
    """Who writes a class of events, and the key that keeps one subject's events in order."""

    kinds: str
    key: str
    producers: frozenset[Party]


# The first that a kind begins with holds.
_EVENT_CLASSES = (
    _EventClass("node.", "node_id", frozenset({"node"})),
    _EventClass("registry.node.", "node_id", frozenset({"registry"})),
    _EventClass("registry.introspection.", "request_id", frozenset({"registry"})),
    _EventClass("registry.workflow.", "workflow_id", frozenset({"registry"})),
    _EventClass("infra.error.", "correlation_id", frozenset({"infrastructure", "registry"})),
    _EventClass("infra.", "service_name", frozenset({"infrastructure", "registry"})),
)
_SNAPSHOT_KEY = "entity_id"


def _iso_duration(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("P")):
        raise ValueError("expected an ISO 8601 duration, such as P7D or PT1H")
    return value


def _unlimited_is_none(value: Any) -> Any:
    return None if value == "unlimited" else _iso_duration(value)


Duration = Annotated[timedelta, Field(gt=timedelta()), BeforeValidator(_iso_duration)]
Retention = Annotated[
    timedelta | None,
    Field(gt=timedelta()),
    BeforeValidator(_unlimited_is_none),
    PlainSerializer(lambda kept: "unlimited" if kept is None else kept, when_used="json"),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Replication(_Part):
    """How many copies a record has, and how many of them must stand before it is acknowledged."""

    factor: int = Field(3, ge=1, le=100)
    min_insync: int = Field(2, ge=1, le=100)

    @model_validator(mode="after")
    def _is_writable(self) -> Self:
        if self.min_insync > self.factor:
            raise ValueError(
                f"min_insync={self.min_insync} is above factor={self.factor}: "
                "no record would ever be acknowledged"
            )
        return self


_ONE_COPY = Replication(factor=1, min_insync=1)


class Compaction(_Part):
    """When Kafka may and must drop what a newer record of the same key replaced."""

    min_lag: Duration
    max_lag: Duration
    segment_size: ByteSize = Field(ge=1024 * 1024, le=2**31 - 1)
    tombstones_stay: Duration

    @model_validator(mode="after")
    def _lags_are_ordered(self) -> Self:
        if self.min_lag > self.max_lag:
            raise ValueError(f"min_lag={self.min_lag} is above max_lag={self.max_lag}")
        return self


class TopicContract(_Part):
    """Everything that is agreed about one topic; a field is documented in docs/topics.md."""

    topic: str
    description: str = Field(min_length=1)
    owner: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    category: EnumLagCategory
    producers: tuple[Party, ...] = Field(min_length=1)
    consumers: tuple[Party, ...] = Field(min_length=1)
    key: str = Field(pattern=r"^[a-z]+(_[a-z]+)*$")
    partitions: int = Field(ge=1, le=1000)
    partitions_reason: str | None = Field(None, min_length=1)
    retention: Retention
    cleanup_policy: Literal["delete", "compact"]
    timestamp_type: Literal["LogAppendTime", "CreateTime"]
    registration_input: bool
    replication: Replication = Replication()
    compaction: Compaction | None = None
    max_message: ByteSize | None = Field(None, ge=1024 * 1024, le=32 * 1024 * 1024)
    legacy_of: str | None = None
    snapshot_of: str | None = Field(None, pattern=r"^[a-z]+(_[a-z]+)*$")

    @cached_property
    def name(self) -> TopicName:
        return parse(self.topic)

    @cached_property
    def canonical_name(self) -> TopicName:
        """The name itself, or of a legacy topic the one that replaces it."""
        return parse(self.legacy_of or self.topic)

    @property
    def event_kind(self) -> EnumEventKind | None:
        """What the topic's events say; a legacy topic's are its twin's, a snapshot is no event."""
        name = self.canonical_name
        return EnumEventKind(name.event_kind) if isinstance(name, OnexName) else None

    @property
    def warning(self) -> str | None:
        """What to tell whoever still uses a legacy name."""
        if self.legacy_of is None:
            return None
        return f"{self.topic} is a legacy name without a version; use {self.legacy_of} instead."

    @property
    def direction(self) -> str:
        if self.producers == ("node",):
            return "node → registry"
        return "registry → nodes" if "node" in self.consumers else "internal"

    @property
    def lag(self) -> LagThresholds:
        return LAG_THRESHOLDS[self.category]

    @property
    def longest_stay(self) -> timedelta | None:
        """How long Kafka may really keep a record: its segment has to be closed first."""
        return None if self.retention is None else self.retention + self._segment_span()

    def replication_in(self, environment: str) -> Replication:
        """One broker has one copy; every other environment gets what the contract says."""
        return _ONE_COPY if environment in _ONE_BROKER else self.replication

    def kafka_config(self, environment: str) -> dict[str, str]:
        """The topic's settings in Kafka's own names, all explicit, so that drift is visible."""
        config: dict[str, Any] = {
            "cleanup.policy": self.cleanup_policy,
            "retention.ms": -1 if self.retention is None else _ms(self.retention),
            "message.timestamp.type": self.timestamp_type,
            "min.insync.replicas": self.replication_in(environment).min_insync,
        }
        if self.retention is not None:
            config["segment.ms"] = _ms(self._segment_span())
        if self.max_message is not None:
            config["max.message.bytes"] = int(self.max_message)
        if self.compaction is not None:
            config |= {
                "min.compaction.lag.ms": _ms(self.compaction.min_lag),
                "max.compaction.lag.ms": _ms(self.compaction.max_lag),
                "segment.bytes": int(self.compaction.segment_size),
                "delete.retention.ms": _ms(self.compaction.tombstones_stay),
            }
        return {name: str(value) for name, value in config.items()}

    def _segment_span(self) -> timedelta:
        return (self.retention or timedelta()) / SEGMENTS_PER_RETENTION

    @field_validator("topic", "legacy_of")
    @classmethod
    def _is_in_the_grammar(cls, topic: str | None) -> str | None:
        if topic is not None:
            try:
                parse(topic)
            except ConfigurationError as error:
                raise ValueError(error.message) from error
        return topic

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = [*self._broken_event_rules(), *self._broken_storage_rules()]
        if broken:
            raise ValueError("; ".join(broken))
        return self

    def _broken_event_rules(self) -> Iterator[str]:
        if (self.legacy_of is not None) != isinstance(self.name, LegacyName):
            yield f"legacy_of={self.legacy_of!r}: legacy names have it, no other name does"
        if (self.snapshot_of is not None) != isinstance(self.name, SnapshotName):
            yield f"snapshot_of={self.snapshot_of!r}: snapshot names have it, no other name does"
        if isinstance(self.name, SnapshotName):
            yield from self._broken_snapshot_rules(self.name)
        if isinstance(self.canonical_name, OnexName):
            yield from self._broken_kind_rules(self.canonical_name.event_kind)

    def _broken_snapshot_rules(self, name: SnapshotName) -> Iterator[str]:
        if self.key != _SNAPSHOT_KEY:
            yield f"key={self.key!r}: a snapshot's key is {_SNAPSHOT_KEY}"
        if self.snapshot_of is not None and name.subject != snapshot_subject(self.snapshot_of):
            yield (
                f"snapshot_of={self.snapshot_of!r}: its topic is about "
                f"{snapshot_subject(self.snapshot_of)}, not {name.subject}"
            )

    def _broken_kind_rules(self, kind: str) -> Iterator[str]:
        if kind not in set(EnumEventKind):
            yield f"topic={self.topic!r}: the event kind {kind!r} is not in EnumEventKind"
        for event_class in _EVENT_CLASSES:
            if kind.startswith(event_class.kinds):
                if self.key != event_class.key:
                    yield f"key={self.key!r}: {event_class.kinds}* is keyed by {event_class.key}"
                if not event_class.producers.issuperset(self.producers):
                    allowed = ", ".join(sorted(event_class.producers))
                    yield f"producers={list(self.producers)}: {event_class.kinds}* allows {allowed}"
                return
        yield f"topic={self.topic!r}: no keying rule covers the event kind {kind!r}"

    def _broken_storage_rules(self) -> Iterator[str]:
        if (self.partitions == DEFAULT_PARTITIONS) == (self.partitions_reason is not None):
            yield (
                f"partitions={self.partitions}: {DEFAULT_PARTITIONS} is the rule, and every other "
                "count needs partitions_reason"
            )
        compacted = self.cleanup_policy == "compact"
        policy = f"cleanup_policy={self.cleanup_policy!r}"
        if compacted != isinstance(self.name, SnapshotName):
            yield f"{policy}: snapshots are compacted, events are not"
        if compacted != (self.compaction is not None):
            yield f"{policy}: compact needs the field compaction, delete forbids it"
        if compacted != (self.retention is None):
            yield f"{policy}: compact needs retention unlimited, delete forbids it"
        read_by_us = "registry" in self.consumers
        if read_by_us != (self.timestamp_type == "LogAppendTime"):
            yield (
                f"timestamp_type={self.timestamp_type!r}: LogAppendTime where the registry is a "
                "consumer (time is the broker's), CreateTime elsewhere"
            )
        if self.registration_input and not (
            read_by_us and isinstance(self.canonical_name, OnexName)
        ):
            yield "registration_input=True: only for events that the registry consumes"


def read_contract(path: Path) -> TopicContract:
    """The contract in a file; a defect is named with file, field, value and what is allowed."""
    try:
        contract = TopicContract.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _defect(path, f"is not YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        raise _defect(path, "; ".join(_explain(error))) from None
    if path.name != f"{contract.topic}.yaml":
        raise _defect(path, f"topic={contract.topic!r}: the file must be called like its topic")
    return contract


def _explain(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        field = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        value = problem.get("input")
        if problem["type"] == "missing":
            yield f"{field} is missing"
        elif field and not isinstance(value, dict):
            shown = str(value) if isinstance(value, timedelta) else repr(value)
            yield f"{field}={shown}: {message}"
        else:  # a rule about several fields, which names them itself
            yield f"{field}: {message}" if field else message


def _defect(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"Topic contract {path.name}: {what}.", hint=f"Mend {path}; docs/topics.md has the fields."
    )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)

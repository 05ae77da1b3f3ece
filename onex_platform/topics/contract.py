"""One topic's contract: the model behind each `contract.yaml`, and what it means for Kafka.

What a topic is called is the grammar's business, which rules it obeys that of `lint`, how the
contracts fit together the catalogue's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

from pydantic import ByteSize, Field, PrivateAttr, field_validator, model_validator

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import EnumOnRead, HeaderRules, PiiLevel, PublishRules
from onex_platform.topics.fields import Duration, Part, Retention
from onex_platform.topics.grammar import LogicalName, OnexName, StreamName, parse_logical

DEFAULT_PARTITIONS = 3
# Kafka deletes closed segments only. Without a bound of its own, a segment stays open for a week,
# and records outlive a retention of an hour by as much.
SEGMENTS_PER_RETENTION = 6
# Classes that watch others: what is personal in those must not be repeated here.
TELEMETRY = frozenset({"met", "aud", "log"})
LARGEST_RECORD = 32 * 1024 * 1024
# What `rty` and `dlt` take beyond the source's largest record: headers that say how it failed.
FAILURE_ROOM = 8 * 1024
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


class Replication(Part):
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


class Compaction(Part):
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


class Sla(Part):
    """What readers may count on."""

    delivery: Duration  # from the producer's acknowledgement to a reader
    availability: float = Field(gt=0, le=100)  # percent of a month


class Retry(Part):
    """When a failing record is tried again: one topic, a due time per record."""

    topic: str
    tiers: tuple[Duration, ...] = Field(min_length=1)


class Shards(Part):
    """A hot key spread over several: `hash(of) % count` in a header, the real id in the value."""

    of: str
    count: int = Field(ge=2, le=10_000)


class HeaderPolicy(Part):
    """Headers that every record carries, and what becomes of one whose headers are wrong."""

    required: tuple[str, ...] = ()
    on_read: EnumOnRead = EnumOnRead.COUNT
    shards: Shards | None = None


class Deprecation(Part):
    """How the topic ends: the notice that readers get, and the end that has been announced."""

    notice: Duration
    since: date | None = None
    successor: str | None = None

    @property
    def ends(self) -> date | None:
        return None if self.since is None else self.since + self.notice


Compatibility = Literal[
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
]


class TopicContract(Part):
    """Everything that is agreed about one topic; a field is documented in docs/topics."""

    topic: str
    description: str = Field(min_length=1)
    owner: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    category: EnumLagCategory
    producers: tuple[str, ...] = Field(min_length=1)
    consumers: tuple[str, ...] = Field(min_length=1)
    key: str = Field(pattern=r"^[a-z]+(_[a-z]+)*$")
    partitions: int = Field(ge=1, le=1000)
    partitions_reason: str | None = Field(None, min_length=1)
    retention: Retention
    cleanup_policy: Literal["delete", "compact", "compact,delete"]
    timestamp_type: Literal["LogAppendTime", "CreateTime"]
    sla: Sla
    classification: Literal["public", "internal", "confidential", "restricted"]
    compatibility: Compatibility
    deprecation: Deprecation
    registration_input: bool = False
    critical: bool = False
    signed: bool = False
    encryption: Literal["none", "envelope"] = "none"
    tiered_storage: bool = False
    bridge: bool = False
    canary: bool = True
    headers: HeaderPolicy = HeaderPolicy()
    retry: Retry | None = None
    dead_letters: str | None = None
    pair: str | None = None
    table: str | None = Field(None, pattern=r"^[a-z_]+(\.[a-z_]+)?$")
    replication: Replication = Replication()
    compaction: Compaction | None = None
    max_message: ByteSize | None = Field(None, ge=1024 * 1024, le=LARGEST_RECORD)
    legacy_of: str | None = None
    snapshot_of: str | None = Field(None, pattern=r"^[a-z]+(_[a-z]+)*$")
    # Fields by path whose schema has a level above none; the schema says it, not the contract.
    _private_fields: Mapping[str, PiiLevel] = PrivateAttr(default_factory=dict)

    def with_private_fields(self, levels: Mapping[str, PiiLevel]) -> TopicContract:
        """The same contract with the levels that its schema has."""
        contract = self.model_copy()
        contract._private_fields = dict(levels)
        return contract

    @property
    def private_fields(self) -> Mapping[str, PiiLevel]:
        """The level of each field that is personal data, by path."""
        return self._private_fields

    def __copy__(self) -> Self:
        """Copies are made to be changed: what was derived from the fields is derived anew."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @cached_property
    def publish_rules(self) -> PublishRules:
        """What is asked of whoever publishes to the topic."""
        return PublishRules(
            self.topic,
            self._private_fields,
            signed=self.signed,
            telemetry=self.stream_class in TELEMETRY,
        )

    @cached_property
    def name(self) -> LogicalName:
        return parse_logical(self.topic)

    @cached_property
    def canonical_name(self) -> LogicalName:
        """The name itself, or of a legacy topic the one that replaces it."""
        return parse_logical(self.legacy_of or self.topic)

    @property
    def stream_class(self) -> str | None:
        """The class of a namespace topic, whose policy binds it."""
        return self.name.stream_class if isinstance(self.name, StreamName) else None

    @property
    def event_kind(self) -> EnumEventKind | None:
        """What the topic's events say; a legacy topic's are its twin's, a snapshot is no event."""
        name = self.canonical_name
        if isinstance(name, OnexName) and name.event_kind in set(EnumEventKind):
            return EnumEventKind(name.event_kind)
        return None

    @property
    def header_rules(self) -> HeaderRules:
        """What is asked of a record's headers and key by whoever reads the topic."""
        return HeaderRules(
            on_read=self.headers.on_read,
            required=self.headers.required,
            key=self.key,
            signed=self.signed,
            tenant=getattr(self.name, "tenant", None),
        )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

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

    def kafka_config(self, environment: str, *, tiered: bool = False) -> dict[str, str]:
        """The topic's settings in Kafka's own names, all explicit, so that drift is visible.

        `tiered` says whether the environment's clusters have tiered storage.
        """
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
        if tiered and self.tiered_storage:
            config["remote.storage.enable"] = "true"
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
                parse_logical(topic)
            except ConfigurationError as error:
                raise ValueError(error.message) from error
        return topic


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)

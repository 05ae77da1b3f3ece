"""Contracts of nodes: the topics that a node publishes and reads, judged by specification 002's
four rules, and the configuration that a node makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from onex_platform.base.environment import foreign_variables
from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import NodeType
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.documents import Document, Route, read_document
from onex_platform.topics.fields import Part, explain
from onex_platform.topics.grammar import LegacyName, parse, suggestion
from onex_platform.topics.policy import Policy, load_policy

USE_ONEX_TOPICS = "USE_ONEX_TOPICS"
_Way = Literal["publishes", "subscribes"]


class EventChannel(Part):
    """One topic that a node uses; `event_type` is how its code asks for it."""

    topic: str
    key: str
    event_type: str
    description: str | None = None
    handler: str | None = None


class EventChannels(Part):
    publishes: tuple[EventChannel, ...] = ()
    subscribes: tuple[EventChannel, ...] = ()


class NodeMeta(Part):
    name: str = Field(min_length=1)
    version: str
    node_type: NodeType


class NodeContract(BaseModel):
    """A node's contract.yaml, of which only the channels are our business."""

    model_config = ConfigDict(extra="allow", frozen=True)

    meta: NodeMeta
    event_channels: EventChannels


class ChannelViolation(NamedTuple):
    """A broken rule of a node's contract, with its line."""

    rule: str
    line: int
    message: str


def judge_node(path: Path, catalogue: Catalogue, policy: Policy) -> list[ChannelViolation]:
    """Everything that is wrong with the channels of a node's contract."""
    document = read_document(path)
    if document.defects:
        return [ChannelViolation("D000", found.line, found.message) for found in document.defects]
    try:
        contract = NodeContract.model_validate(document.data)
    except ValidationError as error:
        return [
            ChannelViolation("D000", document.line_of(*found.route), found.message)
            for found in explain(error)
        ]
    return list(_judge_channels(contract, document, catalogue, policy))


def _judge_channels(
    contract: NodeContract, document: Document, catalogue: Catalogue, policy: Policy
) -> Iterator[ChannelViolation]:
    roles = policy.nodes[contract.meta.node_type.value]
    ways: tuple[_Way, ...] = ("publishes", "subscribes")
    for way in ways:
        for at, channel in enumerate(getattr(contract.event_channels, way)):
            route: Route = ("event_channels", way, at)
            for rule, field, message in _broken(channel, way, contract, roles, catalogue):
                yield ChannelViolation(rule, document.line_of(*route, field), message)


def _broken(
    channel: EventChannel,
    way: _Way,
    contract: NodeContract,
    roles: frozenset[str],
    catalogue: Catalogue,
) -> Iterator[tuple[str, str, str]]:
    """Rule, field and sentence of all that is wrong with one channel."""
    if channel.topic not in catalogue:
        near = suggestion(channel.topic, [found.topic for found in catalogue])
        yield "D001", "topic", f"topic={channel.topic!r} is not in the catalogue{near}"
        return
    topic = catalogue[channel.topic]
    if channel.key != topic.key:
        yield "D002", "key", f"key={channel.key!r}: {topic.topic} is keyed by {topic.key}"
    here, there = (topic.producers, topic.consumers)
    if way == "subscribes":
        here, there = there, here
    if roles.isdisjoint(here):
        kind = contract.meta.node_type.name
        if roles.isdisjoint(there):
            parties = ", ".join(here)
            yield "D004", "topic", f"{kind} nodes are none of those who may: {parties}"
        else:
            other = "subscribes" if way == "publishes" else "publishes"
            yield "D003", "topic", f"{topic.topic} is one that {kind} nodes have under {other}"


def _topic_names(use_onex: bool, catalogue: Catalogue) -> dict[str, str]:
    """The three topics of introspection, by field; legacy names until a node has moved."""
    kinds = {
        "introspection_topic": EnumEventKind.NODE_INTROSPECTION,
        "heartbeat_topic": EnumEventKind.NODE_HEARTBEAT,
        "request_introspection_topic": EnumEventKind.INTROSPECTION_REQUESTED,
    }
    legacy: Mapping[EnumEventKind | None, TopicContract] = {
        contract.event_kind: contract for contract in catalogue.legacy()
    }
    return {
        field: catalogue.for_kind(kind).topic if use_onex else legacy[kind].topic
        for field, kind in kinds.items()
    }


class ModelIntrospectionConfig(BaseModel):
    """How a node announces itself. Topics that are not given are those of the catalogue that is the
    context of validation: the legacy names, which warn, or the onex names if the variable
    USE_ONEX_TOPICS is true."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    node_id: UUID
    node_type: str = Field(min_length=1)
    event_bus: Any = None
    version: str = "1.0.0"
    cache_ttl: float = Field(300.0, ge=0.0)
    introspection_topic: str
    heartbeat_topic: str
    request_introspection_topic: str

    @classmethod
    def default(cls, catalogue: Catalogue, **fields: Any) -> Self:
        """The configuration with these fields, and the catalogue's topics."""
        return cls.model_validate(fields, context=catalogue)

    @classmethod
    def from_contract(
        cls,
        contract: NodeContract,
        catalogue: Catalogue,
        *,
        node_id: UUID | str,
        event_bus: Any = None,
        **fields: Any,
    ) -> Self:
        """The configuration that a node's contract gives; what it leaves out is the default."""
        publishes = {found.event_type: found.topic for found in contract.event_channels.publishes}
        subscribes = {found.event_type: found.topic for found in contract.event_channels.subscribes}
        topics = {
            "introspection_topic": publishes.get("introspection"),
            "heartbeat_topic": publishes.get("heartbeat"),
            "request_introspection_topic": subscribes.get("request"),
        }
        return cls.model_validate(
            {
                "node_id": node_id,
                "node_type": contract.meta.node_type.name,
                "version": contract.meta.version,
                "event_bus": event_bus,
                **{field: topic for field, topic in topics.items() if topic is not None},
                **fields,
            },
            context=catalogue,
        )

    @model_validator(mode="before")
    @classmethod
    def _default_topics(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, Mapping) or not isinstance(info.context, Catalogue):
            return given  # every topic is to be given
        chosen = foreign_variables(USE_ONEX_TOPICS, [USE_ONEX_TOPICS]).get(USE_ONEX_TOPICS, "false")
        return {**_topic_names(chosen.lower() == "true", info.context), **given}

    @model_validator(mode="after")
    def _topics_have_versions(self) -> Self:
        for topic in (
            self.introspection_topic,
            self.heartbeat_topic,
            self.request_introspection_topic,
        ):
            try:
                name = parse(topic)
            except ConfigurationError as error:
                raise ValueError(error.message) from None
            if isinstance(name, LegacyName):
                warnings.warn(
                    f"Topic '{topic}' does not have version suffix. "
                    "Consider using ONEX format: onex.<domain>.<name>.v1",
                    UserWarning,
                    stacklevel=2,
                )
        return self


def read_node_contract(path: Path, catalogue: Catalogue) -> NodeContract:
    """A node's contract that keeps all four rules; else one error that names what is broken."""
    if broken := judge_node(path, catalogue, load_policy()):
        told = "; ".join(f"line {found.line}: {found.rule}: {found.message}" for found in broken)
        raise ConfigurationError(
            f"Node contract {path}: {told}.", hint="docs/topics has the rules."
        )
    return NodeContract.model_validate(read_document(path).data)

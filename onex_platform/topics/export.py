"""The catalogue for other tools: AsyncAPI 3, an enumeration for Python services, a graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onex_platform import __version__
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import EnumTopicDialect, physical
from onex_platform.topics.policy import Policy
from onex_platform.topics.schemas import Schema, SchemaPair

_KAFKA_BINDING = "0.5.0"
_CONTENT = {
    "JSON": ("application/schema+json;version=draft-07", "application/json"),
    "AVRO": ("application/vnd.apache.avro+json;version=1.9.0", "application/json"),
    "PROTOBUF": ("application/vnd.google.protobuf;version=3", "application/json"),
}


def asyncapi(
    contracts: Iterable[TopicContract],
    policy: Policy,
    root: Path,
    *,
    environment: str,
    tenant: str,
) -> dict[str, Any]:
    """An AsyncAPI 3 document of the topics as one tenant has them in one environment."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for contract in contracts:
        if contract.legacy_of and tenant != policy.home:
            continue
        name = _identifier(contract.topic)
        folder = root / folder_of(contract.name, policy.is_onex_entity)
        channels[name] = _channel(contract, policy, folder, environment, tenant)
        for action, parties in (("send", contract.producers), ("receive", contract.consumers)):
            for party in parties:
                operations[f"{party}_{action}_{name}"] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{name}"},
                    "title": f"{party} {action}s {contract.topic}",
                }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": f"ONEX topics of {tenant} in {environment}", "version": __version__},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
    }


def _channel(
    contract: TopicContract, policy: Policy, folder: Path, environment: str, tenant: str
) -> dict[str, Any]:
    where = {"environment": environment, "tenant": tenant, "home": policy.home}
    pair = SchemaPair.of({path.name: path for path in folder.glob("*.schema.*")})
    config = contract.kafka_config(
        environment, tiered=policy.environments[environment].tiered_storage
    )
    message: dict[str, Any] = {"summary": contract.description}
    if value := pair.the("value"):
        message |= {"contentType": _CONTENT[value.format][1], "payload": _multi_format(value)}
    if key := pair.the("key"):
        message["bindings"] = {"kafka": {"key": _plain(key), "bindingVersion": _KAFKA_BINDING}}
    return {
        "address": str(physical(contract.name, **where)),
        "description": contract.description,
        "messages": {"record": message},
        "bindings": {
            "kafka": {
                "topic": str(physical(contract.name, **where)),
                "partitions": contract.partitions,
                "replicas": contract.replication_in(environment).factor,
                "topicConfiguration": {
                    "cleanup.policy": contract.cleanup_policy.split(","),
                    "retention.ms": int(config["retention.ms"]),
                },
                "bindingVersion": _KAFKA_BINDING,
            }
        },
        "tags": [{"name": contract.owner}, {"name": contract.classification}],
    }


def _multi_format(schema: Schema) -> dict[str, Any]:
    return {"schemaFormat": _CONTENT[schema.format][0], "schema": _plain(schema)}


def _plain(schema: Schema) -> Any:
    return schema.text if schema.format == "PROTOBUF" else json.loads(schema.text)


def python_enum(contracts: Iterable[TopicContract]) -> str:
    """`EnumONEXTopic` as a module for services that don't have the platform installed."""
    members = [
        f'    {_constant(contract.topic)} = "{contract.topic}"'
        for contract in contracts
        if contract.name.dialect in (EnumTopicDialect.ONEX, EnumTopicDialect.SNAPSHOT)
    ]
    return "\n".join(
        (
            f'"""The topics of the ONEX platform {__version__}; made by `onex topics export`."""',
            "",
            "from enum import StrEnum",
            "",
            "",
            "class EnumONEXTopic(StrEnum):",
            *members,
            "",
        )
    )


class Edge(NamedTuple):
    """Who writes a topic, or reads it."""

    role: str
    verb: str
    topic: str


def edges(contracts: Iterable[TopicContract]) -> Iterator[Edge]:
    for contract in contracts:
        yield from (Edge(role, "publishes", contract.topic) for role in contract.producers)
        yield from (Edge(role, "reads", contract.topic) for role in contract.consumers)


def mermaid(contracts: Iterable[TopicContract]) -> str:
    """Roles and topics as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for role, verb, topic in edges(contracts):
        party, stream = f"{_identifier(role)}([{role}])", f"{_identifier(topic)}[{topic}]"
        arrow = (party, stream) if verb == "publishes" else (stream, party)
        lines.append(f"    {arrow[0]} --> {arrow[1]}")
    return "\n".join(lines)


def _identifier(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "_", text)


def _constant(topic: str) -> str:
    return _identifier(topic.removeprefix("onex.")).upper()

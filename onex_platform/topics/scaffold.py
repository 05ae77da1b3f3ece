"""New topics as files that pass the rules at once; people then fill in what only they know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import yaml
from pydantic import TypeAdapter

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import LogicalName, OnexName, SnapshotName, StreamName
from onex_platform.topics.policy import ClassPolicy, Policy
from onex_platform.topics.schemas.generated import generated_schema
from onex_platform.topics.schemas.smallest import smallest_value

RETRY_TIERS = ("PT1M", "PT15M", "PT2H")
_CATEGORY = {"ctl": "heartbeats", "evt": "registry_state", "cmd": "workflow", "qrs": "workflow"}
_BASELINE = ("evt", "cmd", "ctl", "aud", "met")


@dataclass(frozen=True)
class TopicDraft:
    """What only people know about a new topic; the policy gives the rest."""

    name: LogicalName
    owner: str
    key: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    description: str
    critical: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)  # in place of the policy's


def files_of(draft: TopicDraft, policy: Policy) -> dict[str, str]:
    """The topic's files by their path below the folder of contracts."""
    folder = folder_of(draft.name, policy.is_onex_entity)
    content = {**_fields(draft, policy), **draft.fields}
    files = {"contract.yaml": contract_text(content), "rfc.md": rfc_text(draft, policy)}
    if isinstance(draft.name, StreamName):
        files |= _avro_files(draft)
    else:
        files |= _generated_files(TopicContract.model_validate(content))
    return {f"{folder}/{name}": text for name, text in files.items()}


def contract_text(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=100)


def baseline(context: str, owner: str, role: str) -> Iterator[TopicDraft]:
    """The topics that every context starts with: facts, commands, control, audit, metrics, a query
    pair."""
    topics = {name: f"{context}-{word}" for name, word in zip(_BASELINE, _WORDS, strict=True)}
    queries = {"requests": "search-requests", "replies": "search-replies"}
    for stream_class, topic in [*topics.items(), *(("qrs", topic) for topic in queries.values())]:
        yield TopicDraft(
            name=StreamName(context, stream_class, topic, 1),
            owner=owner,
            key=f"{context.replace('-', '_')}_id" if stream_class != "qrs" else "correlation_id",
            producers=(role,),
            consumers=(role,),
            description=f"Baseline of the context {context}: {topic}.",
        )


_WORDS = ("changed", "change", "lease-heartbeat", "changes", "activity")


def _fields(draft: TopicDraft, policy: Policy) -> dict[str, Any]:
    name = draft.name
    fields: dict[str, Any] = {
        "topic": str(name),
        "description": draft.description,
        "owner": draft.owner,
        "category": "infrastructure",
        "producers": list(draft.producers),
        "consumers": list(draft.consumers),
        "key": draft.key,
        "partitions": 3,
        "retention": "P7D",
        "cleanup_policy": "delete",
        "timestamp_type": "LogAppendTime" if "registry" in draft.consumers else "CreateTime",
        "sla": {"delivery": "PT10S", "availability": 99.9},
        "classification": "internal",
        "compatibility": "FORWARD",
        "deprecation": {"notice": "P90D"},
    }
    if isinstance(name, StreamName):
        fields |= _class_fields(name, policy, critical=draft.critical)
    elif isinstance(name, OnexName):
        fields |= _onex_fields(name, policy)
    elif isinstance(name, SnapshotName):
        fields |= _snapshot_fields(name, policy)
    return fields


def _class_fields(name: StreamName, policy: Policy, *, critical: bool) -> dict[str, Any]:
    row: ClassPolicy = policy.classes[name.stream_class]
    headers = [*policy.headers.minimum, *policy.headers.classes.get(name.stream_class, ())]
    fields: dict[str, Any] = {
        "category": _CATEGORY.get(name.stream_class, "infrastructure"),
        "retention": _iso(row.bounds(critical=critical)[0]),
        "compatibility": "BACKWARD",
        "tiered_storage": row.tiered == "always" or (row.tiered == "critical" and critical),
        "headers": {"required": headers},
    }
    if critical:
        fields["critical"] = True
    if name.stream_class == "qrs":
        fields["pair"] = str(_pair(name))
    if name.stream_class == "cdc":
        fields["table"] = name.topic.replace("-", "_")
    return fields


def _onex_fields(name: OnexName, policy: Policy) -> dict[str, Any]:
    if name.event_kind not in set(EnumEventKind):
        raise ConfigurationError(
            f"Topic {str(name)!r} carries the event kind {name.event_kind!r}, which no payload "
            "model knows.",
            hint="Add it to EnumEventKind and PAYLOADS first: the schema is made from the model.",
        )
    rule, kept = policy.key_rule(name.event_kind), policy.retention_of(name.event_kind)
    fields = {} if rule is None else {"key": rule.key, "producers": sorted(rule.producers)}
    return fields if kept is None else {**fields, "retention": _iso(kept)}


def _snapshot_fields(name: SnapshotName, policy: Policy) -> dict[str, Any]:
    return {
        "key": policy.keys.snapshots,
        "snapshot_of": name.subject.removesuffix("-snapshots").replace("-", "_"),
        "retention": "unlimited",
        "cleanup_policy": "compact",
        "compaction": {
            "min_lag": "PT1M",
            "max_lag": "PT5M",
            "segment_size": "100MiB",
            "tombstones_stay": "P1D",
        },
        "compatibility": "BACKWARD",
    }


def _pair(name: StreamName) -> StreamName:
    """The other half of a query: requests and replies."""
    for one, other in (("requests", "replies"), ("replies", "requests")):
        if name.topic.endswith(f"-{one}"):
            topic = f"{name.topic.removesuffix(one)}{other}"
            return StreamName(name.context, name.stream_class, topic, name.version)
    raise ConfigurationError(
        f"Topic {str(name)!r} is a query topic and ends neither with -requests nor with -replies.",
        hint="Call a pair alike: search-requests and search-replies.",
    )


def _avro_files(draft: TopicDraft) -> dict[str, str]:
    name = draft.name
    assert isinstance(name, StreamName)  # noqa: S101 - the only caller has looked
    record = "".join(word.capitalize() for word in name.topic.split("-"))
    value = {
        "type": "record",
        "name": record if record[0].isalpha() else f"Topic{record}",
        "namespace": f"onex.{name.context.replace('-', '_')}.{name.stream_class}",
        "doc": draft.description,
        "fields": [
            {"name": draft.key, "type": "string", "pii": "none"},
            {"name": "occurred_at", "type": "string", "doc": "RFC 3339, UTC", "pii": "none"},
        ],
    }
    sample = {draft.key: "sample-1", "occurred_at": "2026-01-01T00:00:00Z"}
    return {
        "value.schema.avsc": _json(value),
        "key.schema.avsc": _json({"type": "string"}),
        "samples/smallest.json": _json(sample),
    }


def _generated_files(contract: TopicContract) -> dict[str, str]:
    """The schema that the models give, and the smallest value that it takes."""
    generated = generated_schema(contract)
    if generated is None:
        raise ConfigurationError(
            f"No model says what {contract.topic} carries.",
            hint="Topics of the onex dialect need a payload model, snapshots one of their domain.",
        )
    return {
        "value.schema.json": generated,
        "key.schema.json": _json({"type": "string"}),
        "samples/smallest.json": _json(smallest_value(json.loads(generated))),
    }


def rfc_text(draft: TopicDraft, policy: Policy) -> str:
    """The request for a topic, with every part that the rules want."""
    team = policy.teams.get(draft.owner)
    return "\n".join(
        (
            f"# {draft.name}",
            "",
            draft.description,
            "",
            f"- Owner: {draft.owner}",
            f"- Rotation: {team.rotation if team else 'unknown'}",
            "- Data classification: internal",
            "- Objectives: see `sla` in contract.yaml",
            "- Deprecation gates: no lag, no producers, audit freeze, archive, then delete",
            "",
        )
    )


def _iso(duration: timedelta) -> str:
    return str(TypeAdapter(timedelta).dump_python(duration, mode="json"))


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"

"""For each rule a tree that breaks it and no other: the rule's meaning, checked by a test.

Every example begins with topics that pass, as `onex topics new` makes them, and spoils one thing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from onex_platform.topics.grammar import LegacyName, OnexName, SnapshotName, StreamName
from onex_platform.topics.lint.rule import CONTRACT_FILE
from onex_platform.topics.policy import Policy
from onex_platform.topics.scaffold import TopicDraft, contract_text, files_of

_HEARTBEAT = OnexName("node", "heartbeat", "published", 1)
_PAGE = "kb/evt/page-changed/v1"


def _stream(stream_class: str, topic: str = "page-changed", **fields: Any) -> TopicDraft:
    about = {
        "owner": "knowledge",
        "key": "page_id",
        "producers": ("knowledge",),
        "consumers": ("knowledge",),
        "description": "An example.",
    }
    return TopicDraft(name=StreamName("kb", stream_class, topic, 1), **(about | fields))


_NODE = TopicDraft(_HEARTBEAT, "node-runtime", "node_id", ("node",), ("registry",), "An example.")
_OLD = TopicDraft(
    LegacyName("heartbeat"),
    "node-runtime",
    "node_id",
    ("node",),
    ("registry",),
    "An example.",
    fields={"legacy_of": str(_HEARTBEAT), "retention": "PT1H"},
)
_SNAPSHOT = TopicDraft(
    SnapshotName("platform", "registration-snapshots", 1),
    "registry",
    "entity_id",
    ("registry",),
    ("registry",),
    "An example.",
)
_COMPACTION = {
    "min_lag": "PT1M",
    "max_lag": "PT5M",
    "segment_size": "100MiB",
    "tombstones_stay": "P1D",
}


@dataclass(frozen=True)
class Example:
    """A topic that passes, and what spoils it: fields, a line, files to add or take away (None)."""

    topic: TopicDraft
    fields: Mapping[str, Any] = field(default_factory=dict)
    line: str = ""
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    also: tuple[TopicDraft, ...] = ()
    exceptions: tuple[Mapping[str, Any], ...] = ()

    def tree(self, policy: Policy) -> dict[str, bytes]:
        """Every file of the example but those of the policy that it leaves alone."""
        files: dict[str, str | bytes | None] = {}
        for draft in (*self.also, self.topic):
            files |= files_of(draft, policy)
        spoilt = next(name for name in files_of(self.topic, policy) if name.endswith(CONTRACT_FILE))
        content = yaml.safe_load(str(files[spoilt]))
        files[spoilt] = contract_text(_merged(content, self.fields)) + self.line
        if self.exceptions:
            files["policy/exceptions.yaml"] = json.dumps(self.exceptions)
        files |= self.files
        return {
            name: text if isinstance(text, bytes) else text.encode()
            for name, text in files.items()
            if text is not None
        }


def _merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes in the content, at every depth."""
    return {**content} | {
        name: _merged(content[name], value)
        if isinstance(value, Mapping) and isinstance(content.get(name), Mapping)
        else value
        for name, value in changes.items()
    }


def _avro(*fields: Mapping[str, Any]) -> str:
    id_field = {"name": "page_id", "type": "string"}
    return json.dumps({"type": "record", "name": "Page", "fields": [id_field, *fields]})


def _exception(rule: str, expires: str, topic: str = "kb.evt.page-changed.v1") -> dict[str, Any]:
    return {
        "rule": rule,
        "topic": topic,
        "reason": "An example of an exception.",
        "owner": "knowledge",
        "expires": expires,
    }


_SAMPLE = {f"{_PAGE}/samples/smallest.json": json.dumps({"page_id": "page-1"})}
_PRIVATE = {"name": "email", "type": "string"}
_EVENT = _stream("evt")
_COMMAND = TopicDraft(
    StreamName("platform", "cmd", "rebuild", 1),
    "platform-operations",
    "domain_name",
    ("registry",),
    ("registry",),
    "An example.",
)
_OTHER_SNAPSHOT = SnapshotName("kb", "registration-snapshots", 1)
# Event kinds of the platform can't collide, so this example excuses two that are none.
_COLLIDING = contract_text(
    {
        "topic": "onex.node.ack_sent.late.v1",
        "description": "An example.",
        "owner": "node-runtime",
        "category": "heartbeats",
        "producers": ["node"],
        "consumers": ["registry"],
        "key": "node_id",
        "partitions": 3,
        "retention": "P7D",
        "cleanup_policy": "delete",
        "timestamp_type": "LogAppendTime",
        "sla": {"delivery": "PT10S", "availability": 99.9},
        "classification": "internal",
        "compatibility": "FORWARD",
        "deprecation": {"notice": "P90D"},
    }
)

EXAMPLES: Mapping[str, Example] = {
    "F001": Example(_EVENT, files={f"{_PAGE}/contract.yaml": b"topic: \xff\n"}),
    "F002": Example(_EVENT, line="partitions: 3\n"),
    "F003": Example(_EVENT, {"partitions": "many"}),
    "F004": Example(_EVENT, {"topic": "kb.evt.page-changed.v2"}),
    "F005": Example(_EVENT, files={f"{_PAGE}/notes.txt": "x"}),
    "F006": Example(_EVENT, files={"policy/tenants.yaml": "prod: {}"}),
    "N001": Example(_EVENT, {"topic": "kb.event.page-changed.v1"}),
    "N002": Example(_EVENT, {"topic": "knowlege.evt.page-changed.v1"}),
    "N003": Example(_NODE, {"topic": "onex.node.discovery.requested.v1"}),
    "N004": Example(_NODE, {"topic": "onex.node.pulse.published.v1"}),
    "N005": Example(_EVENT, {"topic": "registry.evt.node-moved.v1"}),
    "N006": Example(_OLD, also=(_NODE,)),
    "N007": Example(_NODE, {"snapshot_of": "registration"}),
    "N008": Example(_SNAPSHOT, {"snapshot_of": "discovery"}),
    "K001": Example(_NODE, {"key": "correlation_id"}),
    "K002": Example(_stream("evt", key="message_id")),
    "K003": Example(_EVENT, {"headers": {"shards": {"of": "site_id", "count": 4}}}),
    "K004": Example(_EVENT, {"key": "site_id"}),
    "R001": Example(_EVENT, {"partitions": 7}),
    "R002": Example(_NODE, {"retention": "PT2H"}),
    "R003": Example(_NODE, {"cleanup_policy": "compact,delete", "compaction": _COMPACTION}),
    "R004": Example(_EVENT, {"compaction": _COMPACTION}),
    "R005": Example(_NODE, {"timestamp_type": "CreateTime"}),
    "R006": Example(_SNAPSHOT, {"registration_input": True}),
    "C001": Example(_EVENT, {"retention": "P31D"}),
    "C002": Example(
        _stream("log"), {"cleanup_policy": "compact,delete", "compaction": _COMPACTION}
    ),
    "C003": Example(_EVENT, {"tiered_storage": False}),
    "C004": Example(_EVENT, {"cleanup_policy": "compact,delete", "compaction": _COMPACTION}),
    "C005": Example(_COMMAND, {"consumers": ["registry", "observability"]}),
    "C006": Example(_stream("cdc"), {"table": None}),
    "C007": Example(_EVENT, {"headers": {"required": ["x-tenant"]}}),
    "C008": Example(_stream("qrs", "page-requests")),
    "C009": Example(_EVENT, {"dead_letters": "kb.dlt.page-changed.v1"}),
    "C010": Example(
        _EVENT,
        {"dead_letters": "kb.dlt.page-changed.v1", "max_message": "4MiB"},
        also=(_stream("dlt", fields={"max_message": "4MiB"}),),
    ),
    "A001": Example(_EVENT, {"consumers": ["everybody"]}),
    "A002": Example(_NODE, {"producers": ["simulator"]}),
    "A003": Example(_EVENT, {"consumers": ["prism"]}),
    "M001": Example(
        _NODE,
        files={"node/evt/heartbeat-published/v1/migration.yaml": "to: nowhere\nwindow: P7D\n"},
    ),
    "O001": Example(_EVENT, {"owner": "nobody"}),
    "O002": Example(_EVENT, {"deprecation": {"notice": "P90D", "since": "2026-01-01"}}),
    "O003": Example(_EVENT, files={f"{_PAGE}/rfc.md": "# A topic\n"}),
    "X001": Example(
        _NODE,
        {"topic": "onex.node.ack.sent_late.v1"},
        files={"node/evt/ack_sent-late/v1/contract.yaml": _COLLIDING},
        exceptions=tuple(
            _exception("N004", "2099-01-01", topic)
            for topic in ("onex.node.ack.sent_late.v1", "onex.node.ack_sent.late.v1")
        ),
    ),
    "X002": Example(_SNAPSHOT, also=(replace(_SNAPSHOT, name=_OTHER_SNAPSHOT),)),
    # A legacy name warns of itself: that is excused here.
    "X003": Example(_OLD, exceptions=(_exception("N006", "2099-01-01", str(_OLD.name)),)),
    "S001": Example(_EVENT, files={f"{_PAGE}/key.schema.avsc": None}),
    "S002": Example(_EVENT, files={f"{_PAGE}/value.schema.avsc": "{}"}),
    "S003": Example(
        _EVENT,
        files={
            f"{_PAGE}/value.schema.avsc": None,
            f"{_PAGE}/value.schema.json": json.dumps(
                {"type": "object", "properties": {"page_id": {"type": "string"}}}
            ),
        },
    ),
    "S004": Example(_EVENT, files={f"{_PAGE}/samples/bad.json": "{}"}),
    "S005": Example(_EVENT, files={f"{_PAGE}/key.schema.avsc": json.dumps({"type": "long"})}),
    "S006": Example(
        _NODE,
        files={
            "node/evt/heartbeat-published/v1/value.schema.json": json.dumps(
                {"properties": {"node_id": {"type": "string"}}}
            )
        },
    ),
    "S007": Example(
        _EVENT,
        files={
            f"{_PAGE}/value.schema.avsc": _avro({"name": "title", "type": "string"}),
            f"{_PAGE}/released/value.schema.avsc": _avro(),
            f"{_PAGE}/samples/smallest.json": json.dumps({"page_id": "page-1", "title": "One"}),
        },
    ),
    "P001": Example(
        _EVENT,
        files={
            f"{_PAGE}/value.schema.avsc": _avro({"name": "size", "type": "long", "pii": "hihg"}),
            f"{_PAGE}/samples/smallest.json": json.dumps({"page_id": "page-1", "size": 1}),
        },
    ),
    "P002": Example(
        _EVENT,
        files={
            f"{_PAGE}/value.schema.avsc": json.dumps(
                {
                    "type": "record",
                    "name": "Page",
                    "fields": [{"name": "page_id", "type": "string", "pii": "low"}],
                }
            ),
            **_SAMPLE,
        },
    ),
    "P003": Example(
        _EVENT,
        files={
            f"{_PAGE}/value.schema.avsc": _avro({**_PRIVATE, "pii": "high"}),
            f"{_PAGE}/samples/smallest.json": json.dumps({"page_id": "page-1", "email": "a@b"}),
        },
    ),
    "P004": Example(
        _stream("aud"),
        files={
            "kb/aud/page-changed/v1/value.schema.avsc": _avro({**_PRIVATE, "pii": "high"}),
            "kb/aud/page-changed/v1/samples/smallest.json": json.dumps(
                {"page_id": "page-1", "email": "a@b"}
            ),
        },
    ),
    # An exception that has expired excuses nothing: another one does.
    "E001": Example(
        _EVENT,
        {"partitions": 7},
        exceptions=(_exception("R001", "2026-01-01"), _exception("R001", "2099-01-01")),
    ),
    "E002": Example(_EVENT, exceptions=(_exception("R001", "2099-01-01"),)),
}

"""One contract: what it means for Kafka, and how a defect in its file is told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.contract import LAG_THRESHOLDS, EnumLagCategory
from onex_platform.topics.policy import load_policy
from onex_platform.topics.reading import read_contract
from onex_platform_tests.support.contracts import (
    EVENT_FIELDS,
    LEGACY_FIELDS,
    SNAPSHOT_FIELDS,
    event,
    legacy,
    snapshot,
)


def _refusal(folder: Path, fields: dict[str, Any]) -> ConfigurationError:
    path = folder / "contract.yaml"
    path.write_text(yaml.safe_dump(fields), encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        read_contract(path, load_policy())
    assert path.name in refused.value.message
    assert "docs/topics" in (refused.value.hint or "")
    return refused.value


def test_a_changed_copy_keeps_nothing_that_was_derived() -> None:
    contract = event()
    assert contract.publish_rules is contract.publish_rules  # made once
    changed = contract.model_copy(update={"topic": "onex.node.heartbeat.published.v2"})
    assert changed.publish_rules.topic == str(changed.name) == changed.topic
    private = contract.with_private_fields({"payload.node_id": "low"})
    assert private.publish_rules.private_fields == {"payload.node_id": "low"}
    assert contract.publish_rules.private_fields == {}


def test_an_event_topic_s_settings_in_kafka_s_names() -> None:
    assert event(retention="P7D").kafka_config("prod") == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "segment.ms": "100800000",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
    }


def test_a_snapshot_topic_s_settings_in_kafka_s_names() -> None:
    assert snapshot(max_message="4MiB").kafka_config("dev") == {
        "max.message.bytes": "4194304",
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "min.compaction.lag.ms": "60000",
        "max.compaction.lag.ms": "300000",
        "segment.bytes": "104857600",
        "delete.retention.ms": "86400000",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "1",
    }


@pytest.mark.parametrize(
    ("environment", "copies"),
    [("dev", (1, 1)), ("test", (1, 1)), ("sand", (3, 2)), ("stage", (3, 2)), ("prod", (3, 2))],
)
def test_copies_follow_the_environment(environment: str, copies: tuple[int, int]) -> None:
    replication = event().replication_in(environment)
    assert (replication.factor, replication.min_insync) == copies
    assert event().kafka_config(environment)["min.insync.replicas"] == str(copies[1])


def test_a_contract_can_ask_for_other_copies() -> None:
    contract = event(replication={"factor": 5, "min_insync": 3})
    assert contract.replication_in("prod").factor == 5
    assert contract.replication_in("dev").factor == 1


def test_a_record_stays_until_its_segment_can_go() -> None:
    assert event(retention="PT1H").longest_stay == timedelta(hours=1, minutes=10)
    assert snapshot().longest_stay is None


def test_the_event_kind_comes_from_the_name_and_of_a_legacy_name_from_its_twin() -> None:
    assert event().event_kind is EnumEventKind.NODE_HEARTBEAT
    assert legacy().event_kind is EnumEventKind.NODE_HEARTBEAT
    assert snapshot().event_kind is None


def test_a_legacy_name_warns_and_names_its_successor() -> None:
    assert legacy().warning == (
        "node.heartbeat is a legacy name without a version; "
        "use onex.node.heartbeat.published.v1 instead."
    )
    assert event().warning is None


def test_lag_thresholds_are_those_of_the_specification() -> None:
    assert {category.value: tuple(lag) for category, lag in LAG_THRESHOLDS.items()} == {
        "heartbeats": (30, 60, 120),
        "introspection": (60, 120, 300),
        "registry_state": (30, 60, 120),
        "workflow": (120, 300, 600),
        "infrastructure": (60, 120, 300),
    }
    assert set(LAG_THRESHOLDS) == set(EnumLagCategory)
    assert event(category="workflow").lag.critical == 600


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"topic": "onex.node.Heartbeat.published.v1"}, "has entity 'Heartbeat'"),
        ({"topic": "onex.node.pulse.published.v1"}, "'node.pulse.published' is not in EnumEvent"),
        ({"topic": "onex.billing.invoice.sent.v1"}, "no keying rule covers the event kind"),
        ({"key": "event_id"}, "key='event_id': node.* is keyed by node_id"),
        ({"key": "Node-Id"}, "key='Node-Id'"),
        ({"producers": ["registry"]}, "producers=['registry']: node.* allows node"),
        ({"producers": []}, "producers=[]"),
        ({"retention": "PT2H"}, "002 keeps node.heartbeat.published for 1:00:00"),
        ({"owner": "node-runtimes"}, "no team with a rotation; did you mean 'node-runtime'?"),
        ({"consumers": ["everybody"]}, "consumers.0='everybody': no role of the policy"),
        ({"partitions": 0}, "partitions=0: Input should be greater than or equal to 1"),
        ({"partitions": 6}, "every other count needs partitions_reason"),
        ({"partitions_reason": "why not"}, "partitions=3: 3 is the rule"),
        ({"retention": "1 day"}, "retention='1 day': expected an ISO 8601 duration"),
        ({"retention": 3600}, "retention=3600: expected an ISO 8601 duration"),
        ({"retention": "P0D"}, "retention=0:00:00: Input should be greater than 0 seconds"),
        ({"retention": None}, "retention=None: expected an ISO 8601 duration"),
        ({"retention": "unlimited"}, "compact needs retention unlimited, delete forbids it"),
        ({"cleanup_policy": "compact"}, "snapshots are compacted, events are not"),
        ({"cleanup_policy": "compact,delete"}, "cleanup_policy='compact,delete'"),
        ({"timestamp_type": "CreateTime"}, "LogAppendTime where the registry is a consumer"),
        ({"consumers": ["observability"]}, "timestamp_type='LogAppendTime'"),
        (
            {"consumers": ["observability"], "timestamp_type": "CreateTime"},
            "registration_input=True: only for events that the registry consumes",
        ),
        ({"category": "other"}, "category='other': Input should be 'heartbeats'"),
        ({"owner": "Somebody Else"}, "owner='Somebody Else'"),
        ({"description": ""}, "description=''"),
        ({"replication": {"factor": 2, "min_insync": 3}}, "min_insync=3 is above factor=2"),
        ({"legacy_of": "onex.node.heartbeat.published.v1"}, "legacy names have it"),
        ({"snapshot_of": "registration"}, "snapshot names have it"),
        ({"retention_ms": 1}, "retention_ms=1: Extra inputs are not permitted"),
    ],
)
def test_a_defect_is_named_with_file_field_and_value(
    tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    assert told in _refusal(tmp_path, EVENT_FIELDS | fields).message


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"key": "node_id"}, "key='node_id': a snapshot's key is entity_id"),
        ({"snapshot_of": "discovery"}, "its topic is about discovery-snapshots"),
        ({"max_message": "64MiB"}, "max_message"),
        ({"cleanup_policy": "delete"}, "delete forbids it"),
        ({"retention": "P7D"}, "compact needs retention unlimited"),
        ({"compaction": None}, "compact needs the field compaction"),
        ({"snapshot_of": None}, "snapshot_of=None"),
        ({"registration_input": True}, "only for events that the registry consumes"),
        (
            {"compaction": SNAPSHOT_FIELDS["compaction"] | {"min_lag": "PT1H"}},
            "compaction: min_lag=1:00:00 is above max_lag=0:05:00",
        ),
        (
            {"compaction": SNAPSHOT_FIELDS["compaction"] | {"tombstones_stay": "PT0S"}},
            "compaction.tombstones_stay=0:00:00",
        ),
    ],
)
def test_a_defect_in_a_snapshot_topic_is_named_too(
    tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    assert told in _refusal(tmp_path, SNAPSHOT_FIELDS | fields).message


def test_a_legacy_contract_must_name_its_successor(tmp_path: Path) -> None:
    assert "legacy_of=None" in _refusal(tmp_path, LEGACY_FIELDS | {"legacy_of": None}).message


@pytest.mark.parametrize("field", sorted(EVENT_FIELDS.keys() - {"registration_input"}))
def test_no_field_of_an_event_topic_may_be_left_out(tmp_path: Path, field: str) -> None:
    fields = {name: value for name, value in EVENT_FIELDS.items() if name != field}
    assert f"{field} is missing" in _refusal(tmp_path, fields).message


def test_several_defects_are_told_at_once(tmp_path: Path) -> None:
    message = _refusal(tmp_path, EVENT_FIELDS | {"key": "event_id", "partitions": 5}).message
    assert "key='event_id'" in message
    assert "partitions=5" in message


def test_a_contract_stands_where_its_name_leads(tmp_path: Path) -> None:
    told = _refusal(tmp_path, EVENT_FIELDS).message
    assert "its folder is node/evt/heartbeat-published/v1" in told


@pytest.mark.parametrize(
    "schema",
    [
        '{"properties": {"email": {"pii": "high"}}',
        '{"type": 7, "properties": {"email": {"pii": "high"}}}',
        '{"properties": {"email": {"pii": "high"}, "other": {"$ref": "#/nowhere"}}}',
    ],
)
def test_private_fields_that_can_t_be_read_stop_the_contract(tmp_path: Path, schema: str) -> None:
    folder = tmp_path / "node" / "evt" / "heartbeat-published" / "v1"
    folder.mkdir(parents=True)
    path = folder / "contract.yaml"
    path.write_text(yaml.safe_dump(EVENT_FIELDS), encoding="utf-8")
    (folder / "value.schema.json").write_text('{"properties": {"a": {"pii": "high"}}}')
    assert read_contract(path, load_policy()).private_fields == {"a": "high"}
    (folder / "value.schema.json").write_text(schema)
    with pytest.raises(ConfigurationError, match=r"heartbeat-published/v1/value\.schema\.json"):
        read_contract(path, load_policy())


@pytest.mark.parametrize("text", ["topic: [", "", "- just\n- a list\n", "topic: \x00"])
def test_a_file_that_is_no_contract_at_all_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml"):
        read_contract(path, load_policy())

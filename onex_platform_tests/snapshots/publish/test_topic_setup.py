"""The snapshot topic on a real broker: created, altered, and refused where it can't be."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import describe
from onex_platform.snapshots.publish.topic_setup import ensure_topic
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import load_catalogue

pytestmark = pytest.mark.servers


def _config(**changes: Any) -> ModelSnapshotTopicConfig:
    topic = f"onex.snapshot.test-{uuid4().hex}.registration-snapshots.v1"
    return ModelSnapshotTopicConfig.model_validate(
        {"environment": "dev", "topic": topic, "partition_count": 2} | changes,
        context=load_catalogue(),
    )


def _changed(config: ModelSnapshotTopicConfig, **changes: Any) -> ModelSnapshotTopicConfig:
    return ModelSnapshotTopicConfig.model_validate(config.model_dump() | changes)


def test_a_missing_topic_is_created_as_contract_and_configuration_say(
    kafka_settings: Settings,
) -> None:
    config = _config(max_compaction_lag_ms=90_000)
    assert ensure_topic(kafka_settings, load_catalogue(), config, dry_run=True).created
    assert ensure_topic(kafka_settings, load_catalogue(), config).created
    with open_admin(kafka_settings) as admin:
        layout = describe(admin, [config.topic])[config.topic]
    wanted = load_catalogue().snapshot("registration").kafka_config("dev")
    wanted |= {"max.compaction.lag.ms": "90000"}
    assert (layout.partitions, layout.replication_factor) == (2, 1)
    assert wanted.items() <= layout.config.items()


def test_settings_that_differ_are_altered_and_no_others(kafka_settings: Settings) -> None:
    config = _config()
    ensure_topic(kafka_settings, load_catalogue(), config)
    assert ensure_topic(kafka_settings, load_catalogue(), config).altered == {}
    other = _changed(config, min_compaction_lag_ms=1000, segment_bytes=2 * 1024 * 1024)
    changes = {
        "min.compaction.lag.ms": ("60000", "1000"),
        "segment.bytes": ("104857600", "2097152"),
    }
    assert ensure_topic(kafka_settings, load_catalogue(), other, dry_run=True).altered == changes
    assert ensure_topic(kafka_settings, load_catalogue(), other).altered == changes
    assert ensure_topic(kafka_settings, load_catalogue(), other).altered == {}


def test_partitions_never_grow(kafka_settings: Settings) -> None:
    config = _config()
    ensure_topic(kafka_settings, load_catalogue(), config)
    with pytest.raises(ConfigurationError, match="new version of the topic instead") as refused:
        ensure_topic(kafka_settings, load_catalogue(), _changed(config, partition_count=3))
    assert "partition_count=3" in refused.value.message


def test_a_broker_that_can_not_keep_so_many_copies_is_named(kafka_settings: Settings) -> None:
    config = _config(replication_factor=3, min_insync_replicas=2)
    with pytest.raises(ConfigurationError, match="replication_factor=3") as refused:
        ensure_topic(kafka_settings, load_catalogue(), config)
    assert kafka_settings.kafka.bootstrap_servers in refused.value.message


def test_a_topic_with_too_few_copies_for_the_setting_is_named(kafka_settings: Settings) -> None:
    config = _config()
    ensure_topic(kafka_settings, load_catalogue(), config)
    more = _changed(config, replication_factor=3, min_insync_replicas=2)
    with pytest.raises(ConfigurationError, match="min_insync_replicas=2") as refused:
        ensure_topic(kafka_settings, load_catalogue(), more)
    assert "1 copies" in refused.value.message

"""The snapshot topic as its configuration says: the layout that governance brings to a cluster."""

from __future__ import annotations

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.topic_admin import TopicLayout
from onex_platform.governance.provision import TopicChanges, ensure_snapshot_topic
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue


def ensure_topic(
    settings: Settings,
    catalogue: Catalogue,
    config: ModelSnapshotTopicConfig,
    *,
    dry_run: bool = False,
) -> TopicChanges:
    """Create the topic or alter what differs; harmless when repeated."""
    wanted = layout_of(settings, catalogue, config)
    return ensure_snapshot_topic(settings, wanted, dry_run=dry_run)


def layout_of(
    settings: Settings, catalogue: Catalogue, config: ModelSnapshotTopicConfig
) -> TopicLayout:
    """The topic on this cluster: the contract, and on top of it what the configuration says."""
    contract = catalogue.snapshot(config.domain)
    return TopicLayout(
        name=config.topic,
        partitions=config.partition_count,
        replication_factor=config.replication_factor,
        config=contract.kafka_config(settings.environment) | config.to_kafka_config(),
    )

"""Bringing the snapshot topic to a cluster as its configuration says.

A missing topic is created, settings that differ are altered. What a cluster can't do, and what
would break a compacted topic, is refused by name; nothing is changed then.
"""

from __future__ import annotations

from dataclasses import dataclass

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.topic_admin import (
    TopicLayout,
    alter,
    broker_count,
    create,
    describe,
    topic_names,
)
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What was done, or would be; each altered setting with its old and its new value."""

    created: bool
    altered: dict[str, tuple[str | None, str]]

    def __str__(self) -> str:
        if self.created:
            return "created"
        changes = ", ".join(f"{name} {old} → {new}" for name, (old, new) in self.altered.items())
        return f"altered: {changes}" if changes else "as it should be"


def ensure_topic(
    settings: Settings,
    catalogue: Catalogue,
    config: ModelSnapshotTopicConfig,
    *,
    dry_run: bool = False,
) -> TopicChanges:
    """Create the topic or alter what differs; harmless when repeated."""
    wanted = layout_of(settings, catalogue, config)
    with open_admin(settings) as admin:
        if config.topic not in topic_names(admin):
            _require_brokers(admin, config)
            create(admin, [wanted], validate_only=dry_run)
            return TopicChanges(True, {})
        found = describe(admin, [config.topic])[config.topic]
        _require_possible(admin, config, found)
        differing = {
            name: (found.config.get(name), value)
            for name, value in wanted.config.items()
            if found.config.get(name) != value
        }
        if differing and not dry_run:
            alter(admin, config.topic, {name: new for name, (_, new) in differing.items()})
    return TopicChanges(False, differing)


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


def _require_brokers(admin: KafkaAdmin, config: ModelSnapshotTopicConfig) -> None:
    brokers = broker_count(admin)
    if config.replication_factor > brokers:
        raise _cannot(
            admin,
            f"replication_factor={config.replication_factor} of {config.topic}",
            f"it has {brokers} brokers",
            "Add brokers, or set SNAPSHOT_REPLICATION_FACTOR and SNAPSHOT_MIN_INSYNC_REPLICAS.",
        )


def _require_possible(
    admin: KafkaAdmin, config: ModelSnapshotTopicConfig, found: TopicLayout
) -> None:
    if found.partitions != config.partition_count:
        raise ConfigurationError(
            f"{config.topic} has {found.partitions} partitions, and partition_count="
            f"{config.partition_count} would move its keys to others.",
            hint="Make a new version of the topic instead; docs/snapshots.md says how.",
        )
    copies = found.replication_factor
    for name in ("min_insync_replicas", "replication_factor"):
        if getattr(config, name) > copies:
            raise _cannot(
                admin,
                f"{name}={getattr(config, name)} of {config.topic}",
                f"the topic has {copies} copies",
                "Give it more with Kafka's partition reassignment, or lower the setting.",
            )


def _cannot(admin: KafkaAdmin, setting: str, reason: str, hint: str) -> ConfigurationError:
    address = admin.settings.kafka.bootstrap_servers
    return ConfigurationError(f"Kafka at {address} can't honour {setting}: {reason}.", hint=hint)

"""Bringing topics to a cluster without a plan in a file: the creating part of one, and the
snapshot topic as a deployment configures it.

What holds, however often and by however many it is run at once:
- a missing topic is created as its contract says, after the cluster agreed to all of them;
- a topic that exists is left alone; where it differs from its contract, that is reported;
- a topic that no contract knows is reported, and never deleted.
Only the snapshot topic is altered too; what would break a compacted topic is refused by name, and
nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.topic_admin import (
    TopicLayout,
    broker_count,
    describe,
    topic_names,
)
from onex_platform.governance.cluster import (
    change_settings,
    create_missing,
    plan_between,
    require_brokers,
)
from onex_platform.governance.cluster_plan import SETTING
from onex_platform.governance.governed import Governed, observe_topics
from onex_platform.governance.state import ClusterState
from onex_platform.topics.catalogue import Catalogue, require_ledger_beyond_retention

_LEAST_COPIES = "min.insync.replicas"


@dataclass(frozen=True)
class Drift:
    """One setting in which an existing topic differs from its contract."""

    topic: str
    setting: str
    wanted: str
    found: str | None

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, the contract says {self.wanted}"


@dataclass(frozen=True)
class ProvisionReport:
    """What was done and what was found; with `dry_run`, `created` is what would be."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    drift: tuple[Drift, ...]
    impossible: tuple[str, ...]
    unmanaged: tuple[str, ...]
    dry_run: bool


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


def create_topics(
    settings: Settings,
    catalogue: Catalogue,
    *,
    only: Collection[str] | None = None,
    dry_run: bool = False,
) -> ProvisionReport:
    """Create the environment's missing topics and report how the others stand; of some, if `only`
    those are meant."""
    governed = replace(Governed.of(settings, catalogue), only=only)
    require_ledger_beyond_retention(governed.catalogue, settings.registration.ledger_days)
    with open_admin(settings) as admin:
        require_brokers(governed, admin)
        wanted, found = ClusterState(governed.topics), observe_topics(governed, admin)
        missing = plan_between(found, wanted, governed).new_topics()
        created = create_missing(admin, missing, dry_run=dry_run)
        if missing:
            # Somebody else may have created some of them meanwhile, and differently.
            found = observe_topics(governed, admin)
    rest = plan_between(found, wanted, governed)
    return ProvisionReport(
        created=tuple(sorted(created)),
        existing=tuple(sorted(found.topics.keys() - created)),
        drift=tuple(
            Drift(step.name, step.detail["setting"], step.after, step.before)
            for step in rest.steps
            if step.kind == SETTING
        ),
        impossible=rest.refusals,
        unmanaged=rest.strangers,
        dry_run=dry_run,
    )


def ensure_snapshot_topic(
    settings: Settings, wanted: TopicLayout, *, dry_run: bool = False
) -> TopicChanges:
    """Create the topic or alter what differs; harmless when repeated."""
    with open_admin(settings) as admin:
        if wanted.name not in topic_names(admin):
            _require_brokers(admin, wanted)
            create_missing(admin, [wanted], dry_run=dry_run)
            return TopicChanges(True, {})
        found = describe(admin, [wanted.name])[wanted.name]
        _require_possible(admin, wanted, found)
        differing = {
            name: (found.config.get(name), value)
            for name, value in wanted.config.items()
            if found.config.get(name) != value
        }
        if differing and not dry_run:
            change_settings(admin, wanted.name, {name: new for name, (_, new) in differing.items()})
    return TopicChanges(False, differing)


def _require_brokers(admin: KafkaAdmin, wanted: TopicLayout) -> None:
    brokers = broker_count(admin)
    if wanted.replication_factor > brokers:
        raise _cannot(
            admin,
            f"replication_factor={wanted.replication_factor} of {wanted.name}",
            f"it has {brokers} brokers",
            "Add brokers, or set SNAPSHOT_REPLICATION_FACTOR and SNAPSHOT_MIN_INSYNC_REPLICAS.",
        )


def _require_possible(admin: KafkaAdmin, wanted: TopicLayout, found: TopicLayout) -> None:
    if found.partitions != wanted.partitions:
        raise ConfigurationError(
            f"{wanted.name} has {found.partitions} partitions, and partition_count="
            f"{wanted.partitions} would move its keys to others.",
            hint="Make a new version of the topic instead; docs/snapshots.md says how.",
        )
    for name, copies in (
        ("min_insync_replicas", int(wanted.config[_LEAST_COPIES])),
        ("replication_factor", wanted.replication_factor),
    ):
        if copies > found.replication_factor:
            raise _cannot(
                admin,
                f"{name}={copies} of {wanted.name}",
                f"the topic has {found.replication_factor} copies",
                "Give it more with Kafka's partition reassignment, or lower the setting.",
            )


def _cannot(admin: KafkaAdmin, setting: str, reason: str, hint: str) -> ConfigurationError:
    address = admin.settings.kafka.bootstrap_servers
    return ConfigurationError(f"Kafka at {address} can't honour {setting}: {reason}.", hint=hint)

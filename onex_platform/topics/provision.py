"""Bringing the catalogue's topics to a cluster.

What holds, however often and by however many it is run at once:
- a missing topic is created as its contract says, after the cluster agreed to all of them;
- a topic that exists is left alone; where it differs from its contract, that is reported;
- a topic that no contract knows is reported, and never deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import TopicLayout, create, describe, topic_names
from onex_platform.topics.catalogue import (
    Catalogue,
    TopicContract,
    require_ledger_beyond_retention,
)


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
    unmanaged: tuple[str, ...]
    dry_run: bool


def create_topics(
    settings: Settings, catalogue: Catalogue, *, dry_run: bool = False
) -> ProvisionReport:
    """Create the missing topics of the catalogue and report how the others stand."""
    require_ledger_beyond_retention(catalogue, settings.registration.ledger_days)
    wanted = {contract.topic: layout_of(contract, settings) for contract in catalogue}
    with open_admin(settings) as admin:
        present = topic_names(admin)
        missing = [layout for name, layout in wanted.items() if name not in present]
        created = create(admin, missing, validate_only=True)
        if not dry_run:
            created = create(admin, missing)
        existing = wanted.keys() - created
        found = describe(admin, existing)
    return ProvisionReport(
        created=tuple(sorted(created)),
        existing=tuple(sorted(existing)),
        drift=tuple(drift for name in sorted(found) for drift in _drift(wanted[name], found[name])),
        unmanaged=tuple(sorted(present - wanted.keys())),
        dry_run=dry_run,
    )


def layout_of(contract: TopicContract, settings: Settings) -> TopicLayout:
    """How the contract's topic is set up in this environment."""
    return TopicLayout(
        name=contract.topic,
        partitions=contract.partitions,
        replication_factor=contract.replication_in(settings.environment).factor,
        config=contract.kafka_config(settings.environment),
    )


def _drift(wanted: TopicLayout, found: TopicLayout) -> Iterator[Drift]:
    pairs = [
        ("partitions", str(wanted.partitions), str(found.partitions)),
        ("replication factor", str(wanted.replication_factor), str(found.replication_factor)),
        *((name, value, found.config.get(name)) for name, value in wanted.config.items()),
    ]
    for setting, value, value_found in pairs:
        if value != value_found:
            yield Drift(wanted.name, setting, str(value), value_found)

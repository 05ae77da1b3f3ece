"""One topic's move: the contracts that it is between, and what the broker calls their topics.

A topic of the namespace is one per environment and tenant: the one that moves is that of the
settings. The platform's own topics are called as their contracts are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.topics.catalogue import Catalogue, TopicContract
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.migration_intent import MIGRATION_FILE, MigrationIntent


@dataclass(frozen=True)
class Move:
    """Where a topic's events move to, and what is intended; `origin` and `destination` are what
    the broker calls the two."""

    catalogue: Catalogue
    source: TopicContract
    target: TopicContract
    intent: MigrationIntent
    origin: str
    destination: str

    @property
    def retention(self) -> timedelta | None:
        """For how long both sides surely keep a record; None: for ever."""
        kept = [c.retention for c in (self.source, self.target) if c.retention is not None]
        return min(kept, default=None)


def move_of(settings: Settings, catalogue: Catalogue, source: str) -> Move:
    """The move of a topic, which is called as its contract or as the broker calls it."""
    names = {broker_name(settings, catalogue[topic]): topic for topic in catalogue.intents}
    topic = names.get(source, source)
    intent = catalogue.intents.get(topic)
    if intent is None:
        raise ConfigurationError(
            f"Topic {source!r} moves nowhere: there is no {MIGRATION_FILE} beside its contract.",
            hint=f"These move: {', '.join(sorted(catalogue.intents)) or 'none'}.",
        )
    contract, other = catalogue[topic], catalogue[intent.to]
    return Move(
        catalogue,
        contract,
        other,
        intent,
        broker_name(settings, contract),
        broker_name(settings, other),
    )


def broker_name(settings: Settings, contract: TopicContract) -> str:
    """What the broker calls the contract's topic."""
    if isinstance(contract.name, StreamName):
        return str(contract.name.within(settings.environment, settings.tenant))
    return contract.topic

"""The catalogue: every topic, made of the contract files and of nothing else.

Code asks it by event kind, by domain or by role, so that no topic name is spelled out anywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.base.telemetry import hide_fields
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import field_name
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.disagreements import disagreements
from onex_platform.topics.grammar import EnumTopicDialect, OnexName
from onex_platform.topics.migration_intent import (
    MIGRATION_FILE,
    EnumMigrationPhase,
    Lift,
    MigrationIntent,
    intent_defects,
    read_intent,
)
from onex_platform.topics.policy import read_policy
from onex_platform.topics.reading import contract_files, read_contract

__all__ = [
    "ALSO_ON",
    "Catalogue",
    "Outlet",
    "TopicContract",
    "load_catalogue",
    "load_whole_catalogue",
    "require_ledger_beyond_retention",
    "with_marks",
]


# On each record of an event that goes to several topics: the others, which its producer writes
# itself. A mirror leaves it time to.
ALSO_ON = "x-also-on"


@dataclass(frozen=True)
class Outlet:
    """A topic that an event is published to, and what its value goes through on the way."""

    contract: TopicContract
    lifts: tuple[Lift, ...] = ()

    @property
    def topic(self) -> str:
        return self.contract.topic

    def value(self, value: str | bytes) -> bytes:
        """The event's value as the topic's readers expect it."""
        content = value.encode() if isinstance(value, str) else value
        for lift in self.lifts:
            content = lift.apply(content)
        return content


def with_marks(outlets: Sequence[Outlet]) -> Iterator[tuple[Outlet, list[tuple[str, str]]]]:
    """Each topic of an event, with the header that names the others, if there are others."""
    for here in outlets:
        others = ",".join(other.topic for other in outlets if other is not here)
        yield here, [(ALSO_ON, others)] if others else []


class Catalogue:
    """The contracts, checked against each other once, when the catalogue is made.

    `intents` are moves of topics, by the topic that is left. Without phases (`at`) none has begun.
    """

    def __init__(
        self,
        contracts: Iterable[TopicContract],
        intents: Mapping[str, MigrationIntent] | None = None,
    ) -> None:
        self._contracts = tuple(sorted(contracts, key=lambda contract: contract.topic))
        self._by_name = {contract.topic: contract for contract in self._contracts}
        for found in disagreements(self._contracts):
            raise ConfigurationError(f"{found.message}.", hint=found.hint)
        self.intents = {name: i for name, i in (intents or {}).items() if name in self._by_name}
        for topic, intent in self.intents.items():
            for defect in intent_defects(self._by_name[topic], intent, self._by_name):
                raise ConfigurationError(
                    f"Migration of {topic}: {defect.message}.", hint="docs/migration.md says how."
                )
        self._phases: Mapping[str, EnumMigrationPhase] = {}
        self._oldest = {
            contract.event_kind: contract
            for contract in sorted(self._contracts, key=_version, reverse=True)
            if isinstance(contract.name, OnexName)
        }

    @classmethod
    def from_folder(cls, folder: Path) -> Catalogue:
        """The catalogue of the contracts below `folder`, judged by the policy beside them."""
        paths = contract_files(folder)
        if not paths:
            raise ConfigurationError(
                f"There is no topic contract in {folder}.",
                hint="Restore the folder from the repository, or reinstall onex-platform.",
            )
        policy = read_policy(folder / "policy")
        contracts = {path: read_contract(path, policy) for path in paths}
        intents = {
            contract.topic: read_intent(path.with_name(MIGRATION_FILE))
            for path, contract in contracts.items()
            if path.with_name(MIGRATION_FILE).exists()
        }
        return cls(contracts.values(), intents)

    def at(self, phases: Mapping[str, EnumMigrationPhase]) -> Catalogue:
        """The same contracts when topics have moved so far: what is published follows the phases,
        and a retired topic is listed no more."""
        moved = copy(self)
        moved._phases = phases
        return moved

    def phase(self, topic: str) -> EnumMigrationPhase:
        """How far the topic's move has come; one that nobody began is in its first phase."""
        return self._phases.get(topic, EnumMigrationPhase.ASSESS)

    def is_retired(self, topic: str) -> bool:
        """Whether the topic is gone, and must not be made anew; of a topic of the namespace the
        broker's name is meant."""
        return self.phase(topic) is EnumMigrationPhase.RETIRED

    def __iter__(self) -> Iterator[TopicContract]:
        return (c for c in self._contracts if not self.is_retired(c.topic))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, topic: object) -> bool:
        return topic in self._by_name

    def __getitem__(self, topic: str) -> TopicContract:
        """The contract of the topic with this name."""
        try:
            return self._by_name[topic]
        except KeyError:
            near = difflib.get_close_matches(topic, self._by_name, n=1)
            raise ConfigurationError(
                f"Topic {topic!r} is not in the catalogue.",
                hint=f"Did you mean {near[0]}?" if near else "`onex topics list` shows them all.",
            ) from None

    def for_kind(self, kind: EnumEventKind) -> TopicContract:
        """Where events of this kind are read and published: the canonical topic, in the version
        that its move has come to."""
        return self.outlets(kind)[0].contract

    def outlets(self, kind: EnumEventKind) -> tuple[Outlet, ...]:
        """Every topic that an event of this kind is published to, the canonical one first.

        That is the oldest version, and not the newest file: a later one is written when the move to
        it has come so far, a legacy name as long as both sides of its move are written.
        """
        if kind not in self._oldest:
            raise ConfigurationError(
                f"No topic of the catalogue carries the event kind {kind.value!r}.",
                hint="Add its contract; docs/topics says how.",
            )
        legacy = (old for old in self.legacy_outlets(kind) if self._writes_both(old.topic))
        return (*self.written(self._oldest[kind].topic), *legacy)

    def written(self, topic: str, called: Callable[[str], str] = str) -> tuple[Outlet, ...]:
        """Where what belongs on this topic is published by now: there, on both sides of its move,
        or where it has moved to. Of the namespace's, `called` says what the broker calls it."""
        outlet = Outlet(self[topic])
        while outlet.topic in self.intents and self.phase(called(outlet.topic)).has_moved:
            outlet = self._beyond(outlet)
        if self._writes_both(outlet.topic, called):
            return outlet, self._beyond(outlet)
        return (outlet,)

    def legacy_outlets(self, kind: EnumEventKind) -> tuple[Outlet, ...]:
        """The legacy names of a kind's events that may be written, by those who know no other."""
        return tuple(
            Outlet(contract, self._back(contract.topic))
            for contract in self.legacy()
            if contract.event_kind is kind and not self.phase(contract.topic).has_moved
        )

    def _back(self, topic: str) -> tuple[Lift, ...]:
        intent = self.intents.get(topic)
        return (intent.back,) if intent is not None and intent.back is not None else ()

    def _writes_both(self, topic: str, called: Callable[[str], str] = str) -> bool:
        return topic in self.intents and self.phase(called(topic)).writes_both

    def _beyond(self, outlet: Outlet) -> Outlet:
        """Where the topic of an outlet moves to."""
        intent = self.intents[outlet.topic]
        lifts = outlet.lifts if intent.lift is None else (*outlet.lifts, intent.lift)
        return Outlet(self[intent.to], lifts)

    def snapshot(self, domain: str) -> TopicContract:
        """The compacted topic in which the latest state of a domain's entities is read: the oldest
        version, and the next one from the phase on in which readers move."""
        *_, read = self.snapshots(domain)
        first = self.snapshots(domain)[0]
        return read if self.phase(first.topic) is EnumMigrationPhase.MOVE else first

    def snapshots(self, domain: str) -> tuple[TopicContract, ...]:
        """The topics to which a domain's snapshots are published by now: two while they move."""
        return tuple(outlet.contract for outlet in self.written(self.oldest_snapshot(domain).topic))

    def oldest_snapshot(self, domain: str) -> TopicContract:
        """The domain's snapshot topic in its oldest version, however far it has moved."""
        versions = [contract for contract in self._contracts if contract.snapshot_of == domain]
        if not versions:
            raise ConfigurationError(
                f"No topic of the catalogue holds snapshots of the domain {domain!r}.",
                hint="Add its contract with snapshot_of; docs/topics says how.",
            )
        return min(versions, key=_version)

    def registration_inputs(self) -> tuple[TopicContract, ...]:
        """The topics whose events the registration fold reads, legacy names included."""
        return tuple(contract for contract in self if contract.registration_input)

    def legacy(self) -> tuple[TopicContract, ...]:
        return tuple(contract for contract in self if contract.legacy_of)

    def canonical(self, topic: str) -> TopicContract:
        """The topic's own contract, or of a legacy name the contract of its twin."""
        contract = self[topic]
        return self[contract.legacy_of] if contract.legacy_of else contract


@cache
def load_whole_catalogue() -> Catalogue:
    """Every contract there is, also of topics that other services carry.

    Whoever knows the topics logs no field that their schemas call personal.
    """
    whole = Catalogue.from_folder(project_folder("contracts"))
    hide_fields(field_name(path) for topic in whole for path in topic.private_fields)
    return whole


@cache
def load_catalogue() -> Catalogue:
    """The topics that the platform itself carries: its events, legacy names, snapshots."""
    whole = load_whole_catalogue()
    return Catalogue(
        (c for c in whole if c.name.dialect is not EnumTopicDialect.NAMESPACE), whole.intents
    )


def require_ledger_beyond_retention(catalogue: Catalogue, ledger_days: int) -> None:
    """Refuse a ledger of event ids that forgets one while Kafka can still deliver it again."""
    for contract in catalogue.registration_inputs():
        stay = contract.longest_stay
        if stay is None or stay >= timedelta(days=ledger_days):
            raise ConfigurationError(
                f"ONEX_REGISTRATION_LEDGER_DAYS={ledger_days} is too short: {contract.topic} keeps "
                f"records for up to {stay or 'ever'}, and a repeated one would count as new.",
                hint="Raise the setting above every input's retention.",
            )


def _version(contract: TopicContract) -> int:
    return getattr(contract.name, "version", 0)

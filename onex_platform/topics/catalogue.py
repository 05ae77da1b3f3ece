"""The catalogue: every topic of the platform, made of the contract files and of nothing else.

Code asks it by event kind, by domain or by role, so that no topic name is spelled out anywhere.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.contract import TopicContract, read_contract
from onex_platform.topics.grammar import OnexName, collisions

__all__ = ["Catalogue", "TopicContract", "load_catalogue", "require_ledger_beyond_retention"]

# Where a legacy topic and its canonical twin must not differ: their events fold alike.
_SHARED_BY_TWINS = (
    "key",
    "category",
    "retention",
    "cleanup_policy",
    "timestamp_type",
    "registration_input",
)


class Catalogue:
    """The contracts, checked against each other once, when the catalogue is made."""

    def __init__(self, contracts: Iterable[TopicContract]) -> None:
        self._contracts = tuple(sorted(contracts, key=lambda contract: contract.topic))
        self._by_name = {contract.topic: contract for contract in self._contracts}
        self._require_unique()
        self._require_twins()
        self._newest = {
            contract.event_kind: contract
            for contract in sorted(self._contracts, key=_version)
            if isinstance(contract.name, OnexName)
        }

    @classmethod
    def from_folder(cls, folder: Path) -> Catalogue:
        """The catalogue of the contract files in `folder`; a file of another kind is refused."""
        paths = sorted(path for path in folder.glob("*") if not path.name.startswith("."))
        if not paths:
            raise ConfigurationError(
                f"There is no topic contract in {folder}.",
                hint="Restore the folder from the repository, or reinstall onex-platform.",
            )
        for path in paths:
            if path.suffix != ".yaml":
                raise ConfigurationError(
                    f"{path.name} in the topic contracts is not a .yaml file.",
                    hint=f"Rename it or move it out of {folder}.",
                )
        return cls(read_contract(path) for path in paths)

    def __iter__(self) -> Iterator[TopicContract]:
        return iter(self._contracts)

    def __len__(self) -> int:
        return len(self._contracts)

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
        """Where events of this kind are published: the canonical topic, in its newest version."""
        try:
            return self._newest[kind]
        except KeyError:
            raise ConfigurationError(
                f"No topic of the catalogue carries the event kind {kind.value!r}.",
                hint="Add its contract; docs/topics.md says how.",
            ) from None

    def snapshot(self, domain: str) -> TopicContract:
        """The compacted topic that holds the latest state of a domain's entities."""
        for contract in self._contracts:
            if contract.snapshot_of == domain:
                return contract
        raise ConfigurationError(
            f"No topic of the catalogue holds snapshots of the domain {domain!r}.",
            hint="Add its contract with snapshot_of; docs/topics.md says how.",
        )

    def registration_inputs(self) -> tuple[TopicContract, ...]:
        """The topics whose events the registration fold reads, legacy names included."""
        return tuple(contract for contract in self._contracts if contract.registration_input)

    def legacy(self) -> tuple[TopicContract, ...]:
        return tuple(contract for contract in self._contracts if contract.legacy_of)

    def canonical(self, topic: str) -> TopicContract:
        """The topic's own contract, or of a legacy name the contract of its twin."""
        contract = self[topic]
        return self[contract.legacy_of] if contract.legacy_of else contract

    def _require_unique(self) -> None:
        names = Counter(contract.topic for contract in self._contracts)
        _refuse_repeated(names, "Topic {!r} has {} contracts; one topic has one.")
        domains = Counter(contract.snapshot_of for contract in self._contracts)
        del domains[None]
        # Snapshots are keyed by the entity's id alone: in one topic, two domains would mix.
        _refuse_repeated(domains, "The domain {!r} has {} snapshot topics; one domain has one.")
        for group in collisions(names):
            raise ConfigurationError(
                f"Topics {' and '.join(group)} differ only by '.' and '_'.",
                hint="Kafka can't tell them apart in its metrics; rename one.",
            )

    def _require_twins(self) -> None:
        for contract in self.legacy():
            twin = self._by_name.get(contract.legacy_of or "")
            if twin is None or not isinstance(twin.name, OnexName):
                raise ConfigurationError(
                    f"Topic contract {contract.topic}: legacy_of={contract.legacy_of!r} "
                    "is no canonical topic of the catalogue.",
                    hint="Name the contract that replaces it.",
                )
            for field in _SHARED_BY_TWINS:
                if getattr(contract, field) != getattr(twin, field):
                    raise ConfigurationError(
                        f"Topic contract {contract.topic}: {field}={getattr(contract, field)!s} "
                        f"differs from {getattr(twin, field)!s} in {twin.topic}.",
                        hint="Events of a legacy topic are treated as its twin's; make them equal.",
                    )


@cache
def load_catalogue() -> Catalogue:
    """The platform's catalogue, read once per process."""
    return Catalogue.from_folder(project_folder("contracts") / "topics")


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


def _refuse_repeated(counts: Counter[str] | Counter[str | None], message: str) -> None:
    for value, count in counts.items():
        if count > 1:
            raise ConfigurationError(
                message.format(value, count), hint="Remove the contract that is wrong."
            )


def _version(contract: TopicContract) -> int:
    return contract.name.version if isinstance(contract.name, OnexName) else 0

"""The catalogue: every topic, made of the contract files and of nothing else.

Code asks it by event kind, by domain or by role, so that no topic name is spelled out anywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.paths import project_folder
from onex_platform.base.telemetry import hide_fields
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.disagreements import disagreements
from onex_platform.topics.grammar import EnumTopicDialect, OnexName
from onex_platform.topics.policy import read_policy
from onex_platform.topics.reading import contract_files, read_contract

__all__ = [
    "Catalogue",
    "TopicContract",
    "load_catalogue",
    "load_whole_catalogue",
    "require_ledger_beyond_retention",
]


class Catalogue:
    """The contracts, checked against each other once, when the catalogue is made."""

    def __init__(self, contracts: Iterable[TopicContract]) -> None:
        self._contracts = tuple(sorted(contracts, key=lambda contract: contract.topic))
        self._by_name = {contract.topic: contract for contract in self._contracts}
        for found in disagreements(self._contracts):
            raise ConfigurationError(f"{found.message}.", hint=found.hint)
        self._newest = {
            contract.event_kind: contract
            for contract in sorted(self._contracts, key=_version)
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
        return cls(read_contract(path, policy) for path in paths)

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
                hint="Add its contract; docs/topics says how.",
            ) from None

    def snapshot(self, domain: str) -> TopicContract:
        """The compacted topic that holds the latest state of a domain's entities."""
        for contract in self._contracts:
            if contract.snapshot_of == domain:
                return contract
        raise ConfigurationError(
            f"No topic of the catalogue holds snapshots of the domain {domain!r}.",
            hint="Add its contract with snapshot_of; docs/topics says how.",
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


@cache
def load_whole_catalogue() -> Catalogue:
    """Every contract there is, also of topics that other services carry.

    Whoever knows the topics logs no field that their schemas call personal.
    """
    whole = Catalogue.from_folder(project_folder("contracts"))
    hide_fields(path.rpartition(".")[2] for topic in whole for path in topic.private_fields)
    return whole


@cache
def load_catalogue() -> Catalogue:
    """The topics that the platform itself carries: its events, legacy names, snapshots."""
    return Catalogue(
        contract
        for contract in load_whole_catalogue()
        if contract.name.dialect is not EnumTopicDialect.NAMESPACE
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
    return contract.name.version if isinstance(contract.name, OnexName) else 0

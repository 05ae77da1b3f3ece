"""What contracts must not say of each other; each is right by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from onex_platform.topics.contract import TopicContract
from onex_platform.topics.grammar import OnexName, SnapshotName, collisions

# Where a legacy topic and its canonical twin must not differ: their events fold alike.
_SHARED_BY_TWINS = (
    "key",
    "category",
    "retention",
    "cleanup_policy",
    "timestamp_type",
    "registration_input",
    "signed",
)


class Disagreement(NamedTuple):
    """One contract that does not fit to the others."""

    topic: str
    kind: Literal["repeated", "collision", "twin"]
    field: str
    message: str
    hint: str


def disagreements(contracts: Sequence[TopicContract]) -> Iterator[Disagreement]:
    """Everything that is wrong between the contracts."""
    yield from _repeated(contracts)
    yield from _collisions(contracts)
    yield from _twins(contracts)


def _repeated(contracts: Sequence[TopicContract]) -> Iterator[Disagreement]:
    hint = "Remove the contract that is wrong."
    names = Counter(contract.topic for contract in contracts)
    # Versions of one topic hold the same entities, one after the other.
    subjects = {
        (contract.snapshot_of, replace(contract.name, version=1))
        for contract in contracts
        if contract.snapshot_of is not None and isinstance(contract.name, SnapshotName)
    }
    domains: Counter[str | None] = Counter(domain for domain, _ in subjects)
    for topic, count in names.items():
        if count > 1:
            sentence = f"Topic {topic!r} has {count} contracts; one topic has one"
            yield Disagreement(topic, "repeated", "topic", sentence, hint)
    for contract in contracts:
        count = domains[contract.snapshot_of]
        if count > 1:
            # Snapshots are keyed by the entity's id alone: in one topic, two domains would mix.
            sentence = (
                f"The domain {contract.snapshot_of!r} has {count} snapshot topics; "
                "one domain has one"
            )
            yield Disagreement(contract.topic, "repeated", "snapshot_of", sentence, hint)


def _collisions(contracts: Sequence[TopicContract]) -> Iterator[Disagreement]:
    for group in collisions(contract.topic for contract in contracts):
        for topic in group:
            yield Disagreement(
                topic,
                "collision",
                "topic",
                f"Topics {' and '.join(group)} differ only by '.' and '_'",
                "Kafka can't tell them apart in its metrics; rename one.",
            )


def _twins(contracts: Sequence[TopicContract]) -> Iterator[Disagreement]:
    by_name = {contract.topic: contract for contract in contracts}
    for contract in contracts:
        if contract.legacy_of is None:
            continue
        twin = by_name.get(contract.legacy_of)
        if twin is None or not isinstance(twin.name, OnexName):
            yield Disagreement(
                contract.topic,
                "twin",
                "legacy_of",
                f"Topic contract {contract.topic}: legacy_of={contract.legacy_of!r} "
                "is no canonical topic of the catalogue",
                "Name the contract that replaces it.",
            )
            continue
        for field in _SHARED_BY_TWINS:
            if getattr(contract, field) != getattr(twin, field):
                yield Disagreement(
                    contract.topic,
                    "twin",
                    field,
                    f"Topic contract {contract.topic}: {field}={getattr(contract, field)!s} "
                    f"differs from {getattr(twin, field)!s} in {twin.topic}",
                    "Events of a legacy topic are treated as its twin's; make them equal.",
                )

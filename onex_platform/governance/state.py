"""What a cluster has, and what it should have, as plain values of the same shape.

`None` stands for what can't be had: rights without an authoriser, subjects without a registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onex_platform.engines.kafka.access import Right
from onex_platform.engines.kafka.quotas import Quotas
from onex_platform.engines.kafka.topic_admin import TopicLayout
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.patterns import NamePattern, Resource
from onex_platform.topics.policy import Account, Policy
from onex_platform.topics.schemas import Schema

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"


@dataclass(frozen=True)
class Subject:
    """A subject of the registry: the contract's schema, else the newest; the mode set for it."""

    schema: str
    format: str
    mode: str | None
    newer: tuple[int, ...] = ()  # versions behind the contract's schema, of which it knows nothing


@dataclass(frozen=True)
class ClusterState:
    """Topics, rights, quotas and subjects by their names."""

    topics: Mapping[str, TopicLayout] = field(default_factory=dict)
    rights: frozenset[Right] | None = None
    quotas: Quotas | None = None
    subjects: Mapping[str, Subject] | None = None
    hides_rights: bool = False  # this account may not list them
    hidden: frozenset[str] = frozenset()  # topics that this account may not see
    strangers: frozenset[str] = frozenset()  # topics and subjects that no contract knows

    def fingerprint(self) -> str:
        """Two states with the same one need the same plan; strangers don't count."""
        rights = None if self.rights is None else sorted(map(str, self.rights))
        subjects = None if self.subjects is None else sorted(map(str, self.subjects.items()))
        topics = {
            name: [found.partitions, found.replication_factor, dict(found.config)]
            for name, found in self.topics.items()
        }
        content = [topics, rights, self.quotas, subjects, sorted(self.hidden)]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def layout_in(contract: TopicContract, policy: Policy, environment: str, name: str) -> TopicLayout:
    """How the contract's topic is set up in an environment, under a tenant's name."""
    tiered = policy.environments[environment].tiered_storage
    return TopicLayout(
        name=name,
        partitions=contract.partitions,
        replication_factor=contract.replication_in(environment).factor,
        config=contract.kafka_config(environment, tiered=tiered),
    )


def desired_state(
    catalogue: Catalogue,
    policy: Policy,
    environment: str,
    schemas: Mapping[str, Mapping[str, Schema]],
) -> ClusterState:
    """What contracts and policy ask of an environment's cluster; `schemas` by contract and part."""
    subjects = {
        f"{name}-{part}": Subject(schema.canonical(), schema.format, contract.compatibility)
        for name, contract in _contracts_in(catalogue, policy, environment)
        for part, schema in schemas.get(contract.topic, {}).items()
    }
    rights = {
        right
        for account in policy.access.accounts
        for right in rights_of(account, policy, environment)
    }
    quotas = {
        account.name: quota for account in policy.access.accounts if (quota := _quota(account))
    }
    topics = desired_topics(catalogue, policy, environment)
    return ClusterState(topics, frozenset(rights), quotas, subjects)


def desired_topics(
    catalogue: Catalogue, policy: Policy, environment: str
) -> dict[str, TopicLayout]:
    """The topics of it alone, which need no file but the contracts."""
    return {
        name: layout_in(contract, policy, environment, name)
        for name, contract in _contracts_in(catalogue, policy, environment)
    }


def _contracts_in(
    catalogue: Catalogue, policy: Policy, environment: str
) -> Iterator[tuple[str, TopicContract]]:
    """The environment's topics by the broker's name; a topic of the namespace may be retired for
    one tenant and not for others."""
    names = (contract.name for contract in catalogue)
    for logical, _tenant, name in policy.topics_in(names, environment):
        if not catalogue.is_retired(name):
            yield name, catalogue[str(logical)]


def rights_of(account: Account, policy: Policy, environment: str) -> Iterator[Right]:
    """Everything that an account may do: its roles' patterns, under its tenant's names."""
    principal = principal_of(account.name)

    def on_topics(patterns: tuple[NamePattern, ...], *operations: str) -> Iterator[Right]:
        for pattern in patterns:
            for found in policy.resources_of(pattern, environment, account.tenant):
                yield from (_right(principal, "topic", found, verb) for verb in operations)

    own = Resource("prefixed", f"{account.tenant}.")
    for role in (policy.access.roles[name] for name in account.roles):
        yield from on_topics(role.publishes, "write", "describe", "describe_configs")
        yield from on_topics(role.reads, "read", "describe", "describe_configs")
        yield from on_topics(
            role.creates, "create", "describe", "describe_configs", "alter_configs"
        )
        if role.reads:
            yield _right(principal, "group", own, "read")
        for kind, prefixes, verbs in (
            ("group", role.groups, ("read",)),
            ("transactional_id", role.transactions, ("write", "describe")),
        ):
            for prefix in prefixes:
                whole = prefix if account.tenant == policy.home else f"{own.name}{prefix}"
                named = Resource("prefixed", whole)
                yield from (_right(principal, kind, named, verb) for verb in verbs)


def principal_of(account: str) -> str:
    return f"User:{account}"


def _right(principal: str, resource: str, about: Resource, operation: str) -> Right:
    return Right(principal, resource, about.pattern, about.name, operation)


def _quota(account: Account) -> dict[str, float]:
    wanted = {PRODUCE: account.quota.produce_bytes, CONSUME: account.quota.consume_bytes}
    return {name: float(value) for name, value in wanted.items() if value is not None}

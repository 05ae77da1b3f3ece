"""A cluster, what its contracts ask of it, and what it has of that now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from onex_platform.base.paths import project_folder
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, RightsHiddenError, rights
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.quotas import quotas
from onex_platform.engines.kafka.topic_admin import (
    TopicLayout,
    describe,
    hidden_topics,
    topic_names,
)
from onex_platform.governance.state import (
    ClusterState,
    desired_state,
    desired_topics,
    principal_of,
)
from onex_platform.governance.subjects import foreign_subjects, observe_subjects
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.policy import Policy, load_policy
from onex_platform.topics.schemas import Schema, SchemaPair


@dataclass(frozen=True)
class Governed:
    """A cluster and what its contracts and policy ask of it."""

    settings: Settings
    catalogue: Catalogue
    policy: Policy
    root: Path
    only: Collection[str] | None = None  # topics, as the broker calls them; None: all

    @classmethod
    def of(cls, settings: Settings, catalogue: Catalogue) -> Governed:
        """These contracts and the platform's own policy on the cluster of the settings."""
        return cls(settings, catalogue, load_policy(), project_folder("contracts"))

    @property
    def accounts(self) -> list[str]:
        return [account.name for account in self.policy.access.accounts]

    @property
    def observer(self) -> str:
        """Who asks the cluster."""
        user = self.settings.kafka.sasl_username
        return "this client" if user is None else principal_of(user)

    @cached_property
    def topics(self) -> dict[str, TopicLayout]:
        """What is wanted of topics; costs less than the whole."""
        wanted = desired_topics(self.catalogue, self.policy, self.settings.environment)
        only = wanted if self.only is None else self.only
        return {name: layout for name, layout in wanted.items() if name in only}

    @cached_property
    def wanted(self) -> ClusterState:
        return desired_state(
            self.catalogue, self.policy, self.settings.environment, self._schemas()
        )

    def _schemas(self) -> Mapping[str, Mapping[str, Schema]]:
        found: dict[str, dict[str, Schema]] = {}
        for contract in self.catalogue:
            folder = self.root / folder_of(contract.name, self.policy.is_onex_entity)
            pair = SchemaPair.of({path.name: path for path in folder.glob("*.schema.*")})
            found[contract.topic] = {
                part: schema
                for part, schema in (("value", pair.the("value")), ("key", pair.the("key")))
                if schema is not None
            }
        return found


def observe(governed: Governed) -> ClusterState:
    """What the cluster and the registry have now of all that the plan is about."""
    settings = governed.settings
    with open_admin(settings) as admin:
        topics = observe_topics(governed, admin)
        allowed, hides_rights = _rights(admin)
    foreign = foreign_subjects(settings, governed.wanted.subjects or ())
    return replace(
        topics,
        rights=None if allowed is None else frozenset(allowed),
        hides_rights=hides_rights,
        # Without an authoriser nobody has a name, and a quota has nobody to bind.
        quotas=None if allowed is None else quotas(settings),
        subjects=observe_subjects(settings, governed.wanted.subjects),
        strangers=topics.strangers | {f"subject: {name}" for name in foreign},
    )


def _rights(admin: KafkaAdmin) -> tuple[set[Right] | None, bool]:
    """The cluster's rights, and whether it hides them from this account."""
    try:
        return rights(admin), False
    except RightsHiddenError:
        return None, True


def observe_topics(governed: Governed, admin: KafkaAdmin) -> ClusterState:
    """The part of it for which an account needs no right but to see its topics."""
    wanted = governed.topics
    present = topic_names(admin)
    return ClusterState(
        topics={
            name: _managed(layout, wanted[name])
            for name, layout in describe(admin, present & wanted.keys()).items()
        },
        hidden=frozenset(hidden_topics(admin, wanted.keys() - present)),
        strangers=frozenset(present - wanted.keys()),
    )


def _managed(found: TopicLayout, wanted: TopicLayout) -> TopicLayout:
    """The topic with those settings that its contract speaks of."""
    config = {name: found.config[name] for name in wanted.config if name in found.config}
    return TopicLayout(found.name, found.partitions, found.replication_factor, config)

"""Asking a cluster for its state, and changing it step by step.

What holds, whatever happens: a plan is applied only to the state that it was made for; a step that
was done already does no harm; so a run that was killed, or two at once, leave a cluster for which
the next plan is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.paths import project_folder
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant, revoke, rights
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.quotas import quotas, set_quotas
from onex_platform.engines.kafka.topic_admin import (
    TopicLayout,
    alter,
    broker_count,
    create,
    delete,
    describe,
    hidden_topics,
    topic_names,
)
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.governance.cluster_plan import EnumDanger, Plan, Step, ended_topics, make_plan
from onex_platform.governance.state import ClusterState, Subject, desired_state
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.policy import Policy, load_policy
from onex_platform.topics.schemas import Schema, SchemaPair
from onex_platform.topics.schemas.formats import AvroSchema, JsonSchema


@dataclass(frozen=True)
class Governed:
    """A cluster and what its contracts and policy ask of it."""

    settings: Settings
    catalogue: Catalogue
    policy: Policy
    root: Path

    @classmethod
    def of(cls, settings: Settings, catalogue: Catalogue) -> Governed:
        """These contracts and the platform's own policy on the cluster of the settings."""
        return cls(settings, catalogue, load_policy(), project_folder("contracts"))

    @property
    def accounts(self) -> list[str]:
        return [account.name for account in self.policy.access.accounts]

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
    settings, wanted = governed.settings, governed.wanted
    with open_admin(settings) as admin:
        present = topic_names(admin)
        known = present & wanted.topics.keys()
        allowed = rights(admin)
        return ClusterState(
            topics={
                name: _managed(layout, wanted.topics[name])
                for name, layout in describe(admin, known).items()
            },
            rights=None if allowed is None else frozenset(allowed),
            # Without an authoriser nobody has a name, and a quota has nobody to bind.
            quotas=None if allowed is None else quotas(settings),
            subjects=_subjects(settings, wanted),
            hidden=frozenset(hidden_topics(admin, wanted.topics.keys() - present)),
            strangers=frozenset(present - wanted.topics.keys()),
        )


def plan(governed: Governed) -> Plan:
    """The steps that bring the cluster to its contracts; asks, and changes nothing."""
    settings = governed.settings
    today = datetime.now(UTC).date()
    _require_possible(governed)
    return make_plan(
        observe(governed),
        governed.wanted,
        environment=settings.environment,
        ended=ended_topics(governed.catalogue, governed.policy, settings.environment, today),
        accounts=governed.accounts,
    )


def apply(governed: Governed, agreed: Plan, *, allowed: Collection[EnumDanger] = ()) -> int:
    """Take the plan's steps, if the cluster is still as the plan saw it; how many were taken."""
    settings = governed.settings
    if agreed.environment != settings.environment:
        raise ConfigurationError(
            f"The plan is for {agreed.environment!r}, this is {settings.environment!r}.",
            hint="Set ONEX_ENVIRONMENT, or make a plan here.",
        )
    for step in agreed.steps:
        if step.danger is not None and step.danger not in allowed:
            raise ConfigurationError(
                f"The plan has a step that takes something away: {step}.",
                hint=f"Allow it with --allow-{step.danger}, or change the contract.",
            )
    if observe(governed).fingerprint() != agreed.seen:
        raise ConfigurationError(
            "The cluster is not as the plan saw it; nothing was changed.",
            hint="Make a new plan with `onex topics plan`.",
        )
    with open_admin(settings) as admin:
        # The cluster is asked about all new topics first: it names what it can't do, such as
        # tiered storage, before anything is changed.
        create(admin, map(_new_topic, _creating(agreed)), validate_only=True)
        for step in agreed.steps:
            point, take = _STEPS[step.kind]
            with effect(point):
                take(settings, admin, step)
    return len(agreed.steps)


def _require_possible(governed: Governed) -> None:
    """Name what the cluster can't do before anything is planned."""
    with open_admin(governed.settings) as admin:
        brokers = broker_count(admin)
    copies = max((found.replication_factor for found in governed.wanted.topics.values()), default=1)
    if copies > brokers:
        raise ConfigurationError(
            f"The contracts ask for {copies} copies, and the cluster has {brokers} brokers.",
            hint="Add brokers, lower `replication` in the contracts, or set ONEX_ENVIRONMENT to "
            "dev or test, where one copy is enough.",
        )


def _managed(found: TopicLayout, wanted: TopicLayout) -> TopicLayout:
    """The topic with those settings that its contract speaks of."""
    config = {name: found.config[name] for name in wanted.config if name in found.config}
    return TopicLayout(found.name, found.partitions, found.replication_factor, config)


def _subjects(settings: Settings, wanted: ClusterState) -> dict[str, Subject] | None:
    if settings.schemas.url is None or wanted.subjects is None:
        return None
    registry = SchemaRegistry(settings)
    found = {}
    for name in registry.subjects() & wanted.subjects.keys():
        newest = registry.newest(name)
        if newest is not None:
            schema = _same_layout(newest.schema, wanted.subjects[name])
            found[name] = Subject(schema, newest.format, registry.mode(name))
    return found


def _same_layout(text: str, wanted: Subject) -> str:
    """A registry may lay a schema out anew: the same schema gets the text that we know."""
    kind = {"JSON": JsonSchema, "AVRO": AvroSchema}.get(wanted.format)
    return text if kind is None else kind(text).canonical()


def _creating(agreed: Plan) -> list[Step]:
    return [step for step in agreed.steps if step.kind == "create-topic"]


def _new_topic(step: Step) -> TopicLayout:
    return TopicLayout(step.name, **step.detail)


def _create(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    create(admin, [_new_topic(step)])


def _set_topic(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    alter(admin, step.name, {step.detail["setting"]: step.after})


def _delete(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    delete(admin, step.name)


def _right(step: Step) -> Right:
    return Right(principal=step.name, **step.detail)


def _grant(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    grant(admin, [_right(step)])


def _revoke(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    revoke(admin, [_right(step)])


def _set_quota(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    set_quotas(settings, step.name, {step.detail["setting"]: step.after})


def _register(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    SchemaRegistry(settings).register(step.name, step.detail["schema"], step.detail["format"])


def _set_mode(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    SchemaRegistry(settings).set_mode(step.name, step.after)


# Each kind of step: its crash point, and what takes it.
_STEPS: Mapping[str, tuple[str, Callable[[Settings, KafkaAdmin, Step], None]]] = {
    "create-topic": ("governance.create_topic", _create),
    "set-topic": ("governance.set_topic", _set_topic),
    "delete-topic": ("governance.delete_topic", _delete),
    "grant": ("governance.grant", _grant),
    "revoke": ("governance.revoke", _revoke),
    "set-quota": ("governance.set_quota", _set_quota),
    "register-subject": ("governance.register_subject", _register),
    "set-mode": ("governance.set_mode", _set_mode),
}

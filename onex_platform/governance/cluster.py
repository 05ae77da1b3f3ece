"""Planning a cluster's way to its contracts, and taking it step by step.

The only place that changes topics, rights, quotas and subjects. What holds, whatever happens: a
plan is applied only to the state that it was made for; a step that was done already does no harm;
so a run that was killed, or two at once, leave a cluster for which the next plan is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant, revoke
from onex_platform.engines.kafka.accounts import set_password
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import (
    TopicLayout,
    alter,
    broker_count,
    create,
    delete,
)
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.governance.cluster_plan import (
    CREATION,
    DELETION,
    REVOCATION,
    SETTING,
    EnumDanger,
    Plan,
    Step,
    as_found,
    ended_topics,
    make_plan,
)
from onex_platform.governance.governed import Governed, observe
from onex_platform.governance.state import ClusterState


def plan(governed: Governed) -> Plan:
    """The steps that bring the cluster to its contracts; asks, and changes nothing."""
    with open_admin(governed.settings) as admin:
        require_brokers(governed, admin)
    return plan_between(observe(governed), governed.wanted, governed)


def plan_between(found: ClusterState, wanted: ClusterState, governed: Governed) -> Plan:
    """The steps from one state to another, as of today."""
    environment, today = governed.settings.environment, datetime.now(UTC).date()
    return make_plan(
        found,
        wanted,
        environment=environment,
        ended=ended_topics(governed.catalogue, governed.policy, environment, today),
        accounts=governed.accounts,
        observer=governed.observer,
    )


def apply(governed: Governed, agreed: Plan, *, allowed: Collection[EnumDanger] = ()) -> int:
    """Take the plan's steps, if the cluster is still as the plan saw it; how many were taken."""
    settings = governed.settings
    if agreed.environment != settings.environment:
        raise ConfigurationError(
            f"The plan is for {agreed.environment!r}, this is {settings.environment!r}.",
            hint="Set ONEX_ENVIRONMENT, or make a plan here.",
        )
    found = observe(governed)
    if found.fingerprint() != agreed.seen:
        raise ConfigurationError(
            "The cluster is not as the plan saw it; nothing was changed.",
            hint="Make a new plan with `onex topics plan`.",
        )
    for step in (as_found(step, found) for step in agreed.steps):
        if step.danger is not None and step.danger not in allowed:
            raise ConfigurationError(
                f"The plan has a step that takes something away: {step}.",
                hint=f"Allow it with --allow-{step.danger}, or change the contract.",
            )
    with open_admin(settings) as admin:
        create_missing(admin, agreed.new_topics())
        for step in agreed.steps:
            if step.kind != CREATION:
                _STEPS[step.kind](settings, admin, step)
    return len(agreed.steps)


def create_missing(
    admin: KafkaAdmin, layouts: Collection[TopicLayout], *, dry_run: bool = False
) -> set[str]:
    """Create topics together; gives those that did not exist, or would be created.

    The cluster is asked about all of them first: it names what it can't do, such as tiered
    storage, before anything is changed.
    """
    agreed = create(admin, layouts, validate_only=True)
    if dry_run:
        return agreed
    with effect("governance.create_topic"):
        return create(admin, layouts)


def change_settings(admin: KafkaAdmin, topic: str, config: Mapping[str, str]) -> None:
    with effect("governance.set_topic"):
        alter(admin, topic, config)


def set_account_password(governed: Governed, account: str, password: str) -> None:
    """Let an account of the policy log in; its rights come from a plan."""
    if account not in governed.accounts:
        raise ConfigurationError(
            f"The account {account!r} is not in contracts/policy/access.yaml.",
            hint=f"There are {', '.join(governed.accounts)}.",
        )
    if not password:
        raise ConfigurationError(f"The password of {account!r} is empty.", hint="Give it one.")
    with open_admin(governed.settings) as admin, effect("governance.set_password"):
        set_password(admin, account, password)


def require_brokers(governed: Governed, admin: KafkaAdmin) -> None:
    """Name a cluster that is too small before anything is planned."""
    brokers = broker_count(admin)
    copies = max((found.replication_factor for found in governed.topics.values()), default=1)
    if copies > brokers:
        raise ConfigurationError(
            f"The contracts ask for {copies} copies, and the cluster has {brokers} brokers.",
            hint="Add brokers, lower `replication` in the contracts, or set ONEX_ENVIRONMENT to "
            "dev or test, where one copy is enough.",
        )


def _set_topic(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    change_settings(admin, step.name, {step.detail["setting"]: step.after})


def _delete(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.delete_topic"):
        delete(admin, step.name)


def _right(step: Step) -> Right:
    return Right(principal=step.name, **step.detail)


def _grant(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.grant"):
        grant(admin, [_right(step)])


def _revoke(_settings: Settings, admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.revoke"):
        revoke(admin, [_right(step)])


def _set_quota(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.set_quota"):
        set_quotas(settings, step.name, {step.detail["setting"]: step.after})


def _register(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.register_subject"):
        SchemaRegistry(settings).register(step.name, step.detail["schema"], step.detail["format"])


def _set_mode(settings: Settings, _admin: KafkaAdmin, step: Step) -> None:
    with effect("governance.set_mode"):
        SchemaRegistry(settings).set_mode(step.name, step.after)


# What takes each kind of step; topics are created together.
_STEPS: Mapping[str, Callable[[Settings, KafkaAdmin, Step], None]] = {
    SETTING: _set_topic,
    DELETION: _delete,
    "grant": _grant,
    REVOCATION: _revoke,
    "set-quota": _set_quota,
    "register-subject": _register,
    "set-mode": _set_mode,
}

"""Plan and apply on a real broker with an authoriser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.admin import NewPartitions

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant, revoke, rights
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import alter, delete, describe
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.governance.cluster import apply, plan
from onex_platform.governance.cluster_plan import EnumDanger, Plan
from onex_platform.governance.governed import Governed
from onex_platform.governance.subjects import pinned_schemas
from onex_platform.stack.processes import wait_until
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.patterns import NamePattern
from onex_platform.topics.policy import Policy
from onex_platform_tests.support.governed_clusters import ALL_DANGERS, FOREIGN_SCHEMA, settle

pytestmark = pytest.mark.servers


def test_the_whole_catalogue_with_all_tenants_is_planned_and_applied(
    secured: Settings, policy: Policy
) -> None:
    governed = replace(Governed.of(secured, load_whole_catalogue()), policy=policy)
    settle(governed)
    again = plan(governed)
    assert (again.steps, again.refusals, again.dangers) == ((), (), ())
    assert again.notes == (
        "no schema registry is known (ONEX_SCHEMAS_URL): subjects are not planned",
    )


def test_what_was_applied_needs_no_further_plan(governed: Governed) -> None:
    settle(governed)
    again = plan(governed)
    assert (again.steps, again.refusals, again.notes) == ((), (), ())
    registry = SchemaRegistry(governed.settings)
    wanted = governed.wanted.subjects or {}
    assert len(wanted) == 2 * len(governed.topics)
    assert {name: registry.mode(name) for name in wanted} == {
        name: subject.mode for name, subject in wanted.items()
    }
    pinned = pinned_schemas(governed.settings, wanted)
    assert [pin.subject for pin in pinned] == sorted(wanted)
    for pin in pinned:
        found = registry.newest(pin.subject)
        assert found is not None
        assert (found.version, found.id) == (pin.version, pin.id)


def test_six_changes_by_hand_are_named_and_nothing_else(governed: Governed) -> None:
    settle(governed)
    kept_shorter, deleted, grown, *_ = sorted(governed.topics)
    right = min(governed.wanted.rights or ())
    subject = min(governed.wanted.subjects or ())
    with open_admin(governed.settings) as admin:
        alter(admin, kept_shorter, {"retention.ms": "1000"})
        delete(admin, deleted)
        _grow(admin, grown, 5)
        revoke(admin, [right])
    set_quotas(governed.settings, "onex-node", {"producer_byte_rate": 1.0})
    SchemaRegistry(governed.settings).set_mode(subject, "NONE")
    found = plan(governed)
    assert sorted((step.kind, step.name) for step in found.steps) == sorted(
        [
            ("set-topic", kept_shorter),
            ("create-topic", deleted),
            ("grant", right.principal),
            ("set-quota", "onex-node"),
            ("set-mode", subject),
        ]
    )
    [refusal] = found.refusals
    assert refusal.startswith(f"{grown} has 5 partitions, the contract says 3: keys would move")
    settle(governed)
    assert plan(governed).is_empty
    with open_admin(governed.settings) as admin:
        delete(admin, grown)
    settle(governed)
    assert plan(governed).refusals == ()


def _grow(admin: KafkaAdmin, topic: str, partitions: int) -> None:
    for answer in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        answer.result(timeout=30)
    assert wait_until(lambda: describe(admin, [topic])[topic].partitions == partitions, 10)


def test_a_version_that_somebody_registered_behind_the_contract_s_is_named(
    governed: Governed,
) -> None:
    settle(governed)
    registry = SchemaRegistry(governed.settings)
    subject = max(governed.wanted.subjects or ())
    registry.set_mode(subject, "NONE")
    registry.register(subject, FOREIGN_SCHEMA, "JSON")
    settle(governed)
    found = plan(governed)
    assert found.is_empty
    [refusal] = found.refusals
    assert refusal.startswith(f"{subject} has versions behind the contract's schema (2)")
    pinned = pinned_schemas(governed.settings, governed.wanted.subjects or {})
    assert [pin.version for pin in pinned if pin.subject == subject] == [1]
    registry.delete(subject)
    settle(governed)
    assert plan(governed).refusals == ()


def test_a_plan_for_another_state_is_refused(governed: Governed) -> None:
    settle(governed)
    topic = min(governed.wanted.topics)
    with open_admin(governed.settings) as admin:
        alter(admin, topic, {"retention.ms": "1000"})
    stale = plan(governed)
    settle(governed)
    with pytest.raises(ConfigurationError, match="not as the plan saw it"):
        apply(governed, stale, allowed=ALL_DANGERS)


def test_what_takes_something_away_needs_its_own_flag(governed: Governed) -> None:
    settle(governed)
    topic, extra = min(governed.wanted.topics), _of_node("delete")
    with open_admin(governed.settings) as admin:
        alter(admin, topic, {"retention.ms": "-1"})
        grant(admin, [extra])
    dangerous = plan(governed)
    assert {step.danger for step in dangerous.steps} == {
        EnumDanger.SHORTER_RETENTION,
        EnumDanger.REVOCATION,
    }
    for allowed in (set(), {EnumDanger.REVOCATION}, {EnumDanger.SHORTER_RETENTION}):
        with pytest.raises(ConfigurationError, match="takes something away"):
            apply(governed, dangerous, allowed=allowed)
    # Nor does a file help that was edited: the step is judged by what it does to what is there.
    edited = dangerous.model_dump(mode="json")
    for step in edited["steps"]:
        step["danger"] = None
        step["before"] = step["after"]
    assert EnumDanger.REVOCATION in {s.danger for s in Plan.model_validate(edited).steps}
    for allowed in (set(), {EnumDanger.REVOCATION}):
        with pytest.raises(ConfigurationError, match="takes something away"):
            apply(governed, Plan.model_validate(edited), allowed=allowed)
    apply(governed, Plan.model_validate_json(dangerous.model_dump_json()), allowed=ALL_DANGERS)
    assert plan(governed).is_empty


def test_strangers_are_reported_and_dangerous_rights_as_such(governed: Governed) -> None:
    settle(governed)
    foreign = Right("User:somebody", "topic", "literal", "their.topic", "read")
    dangerous = Right("User:*", "topic", "literal", "*", "read")
    with open_admin(governed.settings) as admin:
        grant(admin, [foreign, dangerous])
        try:
            found = plan(governed)
            assert found.is_empty
            assert f"right: {foreign}" in found.strangers
            assert found.dangers == (str(dangerous),)
        finally:
            revoke(admin, [foreign, dangerous])


def _of_node(operation: str) -> Right:
    return Right("User:onex-node", "topic", "prefixed", "onex.node.", operation)


def test_without_authoriser_and_registry_a_plan_says_what_it_leaves_out(
    kafka_settings: Settings, catalogue: Catalogue
) -> None:
    found = plan(Governed.of(kafka_settings, catalogue))
    assert {step.kind for step in found.steps} <= {"create-topic", "set-topic"}
    assert [note.partition(":")[0] for note in found.notes] == [
        "the cluster has no authoriser",
        "no schema registry is known (ONEX_SCHEMAS_URL)",
    ]


def test_a_cluster_without_tiered_storage_is_named_before_anything_is_changed(
    governed: Governed,
) -> None:
    settle(governed)
    tiered = load_whole_catalogue()["prism.evt.policy-updated.v1"]
    environment = governed.policy.environments["dev"].model_copy(
        update={"tiered_storage": True, "topics": (NamePattern("*"),)}
    )
    policy = governed.policy.model_copy(update={"environments": {"dev": environment}})
    ambitious = replace(governed, catalogue=Catalogue([*governed.catalogue, tiered]), policy=policy)
    right = min(governed.wanted.rights or ())
    with open_admin(governed.settings) as admin:
        revoke(admin, [right])
        agreed = plan(ambitious)
        with pytest.raises(InfraError, match=r"create topic dev\.omnibase\.prism\.\S+: Tiered"):
            apply(ambitious, agreed, allowed=ALL_DANGERS)
        assert right not in (rights(admin) or ())
    assert plan(ambitious) == agreed
    settle(governed)


def test_too_few_brokers_are_named_before_anything_is_planned(governed: Governed) -> None:
    production = governed.settings.model_copy(update={"environment": "prod"})
    with pytest.raises(ConfigurationError, match="ask for 3 copies, and the cluster has 1 brokers"):
        plan(replace(governed, settings=production))

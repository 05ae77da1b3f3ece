"""Plan and apply on a real broker with an authoriser."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant, revoke
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.quotas import set_quotas
from onex_platform.engines.kafka.topic_admin import alter, delete
from onex_platform.governance.cluster import Governed, apply, plan
from onex_platform.governance.cluster_plan import EnumDanger, Plan
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.policy import Policy

pytestmark = pytest.mark.servers

_ALL = frozenset(EnumDanger)


@pytest.fixture
def governed(secured: Settings, policy: Policy) -> Governed:
    return replace(Governed.of(secured, load_whole_catalogue()), policy=policy)


def _settle(governed: Governed) -> None:
    """Bring the cluster to its contracts, whatever a test before has left."""
    apply(governed, plan(governed), allowed=_ALL)


def test_what_was_applied_needs_no_further_plan(governed: Governed) -> None:
    _settle(governed)
    again = plan(governed)
    assert again.steps == ()
    assert again.refusals == ()


def test_what_was_changed_by_hand_is_named_and_nothing_else(governed: Governed) -> None:
    _settle(governed)
    topics = sorted(governed.wanted.topics)
    right = min(governed.wanted.rights or ())
    with open_admin(governed.settings) as admin:
        alter(admin, topics[0], {"retention.ms": "1000"})
        delete(admin, topics[1])
        revoke(admin, [right])
    set_quotas(governed.settings, "onex-node", {"producer_byte_rate": 1.0})
    found = plan(governed)
    assert sorted((step.kind, step.name) for step in found.steps) == sorted(
        [
            ("set-topic", topics[0]),
            ("create-topic", topics[1]),
            ("grant", right.principal),
            ("set-quota", "onex-node"),
        ]
    )
    _settle(governed)
    assert plan(governed).is_empty


def test_a_plan_for_another_state_is_refused(governed: Governed) -> None:
    _settle(governed)
    topic = min(governed.wanted.topics)
    with open_admin(governed.settings) as admin:
        alter(admin, topic, {"retention.ms": "1000"})
    stale = plan(governed)
    _settle(governed)
    with pytest.raises(ConfigurationError, match="not as the plan saw it"):
        apply(governed, stale, allowed=_ALL)


def test_what_takes_something_away_needs_its_own_flag(governed: Governed) -> None:
    _settle(governed)
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
    apply(governed, Plan.model_validate_json(dangerous.model_dump_json()), allowed=_ALL)
    assert plan(governed).is_empty


def test_strangers_are_reported_and_dangerous_rights_as_such(governed: Governed) -> None:
    _settle(governed)
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

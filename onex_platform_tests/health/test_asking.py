"""Operators ask nodes to introspect: one request per node and interval, few broadcasts."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.decider import RegistrationPolicy, decide
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import IntrospectionRequestedPayload
from onex_platform.health.asking import Order, ask_everybody, ask_nodes
from onex_platform_tests.support.events import TENANT, at, event
from onex_platform_tests.support.measured import Killed, die_at
from onex_platform_tests.support.watched_clock import Watched

pytestmark = pytest.mark.servers

ORDER = Order("ada", "capabilities look old", at(0))


def later(seconds: float) -> Order:
    return ORDER._replace(now=at(seconds))


def test_nodes_are_asked_by_name_once_per_interval(piped: Watched) -> None:
    platform = piped.archive.platform
    assert ask_nodes(platform, ["worker-1", "worker-2"], None, ORDER) == 2
    assert ask_nodes(platform, ["worker-1"], TENANT, later(1)) == 0
    assert ask_nodes(platform, ["worker-1"], TENANT, later(300)) == 1
    asked = [fact.payload for fact in piped.waiting()]
    assert all(isinstance(payload, IntrospectionRequestedPayload) for payload in asked)
    assert sorted(payload.target_node_ids for payload in asked) == [
        ("worker-1",),
        ("worker-1",),
        ("worker-2",),
    ]


def test_an_operators_request_is_the_policys_own_within_the_interval(piped: Watched) -> None:
    beat = event(EnumEventKind.NODE_HEARTBEAT, 1)
    order = ORDER._replace(now=beat.occurred_at)
    [request] = decide(None, beat, RegistrationPolicy(), beat.occurred_at)
    ask_nodes(piped.archive.platform, [beat.node_id or ""], beat.tenant, order)
    [fact] = piped.waiting()
    assert (fact.event_id, fact.entity) == (request.event_id, request.entity)


def test_the_next_broadcast_of_a_tenant_waits(piped: Watched) -> None:
    platform = piped.archive.platform
    piped.active(1, at(9000))
    piped.active(1, at(9000), tenant="other")
    assert ask_everybody(platform, [TENANT], ORDER) == [TENANT]
    with pytest.raises(ConfigurationError, match=f"{TENANT} \\(next at .*05:00"):
        ask_everybody(platform, [], later(299))
    assert ask_everybody(platform, ["other"], later(1)) == ["other"]
    assert ask_everybody(platform, [TENANT], later(300)) == [TENANT]
    facts = piped.waiting()
    assert len({fact.event_id for fact in facts}) == len(facts) == 3
    assert {fact.tenant for fact in facts} == {TENANT, "other"}
    assert {(fact.node_id, fact.payload.target_node_ids) for fact in facts} == {(None, None)}


@pytest.mark.parametrize(("moment", "asked"), [("before", 0), ("after", 1)])
def test_a_broadcast_is_ordered_and_waits_or_neither(
    piped: Watched, moment: str, asked: int
) -> None:
    platform = piped.archive.platform
    piped.active(1, at(9000))
    die_at(f"{moment}:introspection.ask")
    with pytest.raises(Killed):
        ask_everybody(platform, [TENANT], ORDER)
    assert len(piped.waiting()) == asked
    if asked:
        with pytest.raises(ConfigurationError, match="less than 300 s ago"):
            ask_everybody(platform, [TENANT], later(1))
    else:
        ask_everybody(platform, [TENANT], later(1))
    assert len(piped.waiting()) == 1


def test_wrong_orders_are_refused(piped: Watched) -> None:
    platform = piped.archive.platform
    piped.active(1, at(9000))
    near = TENANT[:-1]
    with pytest.raises(ConfigurationError, match=f"Tenant '{near}' has no active node") as refused:
        ask_everybody(platform, [near], ORDER)
    assert refused.value.hint == f"Did you mean {TENANT}?"
    with pytest.raises(ConfigurationError, match="reason is empty"):
        ask_everybody(platform, [TENANT], ORDER._replace(reason=" "))
    with pytest.raises(ConfigurationError, match="node_id is empty"):
        ask_nodes(platform, [" "], None, ORDER)
    assert piped.waiting() == []

"""The guard's arithmetic, and the facts that follow from a passed deadline."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.deadlines import guard_rules
from onex_platform.deadlines.guard_rules import GuardPolicy, Hold
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.facts import PassedDeadline, timeout_fact
from onex_platform.domain.identity import REGISTRATION_DOMAIN, EntityKey
from onex_platform_tests.support.events import NODE, at

POLICY = GuardPolicy(
    share=Fraction("0.15"),
    floor=3,
    window=timedelta(minutes=10),
    drain_share=Fraction("0.01"),
    longest_hold=timedelta(hours=1),
)
SHARES = st.decimals("0.001", 1, places=3).map(Fraction)
POLICIES = st.builds(
    GuardPolicy,
    share=SHARES,
    floor=st.integers(1, 50),
    window=st.timedeltas(timedelta(seconds=1), timedelta(days=1)),
    drain_share=SHARES,
    longest_hold=st.timedeltas(timedelta(seconds=1), timedelta(days=1)),
)
FLEETS = st.integers(0, 10**7)


def test_the_limit_is_the_share_or_the_floor() -> None:
    limits = {
        fleet: guard_rules.expiry_limit(fleet, POLICY) for fleet in (0, 1, 3, 20, 26, 27, 100)
    }
    assert limits == {0: 3, 1: 3, 3: 3, 20: 3, 26: 3, 27: 4, 100: 15}


def test_a_share_is_exact_where_a_float_is_not() -> None:
    policy = GuardPolicy(
        share=Fraction("0.29"),
        floor=1,
        window=POLICY.window,
        drain_share=POLICY.drain_share,
        longest_hold=POLICY.longest_hold,
    )
    assert guard_rules.expiry_limit(100, policy) == 29 != int(0.29 * 100)


@given(expiries=st.integers(0, 10**6), policy=POLICIES)
def test_counting_a_fleet_can_stop_where_the_limit_is_known_to_suffice(
    expiries: int, policy: GuardPolicy
) -> None:
    enough = guard_rules.fleet_that_allows(expiries, policy)
    assert guard_rules.expiry_limit(enough, policy) >= expiries
    if enough:
        assert guard_rules.expiry_limit(enough - 1, policy) < expiries


@given(fleet=FLEETS, more=FLEETS, policy=POLICIES)
def test_a_larger_fleet_never_has_a_smaller_limit(
    fleet: int, more: int, policy: GuardPolicy
) -> None:
    limit = guard_rules.expiry_limit(fleet, policy)
    assert policy.floor <= limit <= guard_rules.expiry_limit(fleet + more, policy)


@given(
    fleet=FLEETS,
    policy=POLICIES,
    looks=st.lists(st.integers(0, 7200), min_size=1, max_size=30),
)
def test_a_hold_drains_at_its_rate_however_often_somebody_looks(
    fleet: int, policy: GuardPolicy, looks: list[int]
) -> None:
    hold = Hold(at(0), fleet, guard_rules.expiry_limit(fleet, policy))
    drained = 0
    for seconds in sorted(looks):
        drained += guard_rules.drain_allowance(hold, drained, at(seconds), policy)
    rate = max(1, int(policy.drain_share * fleet))
    assert drained == max(looks) * rate // 60
    assert guard_rules.drain_allowance(hold, drained, at(-5), policy) == 0


def test_even_the_smallest_fleet_drains_one_node_per_minute() -> None:
    hold = Hold(at(0), 20, 3)
    allowed = [
        guard_rules.drain_allowance(hold, 0, at(seconds), POLICY) for seconds in (59, 60, 180)
    ]
    assert allowed == [0, 1, 3]


def test_a_hold_lasts_for_its_longest_time_and_no_longer() -> None:
    hold = Hold(at(0), 100, 15)
    assert not guard_rules.is_too_long(hold, at(3599.999), POLICY)
    assert guard_rules.is_too_long(hold, at(3600), POLICY)


@given(held=st.integers(0, 100), recent=st.integers(0, 100))
def test_silence_is_over_when_what_is_left_would_not_be_held(held: int, recent: int) -> None:
    hold = Hold(at(0), 100, 15)
    assert guard_rules.is_silence_over(hold, held, recent) is (held == 0 or held + recent <= 15)


def passed(**changes: object) -> PassedDeadline:
    fields = {
        "kind": EnumEventKind.LIVENESS_EXPIRED,
        "entity": EntityKey(REGISTRATION_DOMAIN, NODE),
        "tenant": "omnibase",
        "node_name": None,
        "epoch": 1,
        "deadline": at(60),
    }
    return PassedDeadline(**(fields | changes))  # type: ignore[arg-type]


def test_a_fact_has_the_id_of_entity_epoch_and_deadline_whoever_declares_it_and_when() -> None:
    first = timeout_fact(passed(), at(61))
    assert timeout_fact(passed(node_name="renamed"), at(99)).event_id == first.event_id
    different = [
        passed(epoch=2),
        passed(deadline=at(60.000001)),
        passed(kind=EnumEventKind.ACK_TIMED_OUT),
        passed(entity=EntityKey(REGISTRATION_DOMAIN, first.event_id)),
    ]
    ids = {timeout_fact(one, at(61)).event_id for one in different}
    assert len(ids | {first.event_id, timeout_fact(passed(), at(61), 8).event_id}) == 6

"""When a group waits, when it is broken, and whose it is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.health.canaries.group_rules import (
    Awaited,
    GroupLook,
    GroupState,
    Sample,
    is_broken,
    is_named,
    is_own,
    is_sample_due,
    judged,
)
from onex_platform_tests.support.events import at

PERIOD = timedelta(seconds=60)
HALF = 30


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ("validator", True),
        ("validator-onex-v1", True),
        ("validators", False),
        ("my-validator", False),
        ("onex-v1", True),
        ("other", False),
    ],
)
def test_a_group_belongs_to_the_role_that_its_name_begins_with(group: str, named: bool) -> None:
    assert is_named(group, ("validator", "onex")) == named


def test_the_platforms_own_readers_are_nobodys_strangers() -> None:
    assert is_own("onex-platform-spark")
    assert not is_own("onexplatform")


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30))
def test_a_group_that_stops_is_broken_within_two_periods_and_one_that_reads_never(
    reads: list[int], stops_at: int
) -> None:
    """The group is looked at every ten seconds; each time it takes what has come, or less often,
    until it stops."""
    sample: Sample | None = None
    awaited: Awaited | None = None
    end, position = 0, 0
    stopped_since = None
    for tick in range(60):
        now = at(10 * tick)
        if is_sample_due(sample, now, PERIOD):
            sample = Sample("topic", 0, end, now)
            end += 1
        if tick < stops_at:
            lazy = reads[tick % len(reads)] if reads else 0
            position = max(position, end - (1 if lazy == 3 else 0))
        elif stopped_since is None:
            stopped_since = now
        state = judged(
            GroupLook("topic", "group", {0: position}, end - position, 1), awaited, sample
        )
        awaited = state.awaited
        broken = is_broken(state, now, PERIOD)
        if stopped_since is None:
            assert not broken or reads.count(3) > 1
        elif now >= stopped_since + 2 * PERIOD:
            assert broken


def test_a_group_waits_for_the_oldest_sample_that_it_has_not_passed() -> None:
    look = GroupLook("topic", "group", {0: 5}, 1, 0)
    old, new = Awaited(0, 5, at(0)), Sample("topic", 1, 7, at(HALF))
    assert judged(look, old, new).awaited == old
    passed = GroupLook("topic", "group", {0: 6}, 1, 0)
    assert judged(passed, old, new).awaited == Awaited(1, 7, at(HALF))
    assert judged(GroupLook("topic", "group", {0: 6, 1: 8}, 0, 0), old, new).awaited is None
    anew = Sample("topic", 0, 0, at(HALF))
    assert judged(GroupLook("topic", "group", {0: 1}, 0, 0), old, anew).awaited is None
    assert not is_broken(GroupState(look, old), at(59), PERIOD)
    assert is_broken(GroupState(look, old), at(60), PERIOD)

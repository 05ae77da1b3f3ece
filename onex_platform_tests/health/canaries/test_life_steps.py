"""The canary's life by the table of its steps, and when one begins, is stuck, is through."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.envelope import parse_payload
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import CANARY_TENANT
from onex_platform.health.canaries.life_steps import (
    MEASURES,
    STEPS,
    Life,
    is_due,
    is_stuck,
    next_epoch,
    said,
)
from onex_platform_tests.support.events import at

PERIOD = timedelta(seconds=60)
NAMES = [step.name for step in STEPS]


def life(steps: int = 0, *, ended: float | None = None) -> Life:
    taken = {name: at(number) for number, name in enumerate(NAMES[:steps])}
    return Life(1, at(0), taken, None if ended is None else at(ended))


@given(st.integers(0, len(STEPS)), st.integers(0, 200))
def test_a_life_is_stuck_after_a_period_unless_it_is_through(steps: int, seconds: int) -> None:
    stuck = steps < len(STEPS) and seconds >= 60
    assert is_stuck(life(steps), at(seconds), PERIOD) == stuck
    following = life(steps).next_step
    assert (following is None) == (steps == len(STEPS))
    if following is not None:
        assert following.name == NAMES[steps]


@given(st.integers(0, 200), st.one_of(st.none(), st.integers(0, 200)))
def test_the_next_life_begins_a_period_after_the_last_and_never_beside_it(
    seconds: int, ended: int | None
) -> None:
    due = is_due(life(3, ended=ended), at(seconds), PERIOD)
    assert due == (ended is not None and seconds >= 60)
    assert is_due(None, at(seconds), PERIOD)


@given(st.integers(0, 2**60), st.integers(-1000, 1000))
def test_epochs_rise_whatever_the_clock_does(epoch: int, seconds: int) -> None:
    assert next_epoch(Life(epoch, at(0)), at(seconds)) > epoch


def test_what_is_said_twice_is_one_event_and_another_life_says_others() -> None:
    for step in STEPS:
        if step.says is None:
            continue
        first, again = said(step.says, life(), at(0)), said(step.says, life(), at(9))
        assert first.event_id == again.event_id
        assert first.event_id != said(step.says, Life(2, at(0)), at(0)).event_id
        assert first.tenant == CANARY_TENANT
        parse_payload(step.says, first.payload)


def test_every_measure_is_between_two_steps_in_their_order() -> None:
    for start, end in MEASURES.values():
        assert NAMES.index(start) < NAMES.index(end)
    assert set(life(len(STEPS)).seconds()) == set(MEASURES)
    assert life(1).seconds() == {}
    assert STEPS[0].says is EnumEventKind.NODE_INTROSPECTION

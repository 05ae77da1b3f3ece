"""The phase machine: what keeps a phase, whatever was measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from onex_platform.migration.phases import (
    BEFORE,
    NEXT,
    Evidence,
    GroupEvidence,
    conditions,
    in_the_way,
)
from onex_platform.migration.sides import Comparison
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase

_NOW = datetime(2026, 3, 1, tzinfo=UTC)
_NAMES = st.lists(st.text("abc", min_size=1, max_size=3), max_size=2).map(tuple)
_SMALL = st.integers(0, 3)
_SPANS = st.integers(0, 3).map(lambda n: timedelta(hours=n))
_SIDES = st.builds(Comparison, _SMALL, _NAMES, _NAMES, _NAMES, _NAMES)
_GROUPS = st.builds(
    GroupEvidence, st.just("old"), st.just("new"), st.booleans(), _SMALL, _SMALL, _SMALL
)
_EVIDENCE = st.builds(
    Evidence,
    now=st.just(_NOW),
    entered_at=_SPANS.map(lambda span: _NOW - span),
    lasts=_SPANS,
    retention=_SPANS,
    drift=_NAMES,
    missing_rights=_NAMES,
    strange_groups=_NAMES,
    retired_name=st.booleans(),
    sides=_SIDES,
    groups=st.lists(_GROUPS, max_size=1).map(tuple),
    lag_records=_SMALL,
    unmirrored=_SMALL,
    can_be_written=st.sampled_from([None, True, False]),
    appended=_SMALL,
    unarchived=st.one_of(st.none(), _SMALL),
)


def _is_safe(phase: Phase, seen: Evidence) -> bool:
    """Whether leaving the phase loses nothing: the same rules, said another way."""
    complete = not seen.sides.missing_on_target
    both = complete and not seen.sides.missing_on_source and not seen.sides.disordered
    both = both and not seen.unmirrored
    read = not seen.strange_groups and all(
        group.handed_over and group.members == group.moved == 0 and group.lag <= seen.lag_records
        for group in seen.groups
    )
    return {
        Phase.ASSESS: not (
            seen.drift or seen.missing_rights or seen.strange_groups or seen.retired_name
        ),
        Phase.DUAL: both,
        Phase.MOVE: both and read,
        Phase.FREEZE: complete and read and not seen.appended and not seen.unarchived,
        Phase.RETIRED: True,
    }[phase]


def _is_ready(phase: Phase, seen: Evidence) -> bool:
    """Whether nothing else is in the way either."""
    elapsed = seen.elapsed
    return {
        Phase.DUAL: elapsed >= seen.lasts and not seen.sides.doubled,
        Phase.MOVE: not seen.sides.doubled,
        Phase.FREEZE: elapsed >= seen.retention and seen.can_be_written is False,
    }.get(phase, True)


@given(st.sampled_from(Phase), _EVIDENCE)
def test_force_waives_what_is_no_loss_and_nothing_else(phase: Phase, seen: Evidence) -> None:
    found = conditions(phase, seen)
    assert (not in_the_way(found, forced=True)) == _is_safe(phase, seen)
    assert (not in_the_way(found)) == (_is_safe(phase, seen) and _is_ready(phase, seen))


@given(st.sampled_from(Phase), _EVIDENCE)
def test_every_condition_says_its_value_and_its_bound(phase: Phase, seen: Evidence) -> None:
    for condition in conditions(phase, seen):
        assert condition.value
        assert condition.bound
        assert (condition.value in str(condition)) and (condition.bound in str(condition))
        assert all(name in str(condition) for name in condition.named)
        if condition.named:
            assert not condition.holds


def test_each_phase_leads_to_the_next_and_back() -> None:
    assert list(NEXT) == list(Phase)[:-1]
    assert all(BEFORE[NEXT[phase]] is phase for phase in NEXT)
    assert [phase for phase in Phase if phase.writes_both] == [Phase.DUAL, Phase.MOVE]
    assert [phase for phase in Phase if phase.has_moved] == [Phase.FREEZE, Phase.RETIRED]

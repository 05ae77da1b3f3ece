"""Every state and event pair does exactly what the decisions say, and nothing else is legal."""

from __future__ import annotations

import pytest

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.reference.plain_fold import apply
from onex_platform.domain.states import EnumOutcome, EnumRegistrationState
from onex_platform.domain.transitions import INFORMATIONAL, TRANSITIONS, find_transition
from onex_platform_tests.support.events import event, row

Kind = EnumEventKind
S = EnumRegistrationState
SAME = "same"

# Written out by hand, so that a slip in the table has something to disagree with.
JOINING = (S.PENDING_REGISTRATION, S.ACCEPTED, S.AWAITING_ACK, S.ACK_RECEIVED)
LEGAL: dict[tuple[Kind, S], S | str] = {
    **{(Kind.NODE_INTROSPECTION, state): SAME for state in (*JOINING, S.ACTIVE)},
    (Kind.NODE_INTROSPECTION, S.ACK_TIMED_OUT): S.PENDING_REGISTRATION,
    (Kind.NODE_ACCEPTED, S.PENDING_REGISTRATION): S.ACCEPTED,
    (Kind.REGISTRATION_FAILED, S.PENDING_REGISTRATION): S.REJECTED,
    (Kind.ACK_REQUESTED, S.ACCEPTED): S.AWAITING_ACK,
    (Kind.NODE_ACK, S.AWAITING_ACK): S.ACK_RECEIVED,
    (Kind.NODE_REGISTERED, S.ACK_RECEIVED): S.ACTIVE,
    **{(Kind.NODE_HEARTBEAT, state): SAME for state in (*JOINING, S.ACTIVE, S.ACK_TIMED_OUT)},
    (Kind.ACK_TIMED_OUT, S.ACCEPTED): S.ACK_TIMED_OUT,
    (Kind.ACK_TIMED_OUT, S.AWAITING_ACK): S.ACK_TIMED_OUT,
    (Kind.LIVENESS_EXPIRED, S.ACTIVE): S.LIVENESS_EXPIRED,
    **{(Kind.NODE_DEREGISTERED, state): SAME for state in S},
    **{(Kind.NODE_SHUTDOWN, state): SAME for state in S},
    **{(Kind.INTROSPECTION_REQUESTED, state): SAME for state in S},
}


def event_of(kind: Kind, state: S) -> LogEvent:
    """An event of the current life that names the deadline the row has, if it names one."""
    standing = row(state)
    deadline = standing.ack_deadline or standing.liveness_deadline
    judges = kind in (Kind.ACK_TIMED_OUT, Kind.LIVENESS_EXPIRED)
    return event(kind, 200, 5, epoch=1, deadline=deadline if judges else None)


NODE_KINDS = [kind for kind in Kind if not kind.value.startswith(("registry.workflow", "infra"))]


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("kind", NODE_KINDS)
def test_pair(kind: Kind, state: S) -> None:
    before = row(state)
    after, outcome, _ = apply(before, event_of(kind, state))
    expected = LEGAL.get((kind, state))
    assert after is not None
    if expected is None:
        assert outcome is EnumOutcome.ILLEGAL
        assert after is before
    else:
        assert outcome is EnumOutcome.APPLIED
        assert after.current_state is (state if expected == SAME else expected)


@pytest.mark.parametrize("kind", NODE_KINDS)
def test_an_unknown_node_can_only_introspect(kind: Kind) -> None:
    after, outcome, _ = apply(None, event_of(kind, S.ACTIVE))
    if kind is Kind.NODE_INTROSPECTION:
        assert after is not None
        assert after.current_state is S.PENDING_REGISTRATION
    else:
        assert after is None
        expected = EnumOutcome.APPLIED if kind in INFORMATIONAL else EnumOutcome.ILLEGAL
        assert outcome is expected


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("kind", [k for k in NODE_KINDS if k not in INFORMATIONAL])
def test_a_closed_row_takes_nothing_of_its_own_life(kind: Kind, state: S) -> None:
    closed = row(state, deregistered_at=row(state).introspected_at)
    after, outcome, _ = apply(closed, event_of(kind, state))
    assert outcome is EnumOutcome.ILLEGAL
    assert after is closed


@pytest.mark.parametrize("state", list(S))
def test_a_higher_epoch_begins_a_new_life_from_every_state(state: S) -> None:
    after, outcome, _ = apply(row(state), event(Kind.NODE_INTROSPECTION, 200, 5, epoch=2))
    assert outcome is EnumOutcome.APPLIED
    assert after is not None
    assert (after.current_state, after.epoch) == (S.PENDING_REGISTRATION, 2)


def test_a_failure_that_may_be_retried_is_recorded_without_a_change_of_state() -> None:
    after, outcome, _ = apply(
        row(S.PENDING_REGISTRATION),
        event(Kind.REGISTRATION_FAILED, 200, retry_eligible=True, error_code="CONSUL_DOWN"),
    )
    assert outcome is EnumOutcome.APPLIED
    assert after is not None
    assert (after.current_state, after.failure_code) == (S.PENDING_REGISTRATION, "CONSUL_DOWN")


def test_no_pair_is_claimed_by_two_rows_of_the_table() -> None:
    claims = [(t.kind, t.life, source, t.when) for t in TRANSITIONS for source in t.sources]
    assert len(claims) == len(set(claims))


def test_every_row_of_the_table_can_be_found() -> None:
    for transition in TRANSITIONS:
        for source in transition.sources:
            found = find_transition(
                transition.kind, transition.life, source, transition.when.name == "RETRYABLE"
            )
            assert found is transition

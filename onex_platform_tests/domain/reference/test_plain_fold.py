"""What a transition does to the row: deadlines, markers, time, lives, tenants."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import apply, replay
from onex_platform.domain.states import EnumNodeType, EnumOutcome, EnumRegistrationState
from onex_platform_tests.support.events import NODE, at, event, row

Kind = EnumEventKind
S = EnumRegistrationState


def applied(
    before: ModelRegistrationProjection | None, *events: LogEvent
) -> ModelRegistrationProjection:
    for item in events:
        before, outcome, reason = apply(before, item)
        assert outcome is EnumOutcome.APPLIED, reason
    assert before is not None
    return before


def outcome_of(before: ModelRegistrationProjection, item: LogEvent) -> EnumOutcome:
    after, outcome, _ = apply(before, item)
    if outcome is not EnumOutcome.APPLIED:
        assert after is before
    return outcome


def test_a_whole_life() -> None:
    node = applied(None, event(Kind.NODE_INTROSPECTION, 8, 0, node_version="1.0.0"))
    assert (node.current_state, node.epoch, node.ack_deadline) == (S.PENDING_REGISTRATION, 1, None)
    node = applied(node, event(Kind.NODE_ACCEPTED, 16, 1))
    assert node.ack_deadline == at(31)
    node = applied(node, event(Kind.ACK_REQUESTED, 24, 2))
    assert node.ack_deadline == at(32)
    node = applied(node, event(Kind.NODE_ACK, 32, 3))
    assert (node.ack_deadline, node.liveness_deadline) == (None, None)
    node = applied(node, event(Kind.NODE_REGISTERED, 40, 4))
    assert (node.liveness_deadline, node.registered_at) == (at(64), at(4))
    node = applied(node, event(Kind.NODE_HEARTBEAT, 48, 30))
    assert (node.liveness_deadline, node.last_heartbeat_at) == (at(120), at(30))
    assert node.last_state_change_at == at(4)
    node = applied(node, event(Kind.NODE_DEREGISTERED, 56, 50))
    assert (node.deregistered_at, node.liveness_deadline) == (at(50), None)
    assert (node.current_state, node.last_state_change_at) == (S.ACTIVE, at(4))


def test_a_heartbeat_moves_life_forward_only() -> None:
    node = row(S.ACTIVE, last_heartbeat_at=at(40), liveness_deadline=at(130))
    late = applied(node, event(Kind.NODE_HEARTBEAT, 200, 10))
    assert (late.last_heartbeat_at, late.liveness_deadline) == (at(40), at(130))
    assert late.last_applied_sequence == 200


def test_a_first_heartbeat_shorter_than_the_life_granted_does_not_shorten_it() -> None:
    node = row(S.ACTIVE, liveness_deadline=at(1000))
    assert applied(node, event(Kind.NODE_HEARTBEAT, 200, 1)).liveness_deadline == at(1000)


@pytest.mark.parametrize(
    "state", [s for s in S if not s.is_terminal() and s is not S.ACTIVE], ids=str
)
def test_a_heartbeat_of_an_inactive_node_grants_no_life(state: S) -> None:
    node = applied(row(state), event(Kind.NODE_HEARTBEAT, 200, 10))
    assert (node.last_heartbeat_at, node.liveness_deadline) == (at(10), None)
    assert node.ack_deadline == row(state).ack_deadline


def test_a_heartbeat_leaves_the_provenance_of_the_last_change() -> None:
    before = row(S.ACTIVE)
    after = applied(before, event(Kind.NODE_HEARTBEAT, 200, 10))
    assert after.last_applied_event_id == before.last_applied_event_id
    assert after.last_applied_offset == before.last_applied_offset


@pytest.mark.parametrize("off_by", [timedelta(microseconds=1), -timedelta(microseconds=1)])
@pytest.mark.parametrize(
    ("kind", "state"),
    [(Kind.ACK_TIMED_OUT, S.AWAITING_ACK), (Kind.LIVENESS_EXPIRED, S.ACTIVE)],
)
def test_a_timeout_counts_only_for_the_deadline_that_stands(
    kind: Kind, state: S, off_by: timedelta
) -> None:
    node = row(state)
    standing = node.ack_deadline or node.liveness_deadline
    assert standing is not None
    assert outcome_of(node, event(kind, 200, 90, deadline=standing)) is EnumOutcome.APPLIED
    assert outcome_of(node, event(kind, 200, 90, deadline=standing + off_by)) is EnumOutcome.STALE


def test_a_heartbeat_in_the_log_before_the_expiry_wins() -> None:
    node = row(S.ACTIVE)
    beaten = applied(node, event(Kind.NODE_HEARTBEAT, 200, 20))
    expiry = event(Kind.LIVENESS_EXPIRED, 208, 61, deadline=at(60))
    assert outcome_of(beaten, expiry) is EnumOutcome.STALE


def test_timeouts_leave_their_marks_and_disarm() -> None:
    unheard = applied(row(S.AWAITING_ACK), event(Kind.ACK_TIMED_OUT, 200, 31, deadline=at(30)))
    assert (unheard.ack_timeout_emitted_at, unheard.ack_deadline) == (at(31), None)
    silent = applied(row(S.ACTIVE), event(Kind.LIVENESS_EXPIRED, 200, 61, deadline=at(60)))
    assert (silent.liveness_timeout_emitted_at, silent.liveness_deadline) == (at(61), None)


def test_a_late_ack_is_illegal_once_the_timeout_stands_in_the_log() -> None:
    unheard = applied(row(S.AWAITING_ACK), event(Kind.ACK_TIMED_OUT, 200, 31, deadline=at(30)))
    assert outcome_of(unheard, event(Kind.NODE_ACK, 208, 29)) is EnumOutcome.ILLEGAL
    # Before that it is in time, however late it is by the clock.
    assert outcome_of(row(S.AWAITING_ACK), event(Kind.NODE_ACK, 200, 500)) is EnumOutcome.APPLIED


def test_a_retry_after_an_ack_timeout_arms_the_deadline_anew() -> None:
    node = applied(
        row(S.ACK_TIMED_OUT, ack_timeout_emitted_at=at(31)),
        event(Kind.NODE_INTROSPECTION, 200, 40, epoch=1),
        event(Kind.NODE_ACCEPTED, 208, 41),
    )
    assert (node.ack_timeout_emitted_at, node.ack_deadline) == (None, at(71))
    assert node.needs_ack_timeout_event(at(72))


def test_a_new_life_clears_the_old_one_but_keeps_when_it_was_first_registered() -> None:
    node = row(
        S.LIVENESS_EXPIRED,
        registered_at=at(-90),
        liveness_timeout_emitted_at=at(-10),
        ack_timeout_emitted_at=at(-60),
        failure_code="OLD",
        failure_message="old",
        last_heartbeat_at=at(-40),
    )
    reborn = applied(node, event(Kind.NODE_INTROSPECTION, 200, 5, epoch=7, node_type="compute"))
    assert reborn.epoch == 7
    assert reborn.node_type is EnumNodeType.COMPUTE
    assert (reborn.liveness_timeout_emitted_at, reborn.ack_timeout_emitted_at) == (None, None)
    assert (reborn.failure_code, reborn.failure_message) == (None, None)
    again = applied(
        reborn,
        event(Kind.NODE_ACCEPTED, 208, 6),
        event(Kind.ACK_REQUESTED, 216, 7),
        event(Kind.NODE_ACK, 224, 8),
        event(Kind.NODE_REGISTERED, 232, 9),
    )
    assert again.registered_at == at(-90)


@pytest.mark.parametrize("ended", [{"deregistered_at": at(-1)}, {"state": S.REJECTED}])
def test_a_missing_epoch_means_the_next_life_once_the_current_one_is_over(ended: dict) -> None:
    state = ended.pop("state", S.ACTIVE)
    over = row(state, **ended)
    if over.is_closed():
        over = over.model_copy(update={"liveness_deadline": None})
    reborn = applied(over, event(Kind.NODE_INTROSPECTION, 200, 5))
    assert (reborn.epoch, reborn.current_state) == (2, S.PENDING_REGISTRATION)
    assert reborn.deregistered_at is None


def test_a_missing_epoch_means_the_current_life_while_it_lasts() -> None:
    refreshed = applied(row(S.ACTIVE), event(Kind.NODE_INTROSPECTION, 200, 5))
    assert (refreshed.epoch, refreshed.current_state) == (1, S.ACTIVE)


def test_an_echo_of_an_ended_life_does_not_revive_it() -> None:
    over = row(S.LIVENESS_EXPIRED, introspected_at=at(0))
    assert outcome_of(over, event(Kind.NODE_INTROSPECTION, 200, -5)) is EnumOutcome.STALE


def test_an_introspection_older_than_the_last_one_is_stale() -> None:
    node = row(S.ACTIVE, introspected_at=at(0))
    assert outcome_of(node, event(Kind.NODE_INTROSPECTION, 200, -5)) is EnumOutcome.STALE
    assert outcome_of(node, event(Kind.NODE_INTROSPECTION, 200, 0)) is EnumOutcome.APPLIED


@pytest.mark.parametrize("kind", [Kind.NODE_HEARTBEAT, Kind.NODE_ACK, Kind.NODE_INTROSPECTION])
def test_an_event_of_an_older_epoch_never_touches_a_newer_life(kind: Kind) -> None:
    node = row(S.AWAITING_ACK, epoch=5)
    assert outcome_of(node, event(kind, 200, 5, epoch=4)) is EnumOutcome.STALE


def test_an_epoch_that_has_not_begun_is_illegal_for_all_but_introspection() -> None:
    assert outcome_of(row(S.ACTIVE), event(Kind.NODE_HEARTBEAT, 200, 5, epoch=2)) is (
        EnumOutcome.ILLEGAL
    )


def test_the_tenant_that_registered_first_keeps_the_node() -> None:
    node = row(S.ACTIVE)
    for kind in (Kind.NODE_HEARTBEAT, Kind.NODE_INTROSPECTION, Kind.NODE_DEREGISTERED):
        assert outcome_of(node, event(kind, 200, 5, epoch=9, tenant="other")) is EnumOutcome.PARKED


@pytest.mark.parametrize("position", [1, 99, 100])
def test_a_position_that_is_folded_already_is_stale_equality_included(position: int) -> None:
    assert outcome_of(row(S.ACTIVE), event(Kind.NODE_HEARTBEAT, position, 5)) is EnumOutcome.STALE
    assert outcome_of(row(S.ACTIVE), event(Kind.NODE_HEARTBEAT, 101, 5)) is EnumOutcome.APPLIED


def test_a_duplicate_is_known_by_its_mark_alone() -> None:
    assert outcome_of(row(S.ACTIVE), event(Kind.NODE_ACK, 200, duplicate=True)) is (
        EnumOutcome.DUPLICATE
    )


def test_last_state_change_moves_only_with_the_state() -> None:
    before = row(S.PENDING_REGISTRATION)
    reborn = applied(before, event(Kind.NODE_INTROSPECTION, 200, 5, epoch=2))
    assert reborn.last_state_change_at == before.last_state_change_at


def test_a_description_replaces_the_earlier_one_as_a_whole() -> None:
    rows = replay(
        [
            event(
                Kind.NODE_INTROSPECTION,
                8,
                capabilities={"read": True},
                endpoints={"health": "x"},
                metadata={"region": "eu"},
            ),
            event(Kind.NODE_INTROSPECTION, 16, 1, capabilities={"write": True}),
        ]
    )
    node = rows["registration", NODE]
    assert node.capabilities.names() == {"write"}
    assert (node.endpoints, node.metadata) == ({}, {})

"""The public models: staleness, strict deadlines, what a snapshot shows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onex_platform.domain.order import POSITION_STRIDE, moment_of, position_at
from onex_platform.domain.projection import ModelRegistrationSnapshot, ModelSequenceInfo
from onex_platform.domain.reference.log_order import number
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform_tests.support.events import NODE, Kind, at, event, number_id, row

S = EnumRegistrationState
TICK = timedelta(microseconds=1)


def test_equality_is_stale_and_offsets_never_order() -> None:
    place = ModelSequenceInfo(sequence=10, topic="a", partition=0, offset=99)
    elsewhere = ModelSequenceInfo(sequence=11, topic="b", partition=1, offset=0)
    assert place.is_stale_compared_to(place)
    assert place.is_stale_compared_to(elsewhere)
    assert not elsewhere.is_stale_compared_to(place)


@pytest.mark.parametrize(("now", "passed"), [(-TICK, False), (0 * TICK, False), (TICK, True)])
def test_a_deadline_is_passed_only_strictly_after_it(now: timedelta, passed: bool) -> None:
    assert row(S.AWAITING_ACK).needs_ack_timeout_event(at(30) + now) is passed
    assert row(S.ACTIVE).needs_liveness_timeout_event(at(60) + now) is passed


def test_no_timeout_is_due_without_an_armed_deadline_or_once_it_was_emitted() -> None:
    late = at(10_000)
    for state in S:
        assert row(state).needs_ack_timeout_event(late) is state.awaits_ack()
        assert row(state).needs_liveness_timeout_event(late) is state.requires_liveness()
    assert not row(S.ACTIVE, liveness_timeout_emitted_at=at(0)).needs_liveness_timeout_event(late)
    assert not row(S.ACCEPTED, ack_timeout_emitted_at=at(0)).needs_ack_timeout_event(late)


def test_terminal_and_retriable_states() -> None:
    assert {state for state in S if state.is_terminal()} == {S.REJECTED, S.LIVENESS_EXPIRED}
    assert len(S) == 8


def test_node_types_are_read_in_any_case() -> None:
    assert EnumNodeType("EFFECT") is EnumNodeType("effect") is EnumNodeType("Effect")
    with pytest.raises(ValueError, match="WIZARD"):
        EnumNodeType("WIZARD")


def test_a_snapshot_takes_its_version_from_the_row_and_survives_json() -> None:
    snapshot = ModelRegistrationSnapshot.from_projection(
        row(S.ACTIVE, row_version=42, node_name="adapter"), snapshot_created_at=at(1)
    )
    assert snapshot.snapshot_version == 42
    assert snapshot.to_kafka_key() == str(NODE)
    assert snapshot.is_active()
    assert ModelRegistrationSnapshot.model_validate_json(snapshot.model_dump_json()) == snapshot
    newer = snapshot.model_copy(update={"snapshot_version": 43})
    assert newer.is_newer_than(snapshot)
    assert not snapshot.is_newer_than(snapshot)


def test_a_cut_is_numbered_by_time_then_place_in_life_then_provenance() -> None:
    cut = [
        event(Kind.NODE_DEREGISTERED, 1, 5),
        event(Kind.NODE_HEARTBEAT, 3, 5),
        event(Kind.NODE_HEARTBEAT, 2, 5),
        event(Kind.NODE_INTROSPECTION, 4, 5),
        event(Kind.NODE_SHUTDOWN, 5, 4),
    ]
    numbered = list(number(cut, at(0), at(9)))
    assert [e.provenance.offset for e in numbered if e.provenance] == [5, 4, 2, 3, 1]
    first = position_at(at(5))
    assert [e.position for e in numbered] == [
        position_at(at(4)),
        *(first + POSITION_STRIDE * rank for rank in range(4)),
    ]


def test_a_late_event_takes_its_place_at_the_end_of_the_log() -> None:
    late, punctual = number(
        [event(Kind.NODE_HEARTBEAT, 1, 10), event(Kind.NODE_HEARTBEAT, 2, 3)], at(10), at(11)
    )
    assert late.occurred_at == at(3)
    assert late.position == position_at(at(10)) < punctual.position


def test_a_position_tells_when_its_event_entered_the_log() -> None:
    moment = at(1) + timedelta(microseconds=1234)
    assert moment_of(position_at(moment) + 77) == at(1) + timedelta(milliseconds=1)
    assert position_at(at(1)) < position_at(moment) < 2**63


def test_each_entity_is_counted_on_its_own() -> None:
    other = number_id(7)
    cut = [event(Kind.NODE_HEARTBEAT, n, 1, node=node) for n in (1, 2) for node in (NODE, other)]
    first = position_at(at(1))
    places = {(e.entity.entity_id, e.position - first) for e in number(cut, at(0), at(9))}
    assert places == {(NODE, 0), (NODE, 8), (other, 0), (other, 8)}

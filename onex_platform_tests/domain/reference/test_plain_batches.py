"""Live equals replay, wherever the history is cut and whatever is delivered twice."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import fold_batch, replay
from onex_platform.domain.states import EnumNodeType
from onex_platform_tests.support.events import NODE, START, State, at, event, record
from onex_platform_tests.support.histories import Run, records, run_in_cuts, with_repeats
from onex_platform_tests.support.model_fold import as_plain, fold_plainly

Kind = EnumEventKind
INSTANTS = st.lists(st.integers(0, 1500), max_size=6)
# Facts carry the later of now and their cause's time; with an early `now` that is the cause's.
LONG_AGO = START


@given(history=records())
@settings(max_examples=300, deadline=None)
def test_the_fold_agrees_with_an_independent_one(history: list[RawRecord]) -> None:
    run = run_in_cuts(history, [])
    rows, counts = fold_plainly(run.log)
    assert {key: as_plain(row) for key, row in run.rows.items()} == rows
    assert run.outcomes == counts
    assert sum(counts.values()) == len(run.log) == len(history)


@pytest.mark.parametrize("state", list(State))
def test_the_generated_histories_reach_every_state(state: State) -> None:
    def reaches(history: list[RawRecord]) -> bool:
        rows = run_in_cuts(history, []).rows.values()
        return any(row.current_state is state for row in rows)

    find(records(), reaches, settings=settings(max_examples=2000, deadline=None, database=None))


@given(history=records(), instants=INSTANTS)
@settings(max_examples=150, deadline=None)
def test_where_a_history_is_cut_changes_nothing(
    history: list[RawRecord], instants: list[int]
) -> None:
    assert run_in_cuts(history, instants).rows == run_in_cuts(history, []).rows


@given(history=records(), instants=INSTANTS)
@settings(max_examples=150, deadline=None)
def test_where_a_decided_history_is_cut_changes_nothing(
    history: list[RawRecord], instants: list[int]
) -> None:
    policy = RegistrationPolicy()
    whole = run_in_cuts(history, [], policy, LONG_AGO)
    assert run_in_cuts(history, instants, policy, LONG_AGO).rows == whole.rows


@given(data=st.data(), history=records(), instants=INSTANTS)
@settings(max_examples=150, deadline=None)
def test_what_is_delivered_twice_changes_nothing(
    data: st.DataObject, history: list[RawRecord], instants: list[int]
) -> None:
    once = run_in_cuts(history, [])
    twice = run_in_cuts(data.draw(with_repeats(history)), instants)
    beats = {Kind.NODE_HEARTBEAT}
    applied_once = [e for e in once.log if e.kind not in beats]
    applied_twice = [e for e in twice.log if e.kind not in beats and not e.duplicate]
    assert [e.event_id for e in applied_twice] == [e.event_id for e in applied_once]
    assert {k: without_provenance(r) for k, r in twice.rows.items()} == {
        k: without_provenance(r) for k, r in once.rows.items()
    }


def without_provenance(row: ModelRegistrationProjection) -> dict[str, object]:
    return row.model_dump(
        exclude={
            "last_applied_sequence",
            "last_applied_topic",
            "last_applied_partition",
            "last_applied_offset",
        }
    )


@given(history=records(), instants=INSTANTS, hurry=st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_replay_without_the_decider_gives_the_live_rows(
    history: list[RawRecord], instants: list[int], hurry: int
) -> None:
    strict = RegistrationPolicy(
        node_types=frozenset({EnumNodeType.EFFECT}),
        required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})},
    )
    live = run_in_cuts(history, instants, strict, at(hurry))
    assert replay(live.log) == live.rows
    # A later policy judges nothing again: the log alone says what was decided.
    rows, _ = fold_plainly(live.log)
    assert {key: as_plain(row) for key, row in live.rows.items()} == rows


@given(history=records())
@settings(max_examples=100, deadline=None)
def test_positions_rise_within_an_entity_and_facts_follow_their_cause(
    history: list[RawRecord],
) -> None:
    log = run_in_cuts(history, [100, 300], RegistrationPolicy(), LONG_AGO).log
    for entity in {e.entity for e in log}:
        places = [e.position for e in log if e.entity == entity]
        assert places == sorted(set(places))
    causes = {e.event_id: e.position for e in log}
    for fact in (e for e in log if e.cause_id is not None):
        assert 0 < fact.position - causes[fact.cause_id] < 8


def test_a_fact_that_comes_back_through_kafka_is_a_duplicate() -> None:
    run = run_in_cuts([record(Kind.NODE_INTROSPECTION, 1, offset=1)], [], RegistrationPolicy())
    facts = [e for e in run.log if e.cause_id is not None]
    rows = dict(run.rows)
    run.cut(
        [
            record(fact.kind, 5, offset=10 + n, event_id=fact.event_id, epoch=1)
            for n, fact in enumerate(facts)
        ],
        at(10),
    )
    assert [e.kind for e in facts] == [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED]
    assert run.outcomes["duplicate"] == 2
    assert run.rows == rows


def test_the_highest_epoch_that_is_let_in_leaves_room_for_the_lives_behind_it() -> None:
    life = [
        (Kind.NODE_INTROSPECTION, {"epoch": 2**62}),
        (Kind.NODE_SHUTDOWN, {}),
        (Kind.NODE_INTROSPECTION, {}),
        (Kind.NODE_ACK, {}),
    ]
    run = Run(RegistrationPolicy())
    for n, (kind, fields) in enumerate(life):
        run.cut([record(kind, n, offset=n, **fields)], at(n), at(n + 1))
    [row] = run.rows.values()
    assert (row.epoch, row.current_state) == (2**62 + 1, State.ACTIVE)
    # What the registry says of that life comes back, and is what it was.
    facts = [e for e in run.log if e.cause_id is not None]
    returned = [
        record(
            fact.kind,
            10,
            offset=100 + n,
            envelope={
                "event_id": str(fact.event_id),
                "payload": fact.payload.model_dump(mode="json", exclude_none=True),
            },
        )
        for n, fact in enumerate(facts)
    ]
    run.cut(returned, at(20), at(20))
    assert (run.outcomes["duplicate"], run.parked) == (len(facts), [])


def test_an_unknown_node_that_beats_is_asked_once_per_interval() -> None:
    beats = [record(Kind.NODE_HEARTBEAT, 30 * n, offset=n) for n in range(40)]
    run = run_in_cuts(beats, range(0, 1200, 100), RegistrationPolicy(), LONG_AGO)
    asked = [e for e in run.log if e.kind is Kind.INTROSPECTION_REQUESTED]
    # 1200 s of beats touch the four five-minute intervals that begin at noon.
    assert len(asked) == 4
    assert run.outcomes == {"illegal": 40, "applied": 4}


def test_a_batch_says_which_part_of_a_row_it_touched() -> None:
    rows = {}
    first = fold_batch(rows, [event(Kind.NODE_INTROSPECTION, 8)])
    change = first.changes[next(iter(first.changes))]
    assert (change.wide, change.liveness) == (True, True)
    rows = {key: c.row for key, c in first.changes.items()}
    beat = fold_batch(rows, [event(Kind.NODE_HEARTBEAT, 16, 1)])
    change = next(iter(beat.changes.values()))
    assert (change.wide, change.liveness) == (False, True)
    accept = fold_batch(rows, [event(Kind.NODE_ACCEPTED, 24, 2)])
    change = next(iter(accept.changes.values()))
    assert (change.wide, change.liveness) == (True, False)


def test_refusals_are_kept_for_the_audit_with_their_reason() -> None:
    batch = fold_batch(
        {},
        [
            event(Kind.NODE_ACK, 8),
            event(Kind.NODE_INTROSPECTION, 16),
            event(Kind.NODE_INTROSPECTION, 24, 1, tenant="other"),
        ],
    )
    assert [(r.outcome.value, r.event.position) for r in batch.refusals] == [
        ("illegal", 8),
        ("parked", 24),
    ]
    assert "unknown" in batch.refusals[0].reason
    assert "another tenant" in batch.refusals[1].reason
    assert batch.read == sum(batch.outcomes.values()) == 3


def test_a_batch_leaves_the_rows_it_was_given_alone() -> None:
    before = replay([event(Kind.NODE_INTROSPECTION, 8)])
    copy = {key: row.model_copy(deep=True) for key, row in before.items()}
    fold_batch(
        before,
        [event(Kind.NODE_ACCEPTED, 16, 1)],
        Decider(policy=RegistrationPolicy(), now=at(1)),
    )
    assert before == copy
    assert before[next(iter(before))].current_state is State.PENDING_REGISTRATION


def test_one_entity_in_two_domains_has_two_independent_rows() -> None:
    rows = replay(
        [
            event(Kind.NODE_INTROSPECTION, 8),
            event(Kind.NODE_INTROSPECTION, 16, domain="discovery"),
            event(Kind.NODE_ACCEPTED, 24, domain="discovery"),
        ]
    )
    states = {key.domain: row.current_state for key, row in rows.items()}
    assert {key.entity_id for key in rows} == {NODE}
    assert states == {"registration": State.PENDING_REGISTRATION, "discovery": State.ACCEPTED}


def test_time_of_a_fact_is_the_later_of_now_and_its_cause() -> None:
    def accepted_at(now: datetime) -> datetime:
        run = run_in_cuts([record(Kind.NODE_INTROSPECTION, 50)], [], RegistrationPolicy(), now)
        return next(e.occurred_at for e in run.log if e.kind is Kind.NODE_ACCEPTED)

    assert accepted_at(at(10)) == at(50)
    assert accepted_at(at(70)) == at(70)

"""The fold over columns agrees with the reference fold, cell by cell, decider or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain import machine
from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey, identify_node
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.order import position_at
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import fold_batch, replay
from onex_platform.domain.states import EnumNodeType, EnumOutcome
from onex_platform.ingest.event_schema import BEAT_COLUMNS, CAUSE_COLUMNS, to_events, to_table
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.containment import Fault
from onex_platform.projections.fold.row_columns import to_table as to_state_table
from onex_platform_tests.support.events import START, TENANT, at, event
from onex_platform_tests.support.histories import records, run_in_cuts

Kind = EnumEventKind
Rows = dict[EntityKey, ModelRegistrationProjection]


def feed(fold: BucketFold, events: Iterable[LogEvent]) -> None:
    events = list(events)
    fold.feed(
        to_table(e for e in events if e.kind is not Kind.NODE_HEARTBEAT),
        to_table(e for e in events if e.kind is Kind.NODE_HEARTBEAT).select(
            [*BEAT_COLUMNS, *CAUSE_COLUMNS]
        ),
    )


def rows_of(fold: BucketFold) -> Rows:
    return {change.row.key: change.row for change in fold.changes()}


@given(history=records(), chunks=st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_replay_in_any_chunks_gives_the_reference_rows(
    history: list[RawRecord], chunks: list[int]
) -> None:
    live = run_in_cuts(history, [], RegistrationPolicy(), START)
    fold = BucketFold("registration")
    for start, end in pairwise([0, *sorted(chunks), len(live.log)]):
        feed(fold, live.log[start:end])
    assert rows_of(fold) == live.rows
    assert fold.table() == to_state_table(fold.rows())
    assert {outcome.value: n for outcome, n in fold.outcomes.items()} == live.outcomes


@given(history=records(), instants=st.lists(st.integers(0, 1500), max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_live_run_in_any_cuts_decides_and_folds_like_the_reference(
    history: list[RawRecord], instants: list[int]
) -> None:
    policy = RegistrationPolicy(required_capabilities={EnumNodeType.EFFECT: frozenset({"read"})})
    live = run_in_cuts(history, instants, policy, START)
    rows: Rows = {}
    facts: list[LogEvent] = []
    known: set[UUID] = set()
    read = {position_at(at(instant)) for instant in (*instants, 1e9)}
    causes = [e for e in live.log if e.cause_id is None]
    for low, high in pairwise([0, *sorted(read)]):
        decider = Decider(policy=policy, now=START, known_facts=frozenset(known))
        fold = BucketFold("registration", rows.values(), decider)
        feed(fold, (e for e in causes if low <= e.position < high))
        rows |= rows_of(fold)
        decided = list(to_events(fold.fact_table(), "registration"))
        facts += decided
        known |= {fact.event_id for fact in decided}
        assert fold.table() == to_state_table(fold.rows())
    assert rows == live.rows
    in_log = [e for e in live.log if e.cause_id is not None]
    assert sorted(facts, key=str) == sorted(in_log, key=str)


@given(history=records())
@settings(max_examples=100, deadline=None)
def test_events_survive_the_page_schema(history: list[RawRecord]) -> None:
    log = run_in_cuts(history, [], RegistrationPolicy(), START).log
    assert list(to_events(to_table(log), "registration")) == log


def test_one_hot_node_is_folded_like_any_other() -> None:
    log = [event(Kind.NODE_INTROSPECTION, 8 * n, n, epoch=n) for n in range(1, 2001)]
    log += [event(Kind.NODE_HEARTBEAT, 8 * n + 4, n) for n in range(1, 2001)]
    fold = BucketFold("registration")
    feed(fold, sorted(log, key=lambda e: e.position))
    assert rows_of(fold) == replay(sorted(log, key=lambda e: e.position))


def test_a_run_of_refused_heartbeats_is_one_entry_of_the_audit() -> None:
    fold = BucketFold("registration", live=True)
    feed(fold, [event(Kind.NODE_HEARTBEAT, 8 * n, n) for n in range(1, 11)])
    assert [(entry.times, entry.event["position"]) for entry in fold.refused] == [(10, 8)]
    assert list(fold.changes()) == []


def test_a_live_run_announces_what_was_declared_here_and_took_effect() -> None:
    join = (Kind.NODE_INTROSPECTION, Kind.NODE_ACCEPTED)
    log = [event(kind, 8 * n, n) for n, kind in enumerate(join, 1)]
    timeout = event(Kind.ACK_TIMED_OUT, 80, 40, deadline=log[1].deadline)
    late = event(Kind.ACK_TIMED_OUT, 88, 41, deadline=log[1].deadline)
    own, stale = (replace(fact, provenance=None) for fact in (timeout, late))
    decided = replace(own, cause_id=log[0].event_id)
    for facts, announced in (([own, stale], [own]), ([timeout], []), ([decided], [])):
        live, again = BucketFold("registration", live=True), BucketFold("registration")
        for fold in (live, again):
            feed(fold, [*log, *facts])
        assert live.announced == announced == fold_batch({}, [*log, *facts]).announced
        assert again.announced == []


def test_of_a_node_that_is_excluded_the_events_are_counted_and_nothing_else() -> None:
    sick, well = (identify_node(name, TENANT).entity_id for name in ("sick", "well"))
    kinds = (Kind.NODE_HEARTBEAT, Kind.NODE_INTROSPECTION, Kind.NODE_HEARTBEAT)
    log = [
        event(kind, 8 * n, n, node=node, duplicate=n == 6)
        for n, kind in enumerate((*kinds, Kind.NODE_ACK, *kinds), 1)
        for node in (sick, well)
    ]
    fold = BucketFold("registration", live=True, excluded={sick.bytes})
    for chunk in (log[:6], log[6:]):
        feed(fold, chunk)
    expected = fold_batch({}, [e for e in log if e.entity.entity_id == well])
    assert rows_of(fold) == {key: change.row for key, change in expected.changes.items()}
    # Seven events, of which one is a duplicate and stays so.
    assert fold.set_aside == 6
    assert (fold.outcomes.total(), fold.outcomes[EnumOutcome.DUPLICATE]) == (len(log), 2)
    [(node, first)] = fold.aside.items()
    assert (node, first.event["position"], first.times) == (sick.bytes, 8, fold.set_aside)
    assert fold.strangers({sick.bytes, well.bytes}) == set()
    assert [row.entity_id for row in fold.rows()] == [well]


def test_what_a_step_raises_is_noted_with_its_event_and_the_walk_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [identify_node(f"node-{n}", TENANT).entity_id for n in range(5)]
    log = [event(Kind.NODE_INTROSPECTION, 8, 1, node=n, epoch=k) for k, n in enumerate(nodes)]
    whole = machine.step

    def step(life: Any, kind: int, position: int, tenant: Any, epoch: Any, *rest: Any) -> int:
        if epoch == 2:
            raise ZeroDivisionError("two")
        return whole(life, kind, position, tenant, epoch, *rest)

    monkeypatch.setattr(machine, "step", step)
    fold = BucketFold("registration")
    feed(fold, log)
    assert fold.faults == {
        nodes[2].bytes: Fault(
            "ZeroDivisionError: two", log[2].event_id.bytes, Kind.NODE_INTROSPECTION
        )
    }
    assert {key.entity_id for key in rows_of(fold)} == {*nodes} - {nodes[2]}

"""The fold over columns agrees with the reference fold, cell by cell, decider or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.batch import Decider, fold_batch, replay
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.order import position_at
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumNodeType
from onex_platform.pages.schema import BEAT_COLUMNS, CAUSE_COLUMNS, to_events, to_table
from onex_platform.projections.columns import to_table as to_state_table
from onex_platform.projections.kernel import BucketFold
from onex_platform_tests.domain.builders import START, at, event
from onex_platform_tests.domain.histories import records, run_in_cuts

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
        facts += fold.facts
        known |= {fact.event_id for fact in fold.facts}
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

"""Nodes that are folded together end as they do one by one, in every cell."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.event_schema import BEAT_COLUMNS, CAUSE_COLUMNS, to_events, to_table
from onex_platform.projections.fold import alike, column_fold
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.row_columns import STATE_SCHEMA, of_nodes
from onex_platform_tests.support.events import at
from onex_platform_tests.support.herds import KINDS, POLICIES, REASONS, Batch, deed, herds

Kind = EnumEventKind
EVERYBODY, NOBODY = 1, sys.maxsize
WHOLE = alike.Group


class Registry:
    """Folds batch after batch; nodes that are alike are folded together if they are so many."""

    def __init__(
        self, worthwhile: int, policy: RegistrationPolicy, known: Iterable[UUID] = ()
    ) -> None:
        self._worthwhile = worthwhile
        self._policy = policy
        self._rows = STATE_SCHEMA.empty_table()
        self._known = set(known)
        self.together: Counter[str] = Counter()

    def fold(
        self, chunks: Sequence[Sequence[LogEvent]], now: float, excluded: frozenset[bytes]
    ) -> dict[str, Any]:
        decider = Decider(policy=self._policy, now=at(now), known_facts=frozenset(self._known))
        fold = BucketFold("registration", (), decider, live=True, excluded=excluded)
        with (
            mock.patch.object(alike, "WORTHWHILE", self._worthwhile),
            mock.patch.object(alike, "Group", self._counted),
        ):
            for events in chunks:
                feed(fold, events, self._rows)
        assert fold.faults == {}
        changed, facts, table = fold.changed(), fold.fact_table(), fold.table()
        met = set(table["entity_id"].to_pylist())
        others = [node for node in self._rows["entity_id"].to_pylist() if node not in met]
        self._rows = pa.concat_tables([of_nodes(self._rows, others), table]).sort_by("entity_id")
        self._known |= {UUID(bytes=event_id) for event_id in facts["event_id"].to_pylist()}
        return {
            "rows": self._rows,
            "wide": changed.wide.sort_by("entity_id"),
            "liveness": changed.liveness.sort_by("entity_id"),
            "facts": facts.sort_by([("position", "ascending"), ("entity_id", "ascending")]),
            "events": sorted(to_events(facts, "registration"), key=str),
            "changes": {change.row.entity_id: change for change in fold.changes()},
            "outcomes": fold.outcomes,
            "refused": [(item.event["position"], item.verdict) for item in fold.refused],
            "aside": fold.aside,
            "size": fold.size,
        }

    def _counted(self, **parts: Any) -> alike.Group:
        group = WHOLE(**parts)
        self.together += Counter(parts["rows"]["current_state"].to_pylist())
        return group


def feed(fold: BucketFold, events: Sequence[LogEvent], rows: pa.Table) -> None:
    fold.meet_columns(
        of_nodes(rows, fold.strangers(event.entity.entity_id.bytes for event in events))
    )
    beats = to_table(event for event in events if event.kind is Kind.NODE_HEARTBEAT)
    fold.feed(
        to_table(event for event in events if event.kind is not Kind.NODE_HEARTBEAT),
        beats.select([*BEAT_COLUMNS, *CAUSE_COLUMNS]),
    )


@given(
    herd=herds(), policy=st.sampled_from(POLICIES), excluded=st.integers(0, 3), again=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_together_and_one_by_one_agree_in_every_cell(
    herd: list[Batch], policy: RegistrationPolicy, excluded: int, again: bool
) -> None:
    together, alone = Registry(EVERYBODY, policy), Registry(NOBODY, policy)
    nodes = sorted(set().union(*(batch.nodes for batch in herd)))
    aside = frozenset(nodes[:excluded])
    for now, chunks in herd * 2 if again else herd:
        one, other = (registry.fold(chunks, now, aside) for registry in (together, alone))
        for name in one:
            assert one[name] == other[name], name
    assert not alone.together


def test_of_a_herd_the_machine_and_the_decider_are_asked_about_one() -> None:
    registry = Registry(alike.WORTHWHILE, RegistrationPolicy())
    asked = mock.Mock(wraps=alike.decide)
    with (
        mock.patch.object(alike, "decide", asked),
        mock.patch.object(column_fold, "decide", side_effect=AssertionError("one by one")),
    ):
        for number, kind in enumerate(KINDS, 1):
            registry.fold([deed(kind, number, range(40))], 100 * number, frozenset())
    assert asked.call_count == len(KINDS)
    assert registry.together == {"awaiting_ack": 40, "active": 80}


def test_what_depends_on_an_instant_is_not_decided_for_others() -> None:
    """Without an epoch, only its time tells a comeback from an echo of the life that ended."""
    together, alone = (Registry(most, RegistrationPolicy()) for most in (EVERYBODY, NOBODY))
    echoed = [
        replace(event, occurred_at=at(-1)) if number % 2 else event
        for number, event in enumerate(deed(Kind.NODE_INTROSPECTION, 4, range(40)))
    ]
    deeds = [deed(kind, number, range(40)) for number, kind in enumerate(KINDS, 1)]
    for number, events in enumerate([*deeds, echoed], 1):
        one, other = (
            registry.fold([events], 100 * number, frozenset()) for registry in (together, alone)
        )
        assert one == other
    assert one["outcomes"][EnumOutcome.STALE] == 20


@pytest.mark.parametrize("reason", REASONS)
def test_a_text_that_names_the_one_that_stands_in_stays_as_it_is(reason: str | None) -> None:
    together, alone = (Registry(most, RegistrationPolicy()) for most in (EVERYBODY, NOBODY))
    for number, kind in enumerate(KINDS, 1):
        said = {"reason": reason} if kind is Kind.NODE_SHUTDOWN else {}
        events = deed(kind, number, range(20), **said)
        one, other = (
            registry.fold([events], 100 * number, frozenset()) for registry in (together, alone)
        )
        assert one == other
    assert one["facts"].num_rows == 20


def test_facts_that_are_known_are_not_made_again() -> None:
    events = deed(Kind.NODE_INTROSPECTION, 1, range(20))
    made = Registry(EVERYBODY, RegistrationPolicy()).fold([events], 100, frozenset())
    known = frozenset(fact.event_id for fact in made["events"])
    for most in (EVERYBODY, NOBODY):
        again = Registry(most, RegistrationPolicy(), known).fold([events], 100, frozenset())
        assert again["facts"].num_rows == 0
        assert set(again["rows"]["current_state"].to_pylist()) == {"pending_registration"}


def test_a_few_are_decided_one_by_one() -> None:
    registry = Registry(alike.WORTHWHILE, RegistrationPolicy())
    few = range(alike.WORTHWHILE - 1)
    for number, kind in enumerate(KINDS, 1):
        registry.fold([deed(kind, number, few)], 100 * number, frozenset())
    assert not registry.together


def test_who_raises_is_left_to_the_walk_and_the_others_go_on() -> None:
    events = deed(Kind.NODE_INTROSPECTION, 1, range(40))
    sick = events[7].entity.entity_id.bytes
    changes = to_table(events)
    payloads = changes["payload"].to_pylist()
    payloads[7] = "{"
    changes = changes.drop_columns(["payload"]).append_column("payload", pa.array(payloads))
    decider = Decider(policy=RegistrationPolicy(), now=at(100))
    fold = BucketFold("registration", (), decider, live=True)
    fold.feed(changes, to_table([]).select([*BEAT_COLUMNS, *CAUSE_COLUMNS]))
    assert fold.faults.keys() == {sick}
    assert fold.faults[sick].event_id == events[7].event_id.bytes
    assert len(fold.grouped) == 39


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decider_that_raises_for_the_one_that_stands_in_raises_for_nobody_else(
    policy: RegistrationPolicy,
) -> None:
    events = deed(Kind.NODE_INTROSPECTION, 1, range(40))
    healthy = Registry(alike.WORTHWHILE, policy).fold([events], 100, frozenset())
    with mock.patch.object(alike, "decide", side_effect=ZeroDivisionError):
        assert Registry(alike.WORTHWHILE, policy).fold([events], 100, frozenset()) == healthy

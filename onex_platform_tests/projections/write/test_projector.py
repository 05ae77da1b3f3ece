"""One row and whole batches: guarded by position, all or nothing, no byte more than needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from onex_platform.domain.batch import Decider, RowChange
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.projection import ModelRegistrationProjection, ModelSequenceInfo
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.projections.write import outbox
from onex_platform.projections.write.staged_batch import Given
from onex_platform_tests.support.events import (
    NODE,
    Kind,
    State,
    at,
    event,
    number_id,
    record,
    row,
)
from onex_platform_tests.support.histories import records, with_repeats
from onex_platform_tests.support.stored_rows import EMPTY, START_OF_LOG, TABLES, Store

pytestmark = pytest.mark.servers

DOMAIN = REGISTRATION_DOMAIN
JOINING = [
    event(Kind.NODE_INTROSPECTION, 1, 0, capabilities={"read": True}),
    event(Kind.NODE_ACCEPTED, 2, 1),
    event(Kind.ACK_REQUESTED, 3, 2),
    event(Kind.NODE_ACK, 4, 3),
    event(Kind.NODE_REGISTERED, 5, 4),
]


def active(position: int = 100, **fields: Any) -> ModelRegistrationProjection:
    return row(
        State.ACTIVE,
        registered_at=at(-60),
        last_heartbeat_at=at(-1),
        last_applied_sequence=position,
        **fields,
    )


class TestOneRow:
    def test_a_row_comes_back_as_it_was_written(self, store: Store) -> None:
        written = active(
            node_name="adapter — ünïcode 🛰",
            node_version="1.2.3",
            capabilities={"read": True, "supported_operations": ["a\tb"], "limits": {"x": 1.5}},
            endpoints={"health": "http://localhost/\\N"},
            metadata={"nested": [1, None, {"deep": "\\x"}], "big": 2**70},
            network_id="net",
            deployment_id="blue",
            ack_timeout_emitted_at=at(-70),
            liveness_timeout_emitted_at=at(-80),
            failure_code="NO",
            failure_message="multi\nline",
            last_applied_topic="input",
            last_applied_partition=2,
            last_applied_offset=2**40,
            correlation_id=number_id(7),
        )
        assert store.projector.persist(written)
        assert store.node().domain_columns() == written.domain_columns()
        assert store.node().row_version == 1

    @pytest.mark.parametrize(("position", "stale"), [(99, True), (100, True), (101, False)])
    def test_is_stale_and_persist_agree(self, store: Store, position: int, stale: bool) -> None:
        sequence = ModelSequenceInfo(sequence=position)
        assert not store.projector.is_stale(NODE, DOMAIN, sequence)
        store.projector.persist(active(100))
        assert store.projector.is_stale(NODE, DOMAIN, sequence) is stale
        assert store.projector.persist(active(position)) is not stale

    def test_a_heartbeat_counts_for_staleness(self, store: Store) -> None:
        store.projector.persist(active(100))
        store.fold([event(Kind.NODE_HEARTBEAT, 150, 10)], 0, 200)
        assert store.projector.is_stale(NODE, DOMAIN, ModelSequenceInfo(sequence=150))
        assert not store.projector.persist(active(150))
        assert store.projector.persist(active(151))

    def test_a_stale_write_changes_no_byte(self, store: Store) -> None:
        store.projector.persist(active(100))
        before = store.physical()
        assert not store.projector.persist(active(100, node_name="other"))
        assert store.physical() == before

    def test_a_lower_offset_of_another_topic_is_not_stale(self, store: Store) -> None:
        first = {"last_applied_topic": "one", "last_applied_offset": 900}
        second = {"last_applied_topic": "two", "last_applied_offset": 3}
        assert store.projector.persist(active(1, last_applied_partition=0, **first))
        assert store.projector.persist(active(2, last_applied_partition=0, **second))

    def test_the_same_node_in_two_domains_is_two_rows(self, store: Store) -> None:
        store.projector.persist(active(100, node_name="one"))
        assert store.projector.persist(active(5, node_name="two", domain="staging"))
        assert (store.node().node_name, store.node(domain="staging").node_name) == ("one", "two")

    @pytest.mark.parametrize("position", [99, 100])
    def test_a_batch_behind_a_single_write_leaves_its_row_alone(
        self, store: Store, position: int
    ) -> None:
        store.projector.persist(active(100, node_name="ahead"))
        behind = active(position, node_name="behind")
        batch = replace(
            store.folded([], 0, 101),
            content=Given([RowChange(row=behind, wide=True, liveness=True)]),
        )
        before = store.physical("registration_projections", "registration_liveness", "outbox")
        result = store.projector.persist_batch(batch)
        assert (result.committed, result.written.rows, result.written.stale) == (True, 0, 2)
        assert store.physical(*before) == before


class TestBatch:
    def test_a_whole_life_is_stored_as_the_log_says(self, store: Store) -> None:
        life = [
            *JOINING,
            event(Kind.NODE_HEARTBEAT, 6, 30),
            event(Kind.NODE_DEREGISTERED, 7, 40),
            event(Kind.NODE_INTROSPECTION, 8, 50, epoch=2),
        ]
        versions = []
        for count, one in enumerate(life, 1):
            assert store.fold([one], store.position(), one.position + 1).committed
            stored = store.node()
            assert stored.domain_columns() == replay(life[:count])[stored.key].domain_columns()
            versions.append(stored.row_version)
        assert versions == [1, 2, 3, 4, 5, 5, 6, 7]
        assert store.node().registered_at == at(4)  # of the first life
        entries = store.select("SELECT entry::text, row_version FROM outbox ORDER BY id")
        kinds = ["snapshot"] * 5 + ["tombstone", "snapshot"]
        assert entries == list(zip(kinds, range(1, 8), strict=True))

    def test_a_heartbeat_leaves_the_wide_row_and_the_outbox_alone(self, store: Store) -> None:
        store.fold(JOINING, 0, 6)
        before = store.physical("registration_projections", "outbox", "event_ledger")
        beats = [event(Kind.NODE_HEARTBEAT, position, position) for position in (10, 11)]
        written = store.fold(beats, 6, 12).written
        assert (written.rows, written.liveness) == (0, 1)
        assert store.physical(*before) == before
        stored = store.node()
        assert (stored.last_heartbeat_at, stored.liveness_deadline) == (at(11), at(101))
        assert stored.last_applied_sequence == 11

    def test_a_change_without_heartbeat_leaves_the_liveness_row_alone(self, store: Store) -> None:
        store.fold(JOINING, 0, 6)
        before = store.physical("registration_liveness")
        written = store.fold([event(Kind.NODE_INTROSPECTION, 6, 20)], 6, 7).written
        assert (written.rows, written.liveness) == (1, 0)
        assert store.physical("registration_liveness") == before

    def test_everything_read_is_accounted_for(self, store: Store) -> None:
        cut = [
            record(Kind.NODE_INTROSPECTION, 1, offset=0),
            record(Kind.NODE_INTROSPECTION, 2, offset=1, event_id=number_id(0)),
            record(Kind.NODE_ACK, 3, offset=2),
            record(Kind.NODE_INTROSPECTION, 4, offset=3, headers={"x-tenant": b"other"}),
            record(Kind.NODE_ACK, 5, offset=4, epoch=0),
        ]
        store.cut(cut, at(10))
        assert store.select(
            "SELECT read, applied, duplicate, stale, illegal, parked FROM batch_outcomes"
        ) == [(5, 1, 1, 1, 1, 1)]
        refused = store.select("SELECT outcome, reason FROM illegal_events ORDER BY outcome")
        assert [outcome for outcome, _ in refused] == ["illegal", "parked"]
        assert "other" in refused[1][1]
        assert (store.node().tenant, store.node().row_version) == ("omnibase", 1)

    def test_counts_that_do_not_add_up_leave_nothing_behind(self, store: Store) -> None:
        batch = store.folded(JOINING, 0, 6)
        batch.outcomes.clear()
        with pytest.raises(errors.CheckViolation):
            store.projector.persist_batch(batch)
        assert store.physical() == EMPTY

    @pytest.mark.parametrize(
        "stranger",
        [active(1), active(6), active(2, domain="staging")],
        ids=["before", "behind", "other domain"],
    )
    def test_a_row_from_outside_the_batch_is_refused(
        self, store: Store, stranger: ModelRegistrationProjection
    ) -> None:
        store.fold([], 0, 2)
        change = Given([RowChange(row=stranger, wide=True, liveness=True)])
        with pytest.raises(ValueError, match="positions 2 up to 6"):
            store.projector.persist_batch(replace(store.folded([], 2, 6), content=change))

    def test_one_plain_id_in_two_tenants_is_two_nodes(self, store: Store) -> None:
        store.cut(
            [
                record(Kind.NODE_INTROSPECTION, 1, offset=n, node_id="adapter-1", headers=headers)
                for n, headers in enumerate([{}, {"x-tenant": b"other"}])
            ],
            at(10),
        )
        rows = list(store.reader.iter_all())
        assert {row.tenant for row in rows} == {"omnibase", "other"}
        assert {row.node_name for row in rows} == {"adapter-1"}
        assert len({row.entity_id for row in rows}) == 2

    def test_decided_facts_are_queued_and_known_when_they_come_back(self, store: Store) -> None:
        decider = Decider(policy=RegistrationPolicy(), now=at(1))
        store.cut([record(Kind.NODE_INTROSPECTION, 1, offset=0)], at(5), decider=decider)
        with store.transaction() as cursor:
            facts = outbox.pending_events(cursor, DOMAIN, 10)
        assert [fact.event_kind for fact in facts] == [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED]
        assert {fact.event_key for fact in facts} == {str(NODE)}
        # What the relay sends is what the intake reads: a duplicate, whatever its topic.
        echoes = [
            record(Kind(fact.event_kind), 6, topic="own", offset=n, value=fact.envelope.encode())
            for n, fact in enumerate(facts)
        ]
        fold, _ = store.cut(echoes, at(10), closed_before=at(5))
        assert dict(fold.outcomes) == {"duplicate": 2}


@given(history=records().flatmap(with_repeats), cuts=st.sets(st.integers(0, 400), max_size=4))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_wherever_a_history_is_cut_the_table_is_the_fold_of_its_log(
    store: Store, history: list[RawRecord], cuts: set[int]
) -> None:
    with store.transaction() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(TABLES)}")
    log: list[LogEvent] = []
    closed_before = START_OF_LOG
    for instant in (at(moment) for moment in [*sorted(cuts), 10**6]):
        cut = [r for r in history if r.timestamp and closed_before <= r.timestamp < instant]
        decider = Decider(policy=RegistrationPolicy(), now=instant)
        fold, result = store.cut(cut, instant, closed_before, decider)
        assert result.committed
        assert result.written.stale == 0
        log += fold.log
        closed_before = instant
    stored = store.reader.iter_all(include_deregistered=True)
    assert {row.key: row.domain_columns() for row in stored} == {
        key: row.domain_columns() for key, row in replay(log).items()
    }

"""Inbox and outbox: what waits for the log, and what waits for Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onex_platform.domain.envelope import parse_envelope, parse_payload
from onex_platform.ingest import inbox
from onex_platform.projections.write import outbox
from onex_platform_tests.support.events import Kind, at, event, number_id
from onex_platform_tests.support.stored_rows import Store, queue_events

pytestmark = pytest.mark.servers

DOMAIN = "registration"
TIMEOUT = replace(
    event(Kind.LIVENESS_EXPIRED, 0, 90, event_id=number_id(1), deadline=at(60.000001), epoch=3),
    provenance=None,
    reported_at=at(90),
    node_name="adapter-1",
    correlation_id=number_id(2),
    cause_id=number_id(3),
)


def test_a_fact_comes_out_of_the_inbox_as_it_went_in(store: Store) -> None:
    with store.transaction() as cursor:
        assert inbox.submit(cursor, [TIMEOUT]) == 1
        assert inbox.waiting(cursor, DOMAIN, at(91), 10) == [TIMEOUT]


def test_a_fact_submitted_by_two_scanners_waits_once(store: Store) -> None:
    with store.transaction() as cursor:
        inbox.submit(cursor, [TIMEOUT])
    with store.transaction() as cursor:
        assert inbox.submit(cursor, [TIMEOUT]) == 0
        assert len(inbox.waiting(cursor, DOMAIN, at(91), 10)) == 1


def test_only_facts_before_the_cut_are_waiting_and_the_oldest_first(store: Store) -> None:
    times = {number_id(n): at(n) for n in (30, 10, 20)}
    facts = [replace(TIMEOUT, event_id=key, occurred_at=time) for key, time in times.items()]
    with store.transaction() as cursor:
        inbox.submit(cursor, facts)
        waiting = inbox.waiting(cursor, DOMAIN, at(30), 10)
        assert [fact.occurred_at for fact in waiting] == [at(10), at(20)]
        assert len(inbox.waiting(cursor, DOMAIN, at(31), 1)) == 1
        assert len(inbox.waiting(cursor, DOMAIN, at(99), 9, most_bytes=1)) == 1
        inbox.remove(cursor, DOMAIN, [fact.event_id for fact in waiting])
        assert [f.occurred_at for f in inbox.waiting(cursor, DOMAIN, at(99), 9)] == [at(30)]


def test_a_queued_event_is_an_envelope_that_reads_back_as_the_event(store: Store) -> None:
    with store.transaction() as cursor:
        queue_events(cursor, [TIMEOUT])
        (entry,) = outbox.pending_events(cursor, DOMAIN, 10)
    assert (entry.event_kind, entry.event_id) == (TIMEOUT.kind, str(TIMEOUT.event_id))
    assert entry.event_key == TIMEOUT.node_id
    envelope = parse_envelope(entry.envelope.encode())
    assert envelope.event_type == TIMEOUT.kind.event_type
    assert (envelope.timestamp, envelope.tenant) == (at(90), TIMEOUT.tenant)
    assert parse_payload(TIMEOUT.kind, envelope.payload) == TIMEOUT.payload


def test_the_outbox_keeps_its_order_until_entries_are_acknowledged(store: Store) -> None:
    facts = [replace(TIMEOUT, position=n, event_id=number_id(n)) for n in range(5)]
    with store.transaction() as cursor:
        queue_events(cursor, facts)
        first, second, *_ = outbox.pending_events(cursor, DOMAIN, 3)
        assert [first.event_id, second.event_id] == [str(number_id(0)), str(number_id(1))]
        outbox.acknowledge(cursor, DOMAIN, [second.id])
        rest = outbox.pending_events(cursor, DOMAIN, 10)
    assert [entry.event_id for entry in rest] == [str(number_id(n)) for n in (0, 2, 3, 4)]

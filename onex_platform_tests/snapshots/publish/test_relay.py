"""The outbox reaches Kafka: in order, once per row, marked after the broker has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.domain.envelope import parse_envelope
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.projections.snapshot_rows import RowState, take_waiting_rows
from onex_platform.snapshots.publish.relay import RelayAccount, open_relay
from onex_platform.snapshots.publish.writer import Publication
from onex_platform.snapshots.snapshot_records import PublishedState
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import Kind, event, number_id
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events

pytestmark = pytest.mark.servers

TOPICS = {kind: load_catalogue().for_kind(kind).topic for kind in Kind}


def _queue(registry: Registry, *kinds: Kind, node: int = 1) -> None:
    facts = [
        replace(event(kind, number, event_id=number_id(100 + number), node=number_id(node)))
        for number, kind in enumerate(kinds)
    ]
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, facts)


def test_changed_rows_become_snapshots_and_closed_rows_tombstones(registry: Registry) -> None:
    registry.change(1, 2, 3)
    registry.close(3)
    with registry.relay() as relay:
        account = relay.publish_pending()
    assert account == RelayAccount(snapshots=2, tombstones=1, coalesced=1)
    assert registry.latest() == {
        number_id(1): PublishedState(number_id(1), 1, False),
        number_id(2): PublishedState(number_id(2), 1, False),
        number_id(3): PublishedState(number_id(3), 2, True),
    }
    assert registry.waiting() == (0, 0)


def test_a_record_is_the_snapshot_that_the_model_makes_of_the_row(registry: Registry) -> None:
    capabilities = {
        "supported_operations": ["a", "ü"],
        "gpu": True,
        "nested": {"x": [1, 2.5, None]},
    }
    [stored] = registry.change(1, capabilities=capabilities, node_name='the "best" node')
    before = datetime.now(UTC)
    with registry.relay() as relay:
        relay.publish_pending()
    [message] = registry.messages()
    snapshot = ModelRegistrationSnapshot.model_validate_json(message.value() or b"")
    assert message.key() == str(number_id(1)).encode()
    assert before < snapshot.snapshot_created_at < datetime.now(UTC)
    assert snapshot == ModelRegistrationSnapshot.from_projection(
        stored, snapshot_created_at=snapshot.snapshot_created_at
    )


def test_entries_of_one_row_become_one_record_of_its_newest_version(registry: Registry) -> None:
    for _ in range(5):
        registry.change(1)
    with registry.relay(batch_records=2) as relay:  # the first batch already sends version 5
        account = relay.publish_pending()
    assert account.snapshots + account.coalesced == 5
    assert {state.version for state in registry.published()} == {5}


def test_a_row_that_is_gone_becomes_a_tombstone(registry: Registry) -> None:
    registry.change(1)
    with registry.store.database.transaction() as cursor:
        cursor.execute("DELETE FROM registration_projections")
    with registry.relay() as relay:
        assert relay.publish_pending().tombstones == 1
    assert registry.latest()[number_id(1)].is_tombstone


def test_entries_stay_until_a_send_succeeds(registry: Registry) -> None:
    registry.change(*range(20))

    def break_off(publication: Publication) -> None:
        with take_waiting_rows(publication.cursor, registry.config.domain, 20) as rows:
            publication.send(cut_short(row[:4] for row in rows))

    def cut_short(rows: Iterator[RowState]) -> Iterator[RowState]:
        yield next(rows)
        raise InfraError("Something broke off.", hint="Try again.")

    with registry.relay() as relay:
        with pytest.raises(InfraError, match="broke off"):
            relay.writer.exclusively(break_off)
        assert registry.published() == []
        assert registry.waiting().rows == 20
        assert relay.publish_pending() == RelayAccount(snapshots=20)
    registry.require_topic_equals_rows()


def test_events_go_to_their_topics_in_order_under_their_key(registry: Registry) -> None:
    kinds = [Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED, Kind.NODE_ACCEPTED]
    starts = end_positions(registry.settings, set(TOPICS.values()))
    _queue(registry, *kinds)
    with registry.relay() as relay:
        assert relay.publish_pending() == RelayAccount(events=3)
    sent = list(read_to_end(registry.settings, {TOPICS[kind] for kind in kinds}, starts))
    assert Counter(message.topic() for message in sent) == Counter(TOPICS[k] for k in kinds)
    accepted = [m for m in sent if m.topic() == TOPICS[Kind.NODE_ACCEPTED]]
    ids = [parse_envelope(message.value() or b"").event_id for message in accepted]
    assert ids == [number_id(100), number_id(102)]
    assert {message.key() for message in sent} == {str(number_id(1)).encode()}


def test_a_published_ack_request_is_remembered_with_its_time(registry: Registry) -> None:
    before = datetime.now(UTC)
    for _ in range(2):
        _queue(registry, Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED)
        with registry.relay() as relay:
            relay.publish_pending()
        [(domain, entity_id, published_at)] = registry.store.select(
            "SELECT domain, entity_id, published_at FROM published_ack_requests"
        )
        assert (domain, entity_id) == ("registration", number_id(1))
        assert published_at > before
        before = published_at


def test_an_empty_outbox_opens_no_client(registry: Registry) -> None:
    kafka = registry.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    settings = registry.settings.model_copy(update={"kafka": kafka})
    with open_relay(settings, registry.catalogue, registry.config) as relay:
        assert relay.publish_pending() == RelayAccount()


def test_events_are_published_though_the_snapshot_topic_is_missing(registry: Registry) -> None:
    missing = registry.config.model_copy(update={"topic": f"{registry.config.topic[:-1]}2"})
    registry.change(1)
    _queue(registry, Kind.NODE_ACCEPTED)
    snapshots = registry.settings.snapshots.model_copy(update={"transaction_seconds": 2})
    settings = registry.settings.model_copy(update={"snapshots": snapshots})
    with (
        open_relay(settings, registry.catalogue, missing) as relay,
        pytest.raises(InfraError, match="Unknown topic"),
    ):
        relay.publish_pending()
    assert registry.waiting() == (1, 0)

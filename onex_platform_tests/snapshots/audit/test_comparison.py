"""Rows and topic change while they are compared, and none of that is taken for a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest

from onex_platform.engines.kafka.clients import produce_all
from onex_platform.projections.write import outbox
from onex_platform.snapshots.audit import comparison
from onex_platform.snapshots.audit.sweep import look, sweep
from onex_platform.snapshots.audit.topic_states import EnumSnapshotFault
from onex_platform.snapshots.publish.relay import OutboxRelay
from onex_platform.snapshots.snapshot_records import VERSION_HEADER
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import sent, snapshot, transactions
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers


@pytest.fixture
def relay(registry: Registry) -> Iterator[OutboxRelay]:
    """Of a registry whose topic is right."""
    registry.change(1, 2)
    with registry.relay() as opened:
        opened.publish_pending()
        yield opened


def _before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *happenings: Callable[[], Any]
) -> None:
    """Let something happen before each of the first calls."""
    original, pending = getattr(owner, name), iter(happenings)

    def called(*args: Any, **kwargs: Any) -> Any:
        next(pending, lambda: None)()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)


def _nothing() -> None:
    """Nothing happens."""


def _change_and_publish(registry: Registry, relay: OutboxRelay) -> None:
    registry.change(1)
    relay.publish_pending()


def test_what_is_published_after_the_topic_was_read_is_in_its_tail(
    registry: Registry, relay: OutboxRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    _before(monkeypatch, comparison, "row_versions", lambda: _change_and_publish(registry, relay))
    found = look(relay)
    assert (found.faults, found.rows, found.equal) == ([], 2, 2)


def test_what_is_published_after_the_rows_were_read_is_not_ahead_of_them(
    registry: Registry, relay: OutboxRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def happen() -> None:
        _change_and_publish(registry, relay)

    _before(monkeypatch, comparison, "row_versions", happen)  # the topic's tail has to be read
    _before(monkeypatch, comparison, "written_positions", _nothing, happen)
    found = look(relay)
    assert (found.faults, found.rows, found.equal) == ([], 2, 2)
    assert registry.latest()[number_id(1)].version == 3


def test_a_transaction_under_way_is_waited_for(registry: Registry, relay: OutboxRelay) -> None:
    """Its publisher may have marked its entries already: a commit is readable a moment later."""
    registry.change(3)
    registry.forget_outbox()
    with transactions(registry.settings) as producer:
        producer.begin_transaction()
        produce_all(producer, [sent(registry.config.topic, snapshot(3))])
        commit = Timer(1, producer.commit_transaction, [30])
        commit.start()
        found = look(relay)
        commit.join()
    assert (found.faults, found.equal) == ([], 3)


def test_contents_that_change_after_they_were_read_are_not_different(
    registry: Registry, relay: OutboxRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.intrude(1, b"{}", (VERSION_HEADER, "1"))
    _before(
        monkeypatch,
        comparison,
        "written_positions",
        _nothing,
        lambda: _change_and_publish(registry, relay),
    )
    assert look(relay, contents=True).faults == []


def test_the_removal_of_an_unknown_node_is_queued_once(
    registry: Registry, relay: OutboxRelay
) -> None:
    registry.intrude(7, b"{}", (VERSION_HEADER, "4"))
    done = sweep(relay)
    assert [fault.kind for fault in done.comparison.faults] == [EnumSnapshotFault.UNKNOWN]
    for _ in range(2):  # nobody publishes
        done = sweep(relay)
        assert (done.queued, done.comparison.faults, done.comparison.waiting) == (0, [], 1)
    assert registry.waiting().rows == 1
    assert relay.publish_pending().tombstones == 1
    assert look(relay).faults == []


def test_the_removal_of_an_unknown_node_may_be_published_meanwhile(
    registry: Registry, relay: OutboxRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.store.database.transaction() as cursor:
        cursor.execute("DELETE FROM registration_projections")
    assert sweep(relay).queued == 2
    _before(monkeypatch, outbox, "waiting_among", relay.publish_pending)
    found = look(relay)
    assert (found.faults, found.waiting, found.equal) == ([], 0, 0)

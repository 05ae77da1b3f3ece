"""Database and topic compared: every way to differ is found, repaired, and not found again."""

from __future__ import annotations

from contextlib import closing

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.kafka.transactions import Sent
from onex_platform.snapshots.audit.sweep import look, queue_entities, sweep
from onex_platform.snapshots.audit.topic_states import EnumSnapshotFault
from onex_platform.snapshots.publish.republish import rebuild_topic
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.snapshot_records import VERSION_HEADER, PublishedState
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import shown_of
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

Fault = EnumSnapshotFault


def _write(registry: Registry, node: int, version: int, value: bytes | None) -> None:
    """Somebody writes to the topic behind our back."""
    registry.intrude(node, value, (VERSION_HEADER, str(version)))


def test_a_topic_that_is_right_has_no_faults(registry: Registry) -> None:
    registry.change(1, 2, 3)
    registry.close(3)
    with registry.relay() as relay:
        relay.publish_pending()
        registry.change(2)  # waits: no fault
        found = look(relay)
    assert (found.rows, found.equal, found.waiting, found.faults) == (3, 2, 1, [])


def test_every_way_to_differ_is_found_and_repaired(registry: Registry) -> None:
    registry.change(1, 2, 3, 4, 5)
    with registry.relay() as relay:
        relay.publish_pending()
        registry.change(2, 6)  # 2: the topic's is older; 6: missing there
        registry.close(3)
        registry.forget_outbox()
        _write(registry, 4, 1, None)  # tombstoned though open
        _write(registry, 7, 9, b"{}")  # unknown here
        done = sweep(relay)
        found = {fault.entity_id: fault.kind for fault in done.comparison.faults}
        assert found == {
            number_id(2): Fault.OLDER,
            number_id(6): Fault.MISSING,
            number_id(3): Fault.NOT_TOMBSTONED,
            number_id(4): Fault.TOMBSTONED,
            number_id(7): Fault.UNKNOWN,
        }
        assert (done.queued, done.comparison.equal) == (5, 2)
        relay.publish_pending()
        assert look(relay).faults == []
        assert sweep(relay).queued == 0
    assert registry.latest()[number_id(7)] == PublishedState(number_id(7), 10, True)


def test_a_topic_ahead_is_reported_until_the_rows_are_raised(registry: Registry) -> None:
    registry.change(1)
    with registry.relay() as relay:
        relay.publish_pending()
        _write(registry, 1, 7, b"{}")
        for _ in range(2):
            done = sweep(relay)
            assert [fault.kind for fault in done.comparison.faults] == [Fault.AHEAD]
            assert done.queued == 0
        done = sweep(relay, raise_versions=True)
        assert (done.raised, done.queued) == (1, 1)
        relay.publish_pending()
        assert look(relay).faults == []
    registry.require_topic_equals_rows()
    assert registry.store.node(number_id(1)).row_version == 8


def test_other_contents_of_the_same_version_are_found_and_replaced_for_readers(
    registry: Registry,
) -> None:
    [wrong] = registry.change(2)
    registry.forget_outbox()
    [_, right, _] = registry.change(1, 3, 4)
    cache = SnapshotCache(registry.settings, topic=registry.config.topic)
    with registry.relay() as relay, closing(cache):
        relay.publish_pending()
        text = shown_of(wrong, node_name="somebody else")
        _write(registry, 2, 1, text)
        _write(registry, 3, 1, shown_of(right))  # another spelling, the same contents
        _write(registry, 4, 1, b"{}")
        cache.refresh()
        assert _name(cache, 2) == "somebody else"
        assert look(relay).faults == []
        for _ in range(2):
            found = look(relay, contents=True)
            assert {fault.entity_id: fault.kind for fault in found.faults} == {
                number_id(2): Fault.DIFFERENT,
                number_id(4): Fault.DIFFERENT,
            }
            assert (found.rows, found.contents, found.equal) == (4, 4, 2)
        assert sweep(relay).queued == 0
        done = sweep(relay, contents=True)
        assert (done.raised, done.queued) == (2, 2)
        relay.publish_pending()
        found = look(relay, contents=True)
        assert (found.faults, found.contents) == ([], 4)
        cache.refresh()
        assert _name(cache, 2) == wrong.node_name
    assert registry.latest()[number_id(2)].version == 2
    registry.require_topic_equals_rows()


def test_contents_are_judged_only_where_versions_agree(registry: Registry) -> None:
    registry.change(1, 2, 3, 4)
    registry.close(4)
    with registry.relay() as relay:
        relay.publish_pending()
        registry.change(1)  # waits
        _write(registry, 2, 7, b"{}")  # ahead
        found = look(relay, contents=True)
        assert [fault.kind for fault in found.faults] == [Fault.AHEAD]
        assert (found.contents, found.equal, found.waiting) == (1, 2, 1)
        assert look(relay, [number_id(2), number_id(3)], contents=True).contents == 1


def test_contents_are_different_in_no_more_rows_than_are_repaired_at_once(
    registry: Registry,
) -> None:
    registry.change(1, 2, 3)
    with registry.relay() as relay:
        relay.publish_pending()
        for node in (1, 2, 3):
            _write(registry, node, 1, b"{}")
        assert sweep(relay, contents=True, limit=2).raised == 2


def _name(cache: SnapshotCache, node: int) -> str | None:
    shown = cache.get(number_id(node))
    assert shown is not None
    return shown.node_name


def test_only_chosen_entities_are_compared_and_queued(registry: Registry) -> None:
    registry.change(1, 2)
    registry.forget_outbox()
    with registry.relay() as relay:
        assert sweep(relay, [number_id(1)]).queued == 1
        assert queue_entities(relay, [number_id(1), number_id(9)]) == {number_id(1)}
        assert registry.waiting() == (2, 0)
        assert relay.publish_pending().snapshots == 1
    assert set(registry.latest()) == {number_id(1)}


def test_repairs_are_capped(registry: Registry) -> None:
    registry.change(1, 2, 3)
    registry.forget_outbox()
    with registry.relay() as relay:
        assert sweep(relay, limit=2).queued == 2


def test_foreign_records_are_counted_and_left_alone(registry: Registry) -> None:
    registry.intrude("not a node", b"{}")
    with registry.relay() as relay:
        found = look(relay)
    assert (found.foreign_records, found.faults) == (1, [])


def test_a_deleted_topic_is_rebuilt_from_the_rows(registry: Registry) -> None:
    registry.change(*range(30))
    registry.close(7)
    with registry.relay(batch_records=8) as relay:
        relay.publish_pending()
        with open_admin(registry.settings) as admin:
            for answer in admin.delete_topics([registry.config.topic]).values():
                answer.result(timeout=10)
            assert wait_until(lambda: registry.config.topic not in topic_names(admin), 10)
        with pytest.raises(InfraError, match="Unknown topic"):
            look(relay)
        steps: list[int] = []
        assert rebuild_topic(relay.settings, relay.writer, steps.append) == Sent(30)
        assert steps[-1] == 30
    registry.require_topic_equals_rows()


def test_what_a_repair_would_queue_twice_waits_once(registry: Registry) -> None:
    registry.change(1)
    with registry.relay() as relay:
        assert sweep(relay).queued == 0  # its own entry waits
    assert registry.waiting().rows == 1

"""Records that somebody else wrote: comparison, sweep, caches and publisher agree on each of them,
and none of them stops anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from uuid import UUID

import pytest

from onex_platform.domain.projection import (
    MOST_LIFTED_VERSION,
    MOST_VERSION,
    ModelRegistrationProjection,
)
from onex_platform.snapshots.audit.sweep import look, sweep
from onex_platform.snapshots.audit.topic_states import EnumSnapshotFault
from onex_platform.snapshots.publish.publisher import (
    SnapshotPublisherRegistration,
    UnreadableSnapshotError,
)
from onex_platform.snapshots.publish.relay import OutboxRelay
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.snapshot_records import VERSION_HEADER
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import shown_of
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

Fault = EnumSnapshotFault

BEYOND = str(2**63 - 1)
ENDLESS = "9" * 5000


class Readers:
    """A cache that follows the topic, and those that load it at any time."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._following = SnapshotCache(registry.settings, topic=registry.config.topic)
        self._following.refresh()

    def names(self) -> dict[UUID, str | None]:
        """What each node is called, as all of them see it."""
        self._following.refresh()
        following = {one.entity_id: one.node_name for one in self._following.all()}
        loaded = SnapshotCache(self._registry.settings, topic=self._registry.config.topic)
        with closing(loaded):
            loaded.refresh()
            assert {one.entity_id: one.node_name for one in loaded.all()} == following
        return following

    def close(self) -> None:
        self._following.close()


@contextmanager
def published(
    registry: Registry, *nodes: int
) -> Iterator[tuple[OutboxRelay, Readers, list[ModelRegistrationProjection]]]:
    """Nodes that the topic and its readers know."""
    rows = registry.change(*nodes)
    with ExitStack() as opened:
        relay = opened.enter_context(registry.relay())
        relay.publish_pending()
        registry.messages()  # waits until they can be read
        yield relay, opened.enter_context(closing(Readers(registry))), rows


def _kinds(relay: OutboxRelay, *, contents: bool = False) -> dict[UUID, EnumSnapshotFault]:
    found = look(relay, contents=contents)
    return {fault.entity_id: fault.kind for fault in found.faults}


def _names(rows: list[ModelRegistrationProjection]) -> dict[UUID, str | None]:
    return {row.entity_id: row.node_name for row in rows}


def _repair(relay: OutboxRelay, registry: Registry, *, raise_versions: bool = False) -> None:
    assert sweep(relay, raise_versions=raise_versions).queued > 0
    relay.publish_pending()
    registry.messages()
    for contents in (False, True):
        assert _kinds(relay, contents=contents) == {}
    assert sweep(relay).queued == 0


def test_headers_without_a_version_stop_neither_sweep_nor_cache(registry: Registry) -> None:
    with published(registry, *range(7)) as (relay, readers, rows):
        expected = {}
        for step, version in enumerate((None, BEYOND, ENDLESS)):
            malformed, removed, unknown = step, 3 + step, 10 + step
            for node, value in ((malformed, b"{}"), (removed, None), (unknown, b"{}")):
                registry.intrude(node, value, (VERSION_HEADER, version))
            expected |= {
                number_id(malformed): Fault.OLDER,
                number_id(removed): Fault.TOMBSTONED,
                number_id(unknown): Fault.UNKNOWN,
            }
        assert _kinds(relay) == expected
        assert set(readers.names()) == {number_id(node) for node in (0, 1, 2, 6)}
        _repair(relay, registry)
        assert readers.names() == _names(rows)
    assert {row.row_version for row in registry.store.reader.iter_all()} == {1}


def test_a_version_at_the_limit_is_removed_and_nobody_is_lifted_above_it(
    registry: Registry,
) -> None:
    with published(registry, 1) as (relay, _, _):
        registry.intrude(7, b"{}", (VERSION_HEADER, str(MOST_VERSION)))
        _repair(relay, registry)
        assert registry.latest()[number_id(7)].version == MOST_VERSION
        registry.intrude(1, None, (VERSION_HEADER, str(MOST_VERSION)))
        assert _kinds(relay) == {number_id(1): Fault.AHEAD}
        assert sweep(relay, raise_versions=True).raised == 0
        assert registry.store.node(number_id(1)).row_version == 1


def test_a_row_that_is_lifted_can_still_change(registry: Registry) -> None:
    with published(registry, 1, 2) as (relay, readers, _):
        for node, version in ((1, MOST_LIFTED_VERSION - 1), (2, MOST_LIFTED_VERSION)):
            registry.intrude(node, None, (VERSION_HEADER, str(version)))
        assert sweep(relay, raise_versions=True).raised == 1
        [changed] = registry.change(1)
        assert changed.row_version == MOST_LIFTED_VERSION + 1
        relay.publish_pending()
        assert number_id(1) in readers.names()


def test_another_spelling_of_a_node_s_key_is_nobody_s(registry: Registry) -> None:
    key = "abcdefab-cdef-4bcd-8fab-cdefabcdefab"
    with published(registry, 1) as (relay, readers, rows):
        text = shown_of(rows[0], entity_id=UUID(key))
        for spelled in (key.upper(), f"{{{key}}}", f"urn:uuid:{key}", key.replace("-", "")):
            registry.intrude(spelled, text, (VERSION_HEADER, "5"))
        found = look(relay)
        assert (found.faults, found.foreign_records) == ([], 4)
        assert sweep(relay).queued == 0
        assert readers.names() == _names(rows)


def test_a_snapshot_without_a_header_counts_by_its_own_version(registry: Registry) -> None:
    with published(registry, 1, 2, 3) as (relay, readers, rows):
        registry.intrude(1, shown_of(rows[0], node_name="intruder", snapshot_version=99))
        registry.intrude(2, shown_of(rows[1]))
        registry.intrude(7, shown_of(rows[2], entity_id=number_id(7), snapshot_version=4))
        assert readers.names()[number_id(1)] == "intruder"
        assert number_id(7) in readers.names()
        found = look(relay)
        assert {fault.entity_id: fault.kind for fault in found.faults} == {
            number_id(1): Fault.AHEAD,
            number_id(7): Fault.UNKNOWN,
        }
        assert found.foreign_records == 3
        registry.change(1)
        relay.publish_pending()  # at version 2, which readers don't take
        registry.messages()
        assert _kinds(relay)[number_id(1)] is Fault.AHEAD
        assert readers.names()[number_id(1)] == "intruder"
        _repair(relay, registry, raise_versions=True)
        assert readers.names() == _names(rows)
    assert registry.store.node(number_id(1)).row_version == 100


def test_a_value_without_a_header_that_is_no_snapshot_is_covered_again(
    registry: Registry,
) -> None:
    """Compaction would leave nothing else of the node."""
    with published(registry, 1, 2) as (relay, readers, rows):
        registry.intrude(1, b"{}")
        registry.intrude(2, shown_of(rows[0], snapshot_version=9))  # of another node
        assert _kinds(relay) == {number_id(1): Fault.OLDER, number_id(2): Fault.OLDER}
        _repair(relay, registry)
        assert readers.names() == _names(rows)


def test_a_removal_without_a_version_is_undone(registry: Registry) -> None:
    with published(registry, 1, 2) as (relay, readers, rows):
        registry.intrude(1, None)
        assert readers.names() == _names(rows[1:])
        assert _kinds(relay) == {number_id(1): Fault.TOMBSTONED}
        _repair(relay, registry)
        assert readers.names() == _names(rows)


def test_a_tombstone_of_the_row_s_own_version_is_undone_for_readers(registry: Registry) -> None:
    with published(registry, 1, 2, 3) as (relay, readers, rows):
        for node in (1, 2):
            registry.intrude(node, None, (VERSION_HEADER, "1"))
        # At the same version, at which readers keep the tombstone.
        registry.intrude(2, shown_of(rows[1]), (VERSION_HEADER, "1"))
        assert readers.names() == _names(rows[2:])
        assert _kinds(relay) == dict.fromkeys((number_id(1), number_id(2)), Fault.TOMBSTONED)
        _repair(relay, registry)
        assert readers.names() == _names(rows)
    assert [registry.latest()[number_id(node)].version for node in (1, 2, 3)] == [2, 2, 1]


def test_a_header_that_lies_is_found_by_contents(registry: Registry) -> None:
    with published(registry, 1) as (relay, readers, rows):
        lie = shown_of(rows[0], node_name="intruder", snapshot_version=9)
        registry.intrude(1, lie, (VERSION_HEADER, "1"))
        assert _kinds(relay) == {}
        assert _kinds(relay, contents=True) == {number_id(1): Fault.AHEAD}
        assert sweep(relay, contents=True, raise_versions=True).raised == 1
        relay.publish_pending()
        registry.messages()
        assert readers.names() == _names(rows)
    assert registry.store.node(number_id(1)).row_version == 10


def test_the_first_of_two_contents_of_one_version_is_what_a_follower_keeps(
    registry: Registry,
) -> None:
    [row] = registry.change(1)
    registry.intrude(1, shown_of(row, node_name="intruder"), (VERSION_HEADER, "1"))
    with published(registry, 2) as (relay, readers, [other]):
        assert readers.names()[number_id(1)] == "intruder"
        assert _kinds(relay) == {}
        assert _kinds(relay, contents=True) == {number_id(1): Fault.DIFFERENT}
        assert sweep(relay, contents=True).raised == 1
        relay.publish_pending()
        registry.messages()
        assert readers.names() == _names([row, other])


def test_what_the_topic_says_last_may_be_no_snapshot(registry: Registry) -> None:
    with published(registry, 1, 2, 3) as (relay, _, rows):
        publisher = SnapshotPublisherRegistration(
            registry.settings, relay.database, registry.catalogue, registry.config
        )
        registry.intrude(1, b"{}", (VERSION_HEADER, "1"))
        registry.intrude(2, shown_of(rows[1], snapshot_version=5))
        newer = shown_of(rows[2], snapshot_version=2)
        registry.intrude(3, newer.replace(b'"snapshot_created_at"', b'"other"'))
        for node in (1, 3):
            with pytest.raises(UnreadableSnapshotError) as refused:
                publisher.get_latest_snapshot(number_id(node))
            for named in (registry.config.topic, str(number_id(node)), "onex snapshots sweep"):
                assert named in str(refused.value)
        latest = publisher.get_latest_snapshot(number_id(2))
        assert latest is not None
        assert latest.snapshot_version == 5
        assert sweep(relay, contents=True).queued == 1
        relay.publish_pending()
        registry.messages()
        latest = publisher.get_latest_snapshot(number_id(1))
        assert latest is not None
        assert latest.snapshot_version == 2

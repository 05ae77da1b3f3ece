"""The read cache on a real broker: what it loads, what it follows, what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from uuid import uuid4

import pytest

from onex_platform.base.errors import ConfigurationError, InfraError, InfraUnavailableError
from onex_platform.base.settings import Settings
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType
from onex_platform.engines.kafka.clients import KafkaRecord, produce_all
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.read.snapshot_map import read_entry
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import (
    by_id,
    new_topic,
    send,
    sent,
    snapshot,
    tombstone,
    transactions,
)
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    return new_topic(kafka_settings)


@pytest.fixture
def cache(kafka_settings: Settings, topic: str) -> Iterator[SnapshotCache]:
    """A cache without a thread, not loaded yet."""
    made = SnapshotCache(kafka_settings, topic=topic)
    yield made
    made.close()


def test_a_load_takes_the_newest_of_everything_that_is_not_removed(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    kept = [snapshot(number, version=3) for number in range(50)]
    records = [
        *(sent(topic, snapshot(number, version=1)) for number in range(60)),
        *(sent(topic, one) for one in kept),
        *(sent(topic, snapshot(number, version=2, node_name="late")) for number in range(50)),
        *(tombstone(topic, number_id(number), version=2) for number in range(50, 60)),
        sent(topic, snapshot(55, version=1)),
        tombstone(topic, number_id(0), version=2),
    ]
    send(kafka_settings, records)
    cache.refresh()
    assert by_id(*cache.all()) == by_id(*kept)
    assert len(cache) == 50
    assert cache.get(number_id(7)) == kept[7]
    assert cache.get(number_id(55)) is None
    assert number_id(7) in cache
    assert number_id(55) not in cache


def test_nodes_are_found_by_state_type_and_capability(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    flagged = snapshot(1, capabilities={"postgres": True, "read": False})
    reducer = snapshot(2, node_type="reducer", capabilities={"supported_operations": ["read"]})
    rejected = snapshot(3, current_state="rejected", capabilities={"protocols": ["read"], "x": [1]})
    bare = snapshot(4, node_type=None)
    send(kafka_settings, [sent(topic, one) for one in (flagged, reducer, rejected, bare)])
    cache.refresh()
    assert by_id(*cache.active()) == by_id(flagged, reducer, bare)
    assert by_id(*cache.by_type(EnumNodeType.EFFECT)) == by_id(flagged, rejected)
    assert by_id(*cache.by_type(EnumNodeType.REDUCER)) == by_id(reducer)
    assert cache.by_type(EnumNodeType.COMPUTE) == ()
    assert cache.get_active_nodes() == list(cache.active())
    assert cache.get_by_type("EFFECT") == list(cache.by_type(EnumNodeType.EFFECT))
    assert cache.get_by_type("compute") == []
    with pytest.raises(ConfigurationError, match="node_type='effct' is no kind of node"):
        cache.get_by_type("effct")
    assert by_id(*cache.by_capability("read")) == by_id(reducer, rejected)
    assert by_id(*cache.by_capability("postgres")) == by_id(flagged)
    assert cache.by_capability("x") == ()


def test_the_registry_s_rows_come_out_as_the_reader_shows_them(registry: Registry) -> None:
    capabilities = {"supported_operations": ("query", "größe"), "postgres": True, "off": False}
    registry.change(*range(20), capabilities=capabilities)
    registry.change(20, 21, capabilities={"protocols": ("query",)})
    registry.close(3, 4)
    with registry.relay() as relay:
        relay.publish_pending()
    entries = [
        read_entry(message.key(), message.value(), registry.config.domain)
        for message in registry.messages()
        if message.value()
    ]
    assert all(entry.model is None for entry in entries), "the quick check refuses our own"
    with SnapshotCache.open(registry.settings, topic=registry.config.topic) as cache:
        assert eventually(lambda: len(cache) == 20)
        for name in ("query", "größe", "postgres", "off", "nothing"):
            expected = registry.store.reader.get_by_capability(name).items
            assert {one.entity_id for one in cache.by_capability(name)} == {
                row.entity_id for row in expected
            }
        for row in registry.store.reader.iter_all():
            shown = cache.get(row.entity_id)
            assert shown is not None
            assert shown == ModelRegistrationSnapshot.from_projection(
                row, snapshot_created_at=shown.snapshot_created_at
            )


def test_an_empty_topic_is_a_complete_load_of_nothing(cache: SnapshotCache) -> None:
    cache.refresh()
    assert cache.is_complete
    assert len(cache) == 0
    assert cache.all() == cache.active() == ()


def test_nothing_can_be_asked_before_the_load_is_complete(cache: SnapshotCache) -> None:
    assert not cache.is_complete
    assert cache.staleness() is None
    assert cache.status().records_behind is None
    for ask in (cache.all, cache.active, lambda: len(cache), lambda: cache.get(number_id(1))):
        with pytest.raises(InfraUnavailableError, match="has not been loaded"):
            ask()


def test_a_missing_topic_is_told_with_the_way_out(kafka_settings: Settings) -> None:
    missing = SnapshotCache(kafka_settings, topic=f"test.{uuid4().hex}")
    with pytest.raises(InfraError, match="onex topics create"):
        missing.refresh()
    assert not missing.is_complete
    missing.close()


def test_a_closed_cache_still_answers_but_reads_no_more(
    kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(1))])
    with SnapshotCache.open(kafka_settings, topic=topic) as cache:
        pass
    assert cache.get(number_id(1)) == snapshot(1)
    for read in (cache.refresh, cache.reload):
        with pytest.raises(InfraUnavailableError, match="has been closed"):
            read()


def test_a_refresh_takes_in_what_has_come_since(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    send(kafka_settings, [sent(topic, snapshot(1)), sent(topic, snapshot(2))])
    cache.refresh()
    send(
        kafka_settings,
        [
            sent(topic, snapshot(1, version=2)),
            tombstone(topic, number_id(2), version=2),
            sent(topic, snapshot(3)),
        ],
    )
    assert by_id(*cache.all()) == by_id(snapshot(1), snapshot(2))
    cache.refresh()
    assert by_id(*cache.all()) == by_id(snapshot(1, version=2), snapshot(3))
    assert cache.status().loads == 1


def test_the_topic_is_followed_in_the_background(kafka_settings: Settings, topic: str) -> None:
    send(kafka_settings, [sent(topic, snapshot(1))])
    with SnapshotCache.open(kafka_settings, topic=topic) as cache:
        assert cache.all() == (snapshot(1),)
        assert len(cache.active()) == 1
        send(kafka_settings, [sent(topic, snapshot(1, version=2, current_state="rejected"))])
        assert eventually(lambda: cache.get(number_id(1)) != snapshot(1))
        assert cache.active() == ()
        send(kafka_settings, [tombstone(topic, number_id(1))])
        assert eventually(lambda: len(cache) == 0)
        assert cache.status().loads == 1


def test_an_open_transaction_holds_nobody_up_and_is_seen_when_it_commits(
    kafka_settings: Settings, topic: str
) -> None:
    with transactions(kafka_settings) as producer:
        producer.begin_transaction()
        produce_all(producer, [sent(topic, snapshot(number)) for number in range(5)])
        producer.commit_transaction(30)
        producer.begin_transaction()
        produce_all(producer, [sent(topic, snapshot(number, 2)) for number in range(10)])
        with SnapshotCache.open(kafka_settings, topic=topic) as cache:
            assert eventually(lambda: len(cache) == 5)
            assert {one.snapshot_version for one in cache.all()} == {1}
            producer.commit_transaction(30)
            assert eventually(lambda: len(cache) == 10)
            assert {one.snapshot_version for one in cache.all()} == {2}


def test_an_aborted_transaction_never_happened(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    send(kafka_settings, [sent(topic, snapshot(1))])
    with transactions(kafka_settings) as producer:
        for _ in range(2):
            producer.begin_transaction()
            produce_all(
                producer, [sent(topic, snapshot(2)), tombstone(topic, number_id(1), version=9)]
            )
            producer.abort_transaction(30)
            cache.refresh()  # once as a load to the end, once as a way on from there
            assert cache.all() == (snapshot(1),)


def test_malformed_records_are_counted_and_reported_and_stop_nothing(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    send(
        kafka_settings,
        [
            sent(topic, snapshot(1)),
            KafkaRecord(topic, b"{", key=str(number_id(1))),
            KafkaRecord(topic, b"no key of ours", key="node-1"),
            KafkaRecord(topic, None, key="node-1"),
            sent(topic, snapshot(2)),
        ],
    )
    cache.refresh()
    assert by_id(*cache.all()) == by_id(snapshot(1), snapshot(2))
    assert cache.status().malformed == 3
    send(kafka_settings, [KafkaRecord(topic, b"[]", key=str(number_id(3)))])
    cache.refresh()
    assert cache.status().malformed == 4
    assert "the value" in (cache.status().last_malformed or "")
    assert "offset" in (cache.status().last_malformed or "")
    cache.reload()
    assert cache.status().malformed == 4, "a load counts what is in the topic"


def test_readers_see_the_old_map_or_the_new_one_and_nothing_between(
    kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(number)) for number in range(3000)])
    with SnapshotCache.open(kafka_settings, topic=topic) as cache:
        seen, ended = set(), Event()

        def watch() -> None:
            while not ended.is_set():
                seen.add((len(cache), cache.is_complete))

        watcher = Thread(target=watch)
        watcher.start()
        try:
            for _ in range(3):
                cache.reload()
        finally:
            ended.set()
            watcher.join()
        assert seen == {(3000, True)}
        assert cache.status().loads == 4


def test_a_cache_knows_how_stale_it_is(
    kafka_settings: Settings, topic: str, cache: SnapshotCache
) -> None:
    send(kafka_settings, [sent(topic, snapshot(1))])
    cache.refresh()
    status = cache.status()
    assert status.is_complete
    assert status.entities == 1
    assert status.records_behind == 0
    assert status.loaded_at is not None
    assert status.current_as_of is not None
    assert status.current_as_of <= status.loaded_at
    before = cache.staleness()
    assert before is not None
    # Nobody follows the topic.
    assert eventually(lambda: (cache.staleness() or 0) >= before + 0.3)
    with SnapshotCache.open(kafka_settings, topic=topic) as followed:
        first = followed.status().current_as_of
        assert first is not None
        assert eventually(lambda: (followed.status().current_as_of or first) > first)
        assert followed.status().records_behind == 0
        assert followed.status().last_error is None

"""The read cache when the ground moves: topics made anew, offsets gone, a broker that is away."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from onex_platform.base.errors import InfraError, InfraTimeoutError
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.engines.kafka import topic_reader
from onex_platform.engines.kafka.clients import KafkaConsumer, open_admin, read_to_end
from onex_platform.engines.kafka.topic_reader import TopicReader
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.read.snapshot_map import Draft
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import (
    by_id,
    create_compacted,
    new_topic,
    send,
    sent,
    snapshot,
    tombstone,
)
from onex_platform_tests.support.stacks import halted_broker
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


@pytest.fixture
def impatient(kafka_settings: Settings) -> Settings:
    """The shared broker, with short limits and so with a breaker of its own."""
    kafka = kafka_settings.kafka.model_copy(
        update={"request_timeout_seconds": 1, "connect_timeout_seconds": 1}
    )
    return kafka_settings.model_copy(
        update={"kafka": kafka, "breaker": BreakerSettings(reset_seconds=0.002)}
    )


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    return new_topic(kafka_settings)


@pytest.fixture
def cache(impatient: Settings, topic: str) -> Iterator[SnapshotCache]:
    """A loaded cache without a thread, of a topic with two nodes."""
    send(impatient, [sent(topic, snapshot(1)), sent(topic, snapshot(2))])
    made = SnapshotCache(impatient, topic=topic)
    made.refresh()
    yield made
    made.close()


def _delete(settings: Settings, topic: str) -> None:
    with open_admin(settings) as admin:
        admin.delete_topics([topic])[topic].result(30)
        assert eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def test_a_load_that_breaks_off_shows_nothing(
    impatient: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(impatient, [sent(topic, snapshot(number)) for number in range(3000)])
    read_batch = TopicReader.batch

    def only_once(reader: TopicReader, patience: float) -> list[Any]:
        return [] if any(reader.positions.values()) else read_batch(reader, patience)

    cache = SnapshotCache(impatient, topic=topic)
    with monkeypatch.context() as broken:
        broken.setattr(TopicReader, "batch", only_once)
        with pytest.raises(InfraTimeoutError, match=f"hand over the records of {topic}"):
            cache.refresh()
    assert not cache.is_complete
    cache.refresh()
    assert len(cache) == 3000
    with monkeypatch.context() as broken:
        broken.setattr(TopicReader, "batch", only_once)
        with pytest.raises(InfraTimeoutError):
            cache.reload()
    assert cache.is_complete
    assert len(cache) == 3000, "the old map stays until there is a new one"
    assert cache.status().records_behind is None
    cache.close()


def test_a_way_on_that_breaks_off_loses_nothing(
    impatient: Settings, topic: str, cache: SnapshotCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(impatient, [sent(topic, snapshot(number)) for number in range(3000)])
    read_batch, batches = TopicReader.batch, iter(range(2))

    def only_twice(reader: TopicReader, patience: float) -> list[Any]:
        return read_batch(reader, patience) if next(batches, None) is not None else []

    with monkeypatch.context() as broken:
        broken.setattr(TopicReader, "batch", only_twice)
        with pytest.raises(InfraTimeoutError):
            cache.refresh()
    cache.refresh()
    assert len(cache) == 3000
    assert cache.status().loads == 1


def test_who_is_interrupted_between_reading_and_showing_reads_anew(
    impatient: Settings, topic: str, cache: SnapshotCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    send(impatient, [sent(topic, snapshot(3))])
    with monkeypatch.context() as broken:
        broken.setattr(Draft, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.refresh()
    cache.refresh()
    assert len(cache) == 3
    assert cache.status().loads == 2


def test_a_follower_outlives_a_fault_of_its_own(
    impatient: Settings, topic: str, cache: SnapshotCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("of the test")

    with SnapshotCache.open(impatient, topic=topic) as followed:
        with monkeypatch.context() as broken:
            broken.setattr(Draft, "put", faulty)
            send(impatient, [sent(topic, snapshot(3))])
            assert eventually(lambda: followed.status().last_error == "of the test")
            assert len(followed) == 2
        assert eventually(lambda: len(followed) == 3)
        assert followed.status().last_error is None


def test_a_load_that_takes_longer_than_tombstones_stay_is_none(impatient: Settings) -> None:
    hasty = new_topic(impatient, delete_retention_ms="0")
    send(impatient, [sent(hasty, snapshot(1))])
    cache = SnapshotCache(impatient, topic=hasty)
    with pytest.raises(InfraTimeoutError, match=r"delete\.retention\.ms"):
        cache.refresh()
    assert not cache.is_complete
    cache.close()


@pytest.mark.parametrize("length", [1, 2, 5], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_made_anew_is_read_anew(impatient: Settings, length: int) -> None:
    topic = new_topic(impatient, 1)
    send(impatient, [sent(topic, snapshot(1)), tombstone(topic, number_id(2), version=9)])
    cache = SnapshotCache(impatient, topic=topic)
    cache.refresh()
    _delete(impatient, topic)
    with pytest.raises(InfraError):
        cache.refresh()
    assert len(cache) == 1, "what was read is still shown"
    create_compacted(impatient, topic, 1)
    # Versions are low again, as in a registry that begins anew: they count all the same.
    again = [snapshot(2, version) for version in range(1, length + 1)]
    send(impatient, [sent(topic, one) for one in again])
    cache.refresh()
    assert cache.all() == (again[-1],)
    assert cache.status().last_error is None
    cache.close()


def test_a_topic_that_is_made_anew_during_a_load_is_read_anew(
    impatient: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(impatient, 1)
    send(impatient, [sent(topic, snapshot(1)), sent(topic, snapshot(2))])
    read_to = TopicReader.read_to
    loads = iter(range(2))

    def made_anew(reader: TopicReader, ends: Mapping[int, int]) -> Iterator[list[Message]]:
        yield from read_to(reader, ends)
        if next(loads) == 0:
            _delete(impatient, topic)
            create_compacted(impatient, topic, 1)
            send(impatient, [sent(topic, snapshot(3))])

    monkeypatch.setattr(TopicReader, "read_to", made_anew)
    cache = SnapshotCache(impatient, topic=topic)
    with closing(cache):
        cache.refresh()
        assert cache.all() == (snapshot(3),)
        assert cache.status().loads == 1


def test_a_follower_finds_a_topic_that_was_made_anew(impatient: Settings, topic: str) -> None:
    records = [sent(topic, snapshot(number, version=7)) for number in range(20)]
    send(impatient, [*records, tombstone(topic, number_id(1), version=8)])
    with SnapshotCache.open(impatient, topic=topic) as cache:
        assert len(cache) == 19
        _delete(impatient, topic)
        assert eventually(lambda: cache.status().last_error is not None)
        assert len(cache) == 19
        create_compacted(impatient, topic, partitions=5)
        again = [snapshot(number, version=1) for number in (1, 2)]
        send(impatient, [sent(topic, one) for one in again])
        assert eventually(lambda: by_id(*cache.all()) == by_id(*again))
        assert eventually(lambda: cache.status().last_error is None)
        assert (cache.staleness() or 0) < 10


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[KafkaConsumer]:
    """The consumers of all readers that are opened, the newest last."""
    real, opened = topic_reader.open_consumer, list[KafkaConsumer]()

    @contextmanager
    def remembered(*arguments: Any, **config: Any) -> Iterator[KafkaConsumer]:
        with real(*arguments, **config) as consumer:
            opened.append(consumer)
            yield consumer

    monkeypatch.setattr(topic_reader, "open_consumer", remembered)
    return opened


def test_an_offset_that_is_gone_leads_to_a_new_load(
    impatient: Settings, topic: str, consumers: list[KafkaConsumer], cache: SnapshotCache
) -> None:
    def leap() -> None:
        """Let the broker be asked for an offset that it does not have."""
        consumers[-1].assign([TopicPartition(topic, 0, 1_000_000)])

    leap()
    send(impatient, [sent(topic, snapshot(number)) for number in range(3, 20)])
    cache.refresh()
    assert cache.status().loads == 2
    assert len(cache) == 19

    with SnapshotCache.open(impatient, topic=topic) as followed:
        leap()
        assert eventually(lambda: followed.status().loads == 2)
        assert len(followed) == 19


def test_a_cache_that_was_away_longer_than_tombstones_stay_reads_anew(
    kafka_settings: Settings,
) -> None:
    """A node's removal, tombstone and all, can be compacted away while nobody looks."""
    quick = {
        "segment_ms": "200",
        "max_compaction_lag_ms": "200",
        "min_cleanable_dirty_ratio": "0.001",
        "delete_retention_ms": "3000",
    }
    compacting = new_topic(kafka_settings, 1, **quick)
    send(kafka_settings, [sent(compacting, snapshot(1)), sent(compacting, snapshot(2))])
    cache = SnapshotCache(kafka_settings, topic=compacting)
    cache.refresh()
    send(kafka_settings, [tombstone(compacting, number_id(1), version=2)])

    def is_compacted_away() -> bool:
        send(kafka_settings, [sent(compacting, snapshot(2))])  # else no segment ends
        return all(record.value() for record in read_to_end(kafka_settings, [compacting]))

    assert eventually(is_compacted_away, seconds=60)
    assert number_id(1) in cache
    cache.refresh()
    assert cache.all() == (snapshot(2),)
    assert cache.status().loads == 2
    cache.close()


def test_a_broker_that_is_away_for_a_while_makes_the_cache_stale_and_no_worse(
    impatient: Settings, kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(number)) for number in range(10)])
    with SnapshotCache.open(impatient, topic=topic) as cache:
        with halted_broker(kafka_settings):
            assert eventually(lambda: (cache.staleness() or 0) > 2)
            assert len(cache) == 10
            assert cache.is_complete
            assert eventually(lambda: cache.status().last_error is not None)
            with pytest.raises(InfraError):
                cache.refresh()
        send(kafka_settings, [sent(topic, snapshot(10))])
        assert eventually(lambda: len(cache) == 11)
        assert eventually(lambda: (cache.staleness() or 9) < 1.5)
        assert eventually(lambda: cache.status().last_error is None)
        assert cache.status().loads == 1


def test_a_follower_that_was_cut_off_longer_than_tombstones_stay_reads_anew(
    impatient: Settings, kafka_settings: Settings
) -> None:
    forgetful = new_topic(kafka_settings, delete_retention_ms="2000")
    send(kafka_settings, [sent(forgetful, snapshot(1))])
    with SnapshotCache.open(impatient, topic=forgetful) as cache:
        with halted_broker(kafka_settings):
            assert eventually(lambda: (cache.staleness() or 0) > 3)
            assert cache.all() == (snapshot(1),)
        assert eventually(lambda: cache.status().loads > 1)
        assert cache.all() == (snapshot(1),)


def test_leaving_a_cache_is_quick_when_the_broker_is_away(
    impatient: Settings, kafka_settings: Settings, topic: str
) -> None:
    with ExitStack() as halted:
        with SnapshotCache.open(impatient, topic=topic) as cache:
            halted.enter_context(halted_broker(kafka_settings))
            started = time.monotonic()
        assert time.monotonic() - started < 10
        assert cache.is_complete


def test_what_was_removed_is_remembered_over_a_reload(
    impatient: Settings, topic: str, cache: SnapshotCache
) -> None:
    send(impatient, [tombstone(topic, number_id(1), version=5)])
    cache.refresh()
    cache.reload()
    send(impatient, [sent(topic, snapshot(1, version=4))])
    cache.refresh()
    assert cache.all() == (snapshot(2),)
    send(impatient, [sent(topic, snapshot(1, version=6))])
    cache.refresh()
    assert len(cache) == 2

"""Does the broker keep the topic compact? Measured where it does not, and proved where it does."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaRecord, read_to_end
from onex_platform.snapshots.audit.topic_compaction import (
    CompactionState,
    compaction_keeps_up,
    measure_compaction,
)
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import (
    by_id,
    new_topic,
    send,
    sent,
    snapshot,
    tombstone,
)
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEVER_COMPACTED = {"cleanup_policy": "delete", "retention_ms": "-1"}
LAG = {"max_compaction_lag_ms": "60000", "min_compaction_lag_ms": "1000"}


def _written(topic: str, key: str, seconds_ago: float, value: bytes | None = b"x") -> KafkaRecord:
    moment = NOW - timedelta(seconds=seconds_ago)
    return KafkaRecord(topic, value, key, timestamp_ms=int(moment.timestamp() * 1000))


def _measured(settings: Settings, *written: tuple[str, float]) -> CompactionState:
    """The state of a topic that nobody compacts, with these keys written so long ago."""
    topic = new_topic(settings, 1, **NEVER_COMPACTED, **LAG)
    send(settings, [_written(topic, key, ago) for key, ago in written])
    return measure_compaction(settings, topic, NOW)


def _seconds(state: CompactionState) -> tuple[float, float, float]:
    times = (state.oldest_age, state.superseded_for, state.late_for)
    return tuple(time.total_seconds() for time in times)  # type: ignore[return-value]


def test_a_topic_without_superseded_records_is_never_late(kafka_settings: Settings) -> None:
    assert _seconds(_measured(kafka_settings)) == (0, 0, 0)
    state = _measured(kafka_settings, ("a", 5000), ("b", 4000), ("c", 1))
    assert (state.records, state.keys, state.superseded) == (3, 3, 0)
    assert _seconds(state) == (0, 0, 0)
    assert state.max_lag == timedelta(minutes=1)


def test_an_old_record_is_not_late_because_it_was_superseded_a_moment_ago(
    kafka_settings: Settings,
) -> None:
    state = _measured(kafka_settings, ("a", 5000), ("a", 10), ("b", 5))
    assert state.superseded == 1
    assert _seconds(state) == (5000, 10, 0)


def test_a_partition_that_nobody_appends_to_is_not_late(kafka_settings: Settings) -> None:
    # The last append came within the lag: it did not end the segment.
    state = _measured(kafka_settings, ("a", 5000), ("a", 4000), ("b", 3941))
    assert _seconds(state) == (5000, 4000, 0)


def test_a_record_is_late_from_the_append_that_ended_its_segment(kafka_settings: Settings) -> None:
    written = [("a", 5000), ("b", 4500), ("a", 4000), ("b", 3990), ("c", 3500), ("c", 10)]
    state = _measured(kafka_settings, *written)
    assert (state.records, state.keys, state.superseded) == (6, 3, 3)
    assert _seconds(state) == (5000, 4000, 3499), "3500, and a second that it may not be compacted"


def test_what_is_appended_to_another_partition_ends_no_segment(kafka_settings: Settings) -> None:
    topic = new_topic(kafka_settings, 2, **NEVER_COMPACTED, **LAG)
    keys = [str(number_id(number)) for number in range(40)]
    send(kafka_settings, [_written(topic, key, 5000) for key in keys])
    where = {message.key(): message.partition() for message in read_to_end(kafka_settings, [topic])}
    here, there = ([k for k in keys if where[k.encode()] == part] for part in (0, 1))
    assert here
    assert there
    send(kafka_settings, [_written(topic, here[0], 4000), _written(topic, there[0], 100)])
    state = measure_compaction(kafka_settings, topic, NOW)
    assert _seconds(state) == (5000, 4000, 0)
    send(kafka_settings, [_written(topic, here[1], 90, value=None)])
    assert _seconds(measure_compaction(kafka_settings, topic, NOW)) == (5000, 4000, 89)


def test_the_verdict_allows_the_cleaner_some_time(kafka_settings: Settings) -> None:
    topic = new_topic(kafka_settings, 1, **NEVER_COMPACTED, **LAG)
    send(kafka_settings, [_written(topic, key, ago) for key, ago in [("a", 900), ("a", 800)]])
    passed = compaction_keeps_up(kafka_settings, topic, NOW)
    assert passed.passed
    send(kafka_settings, [_written(topic, "b", 301)])
    failed = compaction_keeps_up(kafka_settings, topic, NOW)
    assert not failed.passed
    assert failed.metadata["age of the oldest uncompacted record in seconds"] == 900
    assert failed.metadata["late for seconds"] == 300
    assert "300 s late" in failed.description
    generous = timedelta(seconds=300)
    assert compaction_keeps_up(kafka_settings, topic, NOW, generous).passed


def test_the_broker_really_compacts_and_readers_notice_nothing(kafka_settings: Settings) -> None:
    quick = {
        "segment_ms": "500",
        "max_compaction_lag_ms": "500",
        "min_cleanable_dirty_ratio": "0.001",
    }
    topic = new_topic(kafka_settings, 3, **quick)
    records = [
        sent(topic, snapshot(number, version)) for version in range(1, 6) for number in range(100)
    ]
    gone = [tombstone(topic, number_id(number), version=6) for number in range(10)]
    send(kafka_settings, [*records, *gone])
    with SnapshotCache.open(kafka_settings, topic=topic) as followed:
        before = by_id(*followed.all())
        assert before == by_id(*(snapshot(number, 5) for number in range(10, 100)))
        assert measure_compaction(kafka_settings, topic, datetime.now(UTC)).superseded > 0

        def one_record_remains_of_each() -> bool:
            # A segment ends only when something is appended: malformed, so that it changes nothing.
            send(kafka_settings, [KafkaRecord(topic, b"", f"filler-{n}") for n in range(20)])
            kept = Counter(message.key() for message in read_to_end(kafka_settings, [topic]))
            return all(kept[str(number_id(number)).encode()] == 1 for number in range(100))

        assert eventually(one_record_remains_of_each, seconds=60)
        assert by_id(*followed.all()) == before
        assert followed.status().loads == 1
    with SnapshotCache.open(kafka_settings, topic=topic) as loaded:
        assert by_id(*loaded.all()) == before
    assert compaction_keeps_up(kafka_settings, topic, datetime.now(UTC)).passed

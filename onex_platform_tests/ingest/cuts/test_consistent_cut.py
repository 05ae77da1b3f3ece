"""Cuts on a real broker: whole moments, bounded, whoever dates the records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import (
    TIMESTAMP_TYPE,
    TopicLayout,
    create,
    dated_by_senders,
)
from onex_platform.ingest.cuts import consistent_cut
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition, plan_cut

pytestmark = pytest.mark.servers

NOW = datetime.now(UTC).replace(minute=50, second=0, microsecond=0) - timedelta(hours=1)
LONG_AGO = NOW - timedelta(days=3)


def _topic(settings: Settings, timestamps: str = "CreateTime") -> str:
    """A topic with one partition; by default a record has the time that a test gives it."""
    name = f"test.{uuid4().hex}"
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(name, 1, 1, {TIMESTAMP_TYPE: timestamps})])
    return name


def _send(settings: Settings, topic: str, *moments: datetime) -> None:
    with open_producer(settings) as producer:
        for moment in moments:  # one by one: their order is the order of the offsets
            stamp = int(moment.timestamp() * 1000)
            produce_all(producer, [KafkaRecord(topic, b"{}", "key", timestamp_ms=stamp)])


def _cuts(
    settings: Settings, topics: list[str], most: int, *, taken_whole: list[str] | None = None
) -> list[Cut]:
    """Cut after cut, until the log would be closed up to NOW."""
    taken: list[Cut] = []
    cursors: dict[InputPartition, int] = {}
    head = LONG_AGO
    with open_consumer(settings) as consumer:
        while cut := plan_cut(
            consumer, topics, cursors, head, NOW, most, taken_whole=taken_whole or []
        ):
            taken.append(cut)
            cursors = cursors | {place: span.end for place, span in cut.ranges.items()}
            head = cut.instant
    return taken


def _after(seconds: int) -> datetime:
    """Within the hour before NOW."""
    return NOW - timedelta(minutes=30) + timedelta(seconds=seconds)


def test_too_many_records_are_cut_at_an_earlier_instant_of_all_topics(
    kafka_settings: Settings,
) -> None:
    one, other = _topic(kafka_settings), _topic(kafka_settings)
    moments = {one: [_after(n) for n in range(0, 40, 2)], other: [_after(n) for n in range(20)]}
    for topic, times in moments.items():
        _send(kafka_settings, topic, *times)
    cuts = _cuts(kafka_settings, [one, other], most=7)
    assert max(cut.records for cut in cuts) <= 7
    assert sum(cut.records for cut in cuts) == 40
    assert cuts[-1].instant == NOW
    assert all(after.closed_before == before.instant for before, after in pairwise(cuts))
    for cut in cuts:
        for topic, times in moments.items():
            span = cut.ranges.get(InputPartition(topic, 0))
            taken = times[span.start : span.end] if span else []
            assert taken == [time for time in times if cut.closed_before <= time < cut.instant]


def test_a_millisecond_with_too_many_records_is_taken_as_it_is(kafka_settings: Settings) -> None:
    topic = _topic(kafka_settings)
    _send(kafka_settings, topic, _after(1), *[_after(2)] * 5, _after(3))
    assert [cut.records for cut in _cuts(kafka_settings, [topic], most=2)][:3] == [1, 5, 1]


def test_a_cut_is_as_wide_as_the_places_of_its_records(
    kafka_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistent_cut, "EVENTS_PER_MILLISECOND", 2)
    topic, head, tick = _topic(kafka_settings), _after(5), timedelta(milliseconds=1)
    _send(kafka_settings, topic, *[_after(1)] * 9)
    with open_consumer(kafka_settings) as consumer:
        for until, latest, ends in (
            (head + 2 * tick, None, None),
            (head + 2 * tick, head + 4 * tick, None),
            (head + 2 * tick, NOW, head + 5 * tick),
            (NOW, None, head + 5 * tick),
        ):
            cut = plan_cut(consumer, [topic], {}, head, until, 3, latest=latest)
            assert (cut and (cut.records, cut.instant)) == (ends and (9, ends))


def test_a_cut_never_spans_two_hours(kafka_settings: Settings) -> None:
    topic = _topic(kafka_settings)
    hours = [NOW - timedelta(hours=count) for count in (3, 2, 1)]
    _send(kafka_settings, topic, *hours)
    assert [cut.records for cut in _cuts(kafka_settings, [topic], most=100)][:3] == [1, 1, 1]


def test_a_record_that_is_dated_ahead_holds_nothing_up_where_senders_date_them(
    kafka_settings: Settings,
) -> None:
    dated, other = _topic(kafka_settings), _topic(kafka_settings)
    ahead = datetime.now(UTC) + timedelta(minutes=30)
    _send(kafka_settings, dated, _after(1), ahead, _after(2), _after(3), _after(4))
    _send(kafka_settings, other, _after(1), _after(3), ahead)
    [cut] = _cuts(kafka_settings, [dated, other], most=100, taken_whole=[dated])
    assert cut.ranges == {InputPartition(dated, 0): (0, 5), InputPartition(other, 0): (0, 2)}
    # The bound holds until only such records are left.
    bounded = _cuts(kafka_settings, [dated, other], most=2, taken_whole=[dated])
    assert [cut.records for cut in bounded] == [2, 1, 4]
    assert bounded[-1].instant == NOW


def test_topics_whose_senders_date_the_records_are_told_apart(kafka_settings: Settings) -> None:
    by_senders, by_broker = _topic(kafka_settings), _topic(kafka_settings, "LogAppendTime")
    with open_admin(kafka_settings) as admin:
        found = dated_by_senders(admin, [by_senders, by_broker, f"missing.{uuid4().hex}"])
        assert found == {by_senders}
        assert dated_by_senders(admin, [f"missing.{uuid4().hex}"]) == set()

"""Consistent cuts: for one instant, the records before it of every partition of every input topic.

The ends are captured first, then looked up by time; so a record that arrives meanwhile belongs to a
later cut. Too large a backlog is cut at an earlier instant, never at a part of the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from confluent_kafka import OFFSET_END, TopicPartition

from onex_platform.engines.kafka import KafkaConsumer, translated
from onex_platform.errors import OnexError

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1) // _MILLISECOND


class Place(NamedTuple):
    """A partition of an input topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """Offsets of one partition, `end` excluded."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1}"


class Cut(NamedTuple):
    """What one batch reads."""

    closed_before: datetime
    instant: datetime
    ranges: dict[Place, OffsetRange]
    cursors: Mapping[Place, int]  # where reading stood when the cut was planned

    @property
    def records(self) -> int:
        """How many records at most; offsets may have gaps."""
        return sum(end - start for start, end in self.ranges.values())


class RecordsLostError(OnexError):
    """The broker no longer has records that were never archived."""


def plan_cut(
    consumer: KafkaConsumer,
    topics: Iterable[str],
    cursors: Mapping[Place, int],
    closed_before: datetime,
    until: datetime,
    most_records: int,
) -> Cut | None:
    """The next cut, at `until` or earlier; None: the log is closed up to there already.

    Earlier, if there are too many records or if they are of more than one hour. `cursors` says
    which offset comes next; a partition that it does not name is read from its oldest record.
    """
    until = _moment(_ticks(until))
    if until <= closed_before:
        return None
    available = _available(consumer, topics, cursors)

    def records_before(tick: int) -> int:
        return _count(_before(consumer, available, _moment(tick)))

    ticks = _ticks(until)
    if _count(_before(consumer, available, until)):
        first_hour, last_hour = _ticks(closed_before) // _HOUR, ticks // _HOUR + 1
        hour = _first(lambda n: records_before(n * _HOUR) > 0, first_hour, last_hour)
        ticks = min(ticks, hour * _HOUR)
    if records_before(ticks) > most_records:
        too_many = _first(lambda n: records_before(n) > most_records, _ticks(closed_before), ticks)
        # A millisecond can't be divided: if it alone is too much, it is taken as it is.
        ticks = too_many if records_before(too_many - 1) == 0 else too_many - 1
    ranges = _before(consumer, available, _moment(ticks))
    taken = {place: span for place, span in ranges.items() if span.end > span.start}
    return Cut(closed_before, _moment(ticks), taken, cursors)


def _available(
    consumer: KafkaConsumer, topics: Iterable[str], cursors: Mapping[Place, int]
) -> dict[Place, OffsetRange]:
    """From the cursor to the captured end; raises if the broker has lost what comes next."""
    ends = {place: ends_of(consumer, place) for place in places_of(consumer, topics)}
    lost = _lost(ends, cursors)
    if lost:
        raise RecordsLostError(
            "Records were deleted by the broker before they were archived: "
            + ", ".join(f"{place} {span}" for place, span in lost.items())
            + ".",
            hint="They are gone. Lengthen the topics' retention, then accept the loss with "
            "`onex pages skip-lost`.",
        )
    return {
        place: OffsetRange(cursors.get(place, span.start), span.end) for place, span in ends.items()
    }


def lost_ranges(
    consumer: KafkaConsumer, topics: Iterable[str], cursors: Mapping[Place, int]
) -> dict[Place, OffsetRange]:
    """What comes next after the cursors, but was deleted by the broker."""
    ends = {place: ends_of(consumer, place) for place in places_of(consumer, topics)}
    return _lost(ends, cursors)


def _lost(
    ends: Mapping[Place, OffsetRange], cursors: Mapping[Place, int]
) -> dict[Place, OffsetRange]:
    starts = {
        place: OffsetRange(cursors.get(place, span.start), span.start)
        for place, span in ends.items()
    }
    return {place: span for place, span in starts.items() if span.start < span.end}


def places_of(consumer: KafkaConsumer, topics: Iterable[str]) -> list[Place]:
    """The partitions of those topics that exist."""
    wanted = set(topics)
    with translated(consumer.settings, "describe its topics"):
        known = consumer.list_topics(timeout=_limit(consumer)).topics
    return [
        Place(topic, partition)
        for topic in sorted(wanted & known.keys())
        for partition in sorted(known[topic].partitions)
    ]


def ends_of(consumer: KafkaConsumer, place: Place) -> OffsetRange:
    """The oldest offset that the broker still has, and the one that comes next."""
    with translated(consumer.settings, "say where its topics begin and end"):
        ends = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_limit(consumer))
    return OffsetRange(*ends)


def _before(
    consumer: KafkaConsumer, available: Mapping[Place, OffsetRange], instant: datetime
) -> dict[Place, OffsetRange]:
    """The part of what is available that was appended before `instant`."""
    if not available:
        return {}
    with translated(consumer.settings, "look offsets up by time"):
        found = consumer.offsets_for_times(
            [TopicPartition(*place, _ticks(instant)) for place in available],
            timeout=_limit(consumer),
        )
    ranges = {}
    for answer in found:
        place = Place(answer.topic, answer.partition)
        start, end = available[place]
        if answer.offset not in (-1, OFFSET_END):
            end = min(end, answer.offset)
        ranges[place] = OffsetRange(start, max(start, end))
    return ranges


def _count(ranges: Mapping[Place, OffsetRange]) -> int:
    return sum(end - start for start, end in ranges.values())


def _limit(consumer: KafkaConsumer) -> float:
    return consumer.settings.kafka.request_timeout_seconds


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first number above `low` and up to `high` from which on `holds` is true."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _ticks(moment: datetime) -> int:
    """The broker's clock ticks in milliseconds; a cut ends where one begins."""
    return (moment - _ORIGIN) // _MILLISECOND


def _moment(ticks: int) -> datetime:
    return _ORIGIN + ticks * _MILLISECOND

"""Consistent cuts: for one instant, the records before it of every partition of every input topic.

The ends are captured first, then looked up by time; so a record that arrives meanwhile belongs to a
later cut. Too large a backlog is cut at an earlier instant, never at a part of the topics.

Where senders date the records, their times are no order: one that is dated ahead would hold up
everything behind it. A cut that reaches the present takes such topics up to the captured end; what
is dated later than the cut counts as of the cut's end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from onex_platform.base.errors import OnexError
from onex_platform.domain.order import EVENTS_PER_MILLISECOND
from onex_platform.engines.kafka.clients import KafkaConsumer, translated

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_HOUR = timedelta(hours=1) // _MILLISECOND


class InputPartition(NamedTuple):
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


class Restart(NamedTuple):
    """A partition whose offsets began anew, with what it holds: it ends before the offset that
    comes next, or belongs to another topic of the same name."""

    expected: int
    held: OffsetRange
    topic_id: UUID | None = None  # of the other topic

    def __str__(self) -> str:
        holds = str(self.held) if self.held.end > self.held.start else "nothing"
        missed = f"holds {holds}, but offset {self.expected} comes next"
        return missed if self.topic_id is None else f"{missed} of the topic that it replaced"


class TopicIds(NamedTuple):
    """The ids of the topics that were read, and of those that are there now.

    They are asked for before the offsets: so what is read from a topic that is made anew at this
    moment counts as the old one's, and the next cut is refused.
    """

    read: Mapping[str, Collection[UUID]]
    present: Mapping[str, UUID]

    @property
    def made_anew(self) -> dict[str, UUID]:
        return {
            topic: topic_id
            for topic, topic_id in self.present.items()
            if any(known != topic_id for known in self.read.get(topic, ()))
        }


UNKNOWN_IDS = TopicIds({}, {})


@dataclass(frozen=True, slots=True)
class Losses:
    """What stands between the archive and the next record of some partitions."""

    deleted: Mapping[InputPartition, OffsetRange] = field(default_factory=dict)
    restarted: Mapping[InputPartition, Restart] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.deleted or self.restarted)


class Cut(NamedTuple):
    """What one batch reads."""

    closed_before: datetime
    instant: datetime
    ranges: dict[InputPartition, OffsetRange]
    cursors: Mapping[InputPartition, int]  # where reading stood when the cut was planned
    topic_ids: Mapping[str, UUID]  # as far as they are known

    @property
    def records(self) -> int:
        """How many records at most; offsets may have gaps."""
        return sum(end - start for start, end in self.ranges.values())


class RecordsLostError(OnexError):
    """The broker no longer has records that were never archived, or may not have them."""


def plan_cut(
    consumer: KafkaConsumer,
    topics: Iterable[str],
    cursors: Mapping[InputPartition, int],
    closed_before: datetime,
    until: datetime,
    most_records: int,
    ids: TopicIds = UNKNOWN_IDS,
    taken_whole: Collection[str] = (),
    latest: datetime | None = None,
) -> Cut | None:
    """The next cut, at `until` or earlier; None: the log is closed up to there already.

    Earlier, if there are too many records or if they are of more than one hour. `cursors` says
    which offset comes next; a partition that it does not name is read from its oldest record. At
    `until`, topics that are `taken_whole` are read to their end, whatever their records' times.

    So many records may be late that the cut has no place for them. Then it ends after `until`, but
    not after `latest`, which is `until` if not given; None: there is not enough time yet.
    """
    until = whole_tick(until)
    if until <= closed_before:
        return None
    available = _available(consumer, topics, cursors, ids)
    whole = {place: span for place, span in available.items() if place.topic in taken_whole}
    end = _ticks(until)

    @cache
    def before(tick: int) -> dict[InputPartition, OffsetRange]:
        return _before(consumer, available, _moment(tick)) | (whole if tick >= end else {})

    def records_before(tick: int) -> int:
        return _count(before(tick))

    ticks = end
    if records_before(end):
        first_hour, last_hour = _ticks(closed_before) // _HOUR, ticks // _HOUR + 1
        hour = _first(lambda n: records_before(n * _HOUR) > 0, first_hour, last_hour)
        ticks = min(ticks, hour * _HOUR)
    if records_before(ticks) > most_records:
        too_many = _first(lambda n: records_before(n) > most_records, _ticks(closed_before), ticks)
        # A millisecond can't be divided: if it alone is too much, it is taken as it is.
        ticks = too_many if records_before(too_many - 1) == 0 else too_many - 1
    ranges = before(ticks)
    # All of them may be of one entity: then they take as many milliseconds.
    while (width := -(-_count(ranges) // EVENTS_PER_MILLISECOND)) > ticks - _ticks(closed_before):
        ticks = _ticks(closed_before) + width
        if ticks > _ticks(latest or until):
            return None
        ranges = before(ticks)
    taken = {place: span for place, span in ranges.items() if span.end > span.start}
    return Cut(closed_before, _moment(ticks), taken, cursors, ids.present)


def _available(
    consumer: KafkaConsumer,
    topics: Iterable[str],
    cursors: Mapping[InputPartition, int],
    ids: TopicIds,
) -> dict[InputPartition, OffsetRange]:
    """From the cursor to the captured end; raises if the broker has lost what comes next."""
    ends = _ends(consumer, topics, cursors)
    lost = _lost(ends, cursors, ids)
    if lost:
        raise _refusal(lost)
    spans = {
        place: OffsetRange(cursors.get(place, span.start), span.end) for place, span in ends.items()
    }
    return {place: span for place, span in spans.items() if span.start < span.end}


def find_lost(
    consumer: KafkaConsumer,
    topics: Iterable[str],
    cursors: Mapping[InputPartition, int],
    ids: TopicIds,
) -> Losses:
    """What comes next after the cursors, but is not on the broker."""
    return _lost(_ends(consumer, topics, cursors), cursors, ids)


def _ends(
    consumer: KafkaConsumer, topics: Iterable[str], cursors: Mapping[InputPartition, int]
) -> dict[InputPartition, OffsetRange]:
    """What every partition holds; one that was read before and is gone now holds nothing."""
    wanted = set(topics)
    gone = {place: OffsetRange(0, 0) for place in cursors if place.topic in wanted}
    places = places_of(consumer, wanted)
    starts = _all_at(consumer, places, OFFSET_BEGINNING)
    ends = _all_at(consumer, places, OFFSET_END)
    return gone | {place: OffsetRange(starts[place], ends[place]) for place in places}


def _all_at(
    consumer: KafkaConsumer, places: Sequence[InputPartition], end: int
) -> dict[InputPartition, int]:
    """Where all partitions begin or end, asked for at once: it takes as long as for one."""
    if not places:
        return {}
    with translated(consumer.settings, "say where its topics begin and end"):
        # The protocol has both ends as times of their own.
        found = consumer.offsets_for_times(
            [TopicPartition(*place, end) for place in places], timeout=_limit(consumer)
        )
        for answer in found:
            if answer.error is not None:
                raise KafkaException(answer.error)
    return {InputPartition(answer.topic, answer.partition): answer.offset for answer in found}


def _lost(
    ends: Mapping[InputPartition, OffsetRange], cursors: Mapping[InputPartition, int], ids: TopicIds
) -> Losses:
    made_anew = ids.made_anew
    deleted, restarted = {}, {}
    for place, span in ends.items():
        expected = cursors.get(place)
        if expected is None:
            continue
        if place.topic in made_anew or expected > span.end:
            restarted[place] = Restart(expected, span, made_anew.get(place.topic))
        elif expected < span.start:
            deleted[place] = OffsetRange(expected, span.start)
    return Losses(deleted, restarted)


def _refusal(lost: Losses) -> RecordsLostError:
    sentences, hints = [], []
    if lost.deleted:
        ranges = ", ".join(f"{place} {span}" for place, span in lost.deleted.items())
        sentences.append(f"Records were deleted by the broker before they were archived: {ranges}.")
        hints.append("They are gone. Lengthen the topics' retention.")
    if lost.restarted:
        ends = ", ".join(f"{place} {restart}" for place, restart in lost.restarted.items())
        sentences.append(f"Topics were deleted, made anew or cut short: {ends}.")
        hints.append(
            "If it was an accident, restore them; a topic that is missing, make anew with "
            "`onex topics create`. What they have is read from the beginning."
        )
    hints.append("Then accept the loss with `onex pages skip-lost`.")
    return RecordsLostError(" ".join(sentences), hint=" ".join(hints))


def places_of(consumer: KafkaConsumer, topics: Iterable[str]) -> list[InputPartition]:
    """The partitions of those topics that exist."""
    wanted = set(topics)
    with translated(consumer.settings, "describe its topics"):
        known = consumer.list_topics(timeout=_limit(consumer)).topics
    return [
        InputPartition(topic, partition)
        for topic in sorted(wanted & known.keys())
        for partition in sorted(known[topic].partitions)
    ]


def ends_of(consumer: KafkaConsumer, place: InputPartition) -> OffsetRange:
    """The oldest offset that the broker still has, and the one that comes next."""
    with translated(consumer.settings, "say where its topics begin and end"):
        ends = consumer.get_watermark_offsets(TopicPartition(*place), timeout=_limit(consumer))
    return OffsetRange(*ends)


def _before(
    consumer: KafkaConsumer, available: Mapping[InputPartition, OffsetRange], instant: datetime
) -> dict[InputPartition, OffsetRange]:
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
        place = InputPartition(answer.topic, answer.partition)
        start, end = available[place]
        if answer.offset not in (-1, OFFSET_END):
            end = min(end, answer.offset)
        ranges[place] = OffsetRange(start, max(start, end))
    return ranges


def _count(ranges: Mapping[InputPartition, OffsetRange]) -> int:
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


def whole_tick(moment: datetime) -> datetime:
    """The broker's clock ticks in milliseconds; a cut, and so the log, ends where one begins."""
    return _moment(_ticks(moment))


def _ticks(moment: datetime) -> int:
    return (moment - _ORIGIN) // _MILLISECOND


def _moment(ticks: int) -> datetime:
    return _ORIGIN + ticks * _MILLISECOND

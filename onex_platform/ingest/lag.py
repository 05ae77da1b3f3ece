"""How far the archive is behind the topics: in events, in seconds, and against the retention.

The age of the oldest record that is not archived yet is what counts: a topic that nobody writes to
is never behind, however long ago the last cut was.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaConsumer, open_admin, open_consumer, translated
from onex_platform.engines.kafka.topic_admin import TIMESTAMP_TYPE, TopicLayout, describe
from onex_platform.ingest.cuts.consistent_cut import InputPartition, ends_of, places_of
from onex_platform.topics.contract import LagThresholds, TopicContract

_PATIENCE_SECONDS = 10
_POLL_SECONDS = 0.5
# One record of each partition is wanted; whatever else comes along is thrown away.
_ONE_RECORD = {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 64 * 1024,
}


class EnumLagVerdict(StrEnum):
    """Where the lag stands between the thresholds of the topic's category."""

    OK = "ok"
    RISING = "rising"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def is_alarm(self) -> bool:
        return self in (EnumLagVerdict.WARNING, EnumLagVerdict.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLag:
    """What of an input topic is not in the log yet."""

    events: int
    lost: int  # deleted by the broker before they were archived
    restarted: int  # partitions whose offsets began anew: the topic was made anew, or cut short
    seconds: float  # the age of the oldest one that is left
    retention: timedelta | None
    timestamps: str  # the topic's timestamp type, as it is on the cluster
    verdict: EnumLagVerdict
    endangered: bool  # the broker may soon delete what is not archived

    @property
    def retention_left(self) -> timedelta | None:
        """How long the oldest one stays at least; None: for ever, or there is none."""
        if self.retention is None or not self.events:
            return None
        return max(self.retention - timedelta(seconds=self.seconds), timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic on the cluster; `lag` only of topics that the archive reads."""

    topic: str
    partitions: int
    records: int
    end_offset: int  # summed over the partitions
    lag: ArchiveLag | None


class _Partition(NamedTuple):
    """A partition as the broker has it, and the offset that the archive reads next."""

    oldest: int
    end: int
    next_offset: int
    made_anew: bool  # it belongs to another topic of the same name than the one that was read

    @property
    def records(self) -> int:
        return self.end - self.oldest

    @property
    def is_restarted(self) -> bool:
        return self.made_anew or self.next_offset > self.end

    @property
    def first_waiting(self) -> int:
        return self.oldest if self.is_restarted else max(self.next_offset, self.oldest)

    @property
    def waiting(self) -> int:
        return self.end - self.first_waiting

    @property
    def lost(self) -> int:
        return 0 if self.is_restarted else max(self.oldest - self.next_offset, 0)


def topic_states(
    settings: Settings,
    contracts: Iterable[TopicContract],
    cursors: Mapping[InputPartition, int],
    now: datetime,
    made_anew: Collection[str] = (),
) -> list[TopicState]:
    """The state of every topic that exists; `cursors` says what comes next for the archive."""
    by_name = {contract.topic: contract for contract in contracts}
    inputs = {name for name, contract in by_name.items() if contract.registration_input}
    with open_consumer(settings, None, **_ONE_RECORD) as consumer:
        found = _partitions(consumer, by_name, cursors, made_anew)
        oldest = _times(
            consumer,
            {
                place: partition.first_waiting
                for place, partition in found.items()
                if partition.waiting and place.topic in inputs
            },
        )
    with open_admin(settings) as admin:
        layouts = describe(admin, inputs & {place.topic for place in found})
    states = []
    for topic, places in groupby(sorted(found), key=lambda place: place.topic):
        partitions = {place: found[place] for place in places}
        lag = None
        if topic in inputs:
            ages = [now - oldest[place] for place in partitions if place in oldest]
            age, retention = max(ages, default=timedelta()), _retention(layouts[topic])
            lag = ArchiveLag(
                events=sum(partition.waiting for partition in partitions.values()),
                lost=sum(partition.lost for partition in partitions.values()),
                restarted=sum(partition.is_restarted for partition in partitions.values())
                + sum(
                    offset > 0
                    for place, offset in cursors.items()
                    if place.topic == topic and place not in found
                ),
                seconds=max(age.total_seconds(), 0.0),
                retention=retention,
                timestamps=layouts[topic].config[TIMESTAMP_TYPE],
                verdict=judge(age, by_name[topic].lag),
                endangered=retention is not None
                and age > retention * settings.pages.retention_alert_share,
            )
        states.append(
            TopicState(
                topic=topic,
                partitions=len(partitions),
                records=sum(partition.records for partition in partitions.values()),
                end_offset=sum(partition.end for partition in partitions.values()),
                lag=lag,
            )
        )
    return states


def unarchived_events(
    settings: Settings,
    topics: Iterable[str],
    cursors: Mapping[InputPartition, int],
    made_anew: Collection[str] = (),
) -> int:
    """How many records wait for a cut; asks for offsets only."""
    with open_consumer(settings) as consumer:
        found = _partitions(consumer, topics, cursors, made_anew)
    return sum(partition.waiting for partition in found.values())


def judge(age: timedelta, thresholds: LagThresholds) -> EnumLagVerdict:
    """The verdict on an age: a threshold is passed only above it."""
    seconds = age.total_seconds()
    if seconds > thresholds.critical:
        return EnumLagVerdict.CRITICAL
    if seconds > thresholds.warning:
        return EnumLagVerdict.WARNING
    return EnumLagVerdict.RISING if seconds > thresholds.acceptable else EnumLagVerdict.OK


def _partitions(
    consumer: KafkaConsumer,
    topics: Iterable[str],
    cursors: Mapping[InputPartition, int],
    made_anew: Collection[str],
) -> dict[InputPartition, _Partition]:
    found = {}
    for place in places_of(consumer, topics):
        oldest, end = ends_of(consumer, place)
        is_new = place in cursors and place.topic in made_anew
        found[place] = _Partition(oldest, end, cursors.get(place, oldest), is_new)
    return found


def _times(
    consumer: KafkaConsumer, starts: Mapping[InputPartition, int]
) -> dict[InputPartition, datetime]:
    """When the first record from each offset on was appended."""
    times: dict[InputPartition, datetime] = {}
    waiting = set(starts)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with translated(consumer.settings, "hand over its oldest records"):
        consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        while waiting:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise TimeoutError
                continue
            place = InputPartition(cast("str", message.topic()), cast("int", message.partition()))
            error = message.error()
            if error is None:
                stamp = message.timestamp()[1] / 1000
                times.setdefault(place, datetime.fromtimestamp(stamp, UTC))
            elif error.code() != KafkaError._PARTITION_EOF:  # only markers of transactions are left
                raise KafkaException(error)
            if place in waiting:
                waiting.remove(place)
                consumer.pause([TopicPartition(*place)])
    return times


def _retention(layout: TopicLayout) -> timedelta | None:
    """How long the cluster really keeps a topic's records, whatever the contract says."""
    kept = int(layout.config["retention.ms"])
    return None if kept < 0 else timedelta(milliseconds=kept)

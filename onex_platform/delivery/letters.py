"""What operators ask of a group's waiting and dead keys, and the letters themselves.

Asking reads `rty` from the group's committed offsets, as its next owner would. What operators want
done they write to `rty`; the owner of the partition does it, now or when there is one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from confluent_kafka import KafkaException, Message, TopicPartition

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.entries import Entry, EnumEntry, Key, Record, decode, encode, shown
from onex_platform.delivery.lane import Lane
from onex_platform.delivery.work import Letters
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_consumer,
    open_producer,
    produce_all,
    read_assigned,
    translated,
)


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """A key that waits or is dead, as `rty` has it."""

    partition: int
    key: Key
    waiting: int
    failures: int  # of the first record that waits
    reason: str
    due_ms: int | None
    dead: Entry | None
    asked: EnumEntry | None  # what an operator has asked for and the owner has not done yet

    @property
    def name(self) -> str:
        return shown(self.key)


def parked_keys(settings: Settings, config: DeliveryConfig, now_ms: int) -> list[ParkedKey]:
    """Every key of the group that waits or is dead; asks, and changes nothing."""
    found: list[ParkedKey] = []
    with (
        open_consumer(settings, config.group) as consumer,
        translated(settings, f"say where {config.group} stands in {config.retry}"),
    ):
        limit = settings.kafka.request_timeout_seconds
        topic = consumer.list_topics(config.retry, timeout=limit).topics[config.retry]
        if topic.error is not None:
            raise KafkaException(topic.error)
        places = [TopicPartition(config.retry, number) for number in topic.partitions]
        committed = consumer.committed(places, timeout=limit)
    for place in sorted(committed, key=lambda place: place.partition):
        lane = Lane(config.limits, uuid4().hex)
        for message in read_partition(settings, config.retry, place.partition, place.offset):
            entry = entry_of(message, config.group)
            lane.read(entry, message.offset() or 0, message.timestamp()[1], now_ms)
        found += _parked(lane, place.partition)
    return found


def _parked(lane: Lane, partition: int) -> Iterator[ParkedKey]:
    for key, state in lane.keys.items():
        first = state.queue[0].entry.attempts if state.queue else None
        yield ParkedKey(
            partition,
            key,
            waiting=len(state.queue),
            failures=0 if first is None else first.failures,
            reason="" if first is None else first.reason,
            due_ms=None if first is None else first.due,
            dead=None if state.dead is None else state.dead.entry,
            asked=None if state.request is None else state.request.kind,
        )


def read_letters(
    settings: Settings, config: DeliveryConfig, partition: int, dead: Entry
) -> Letters:
    """What `dlt` has of a dead key."""
    stored = read_partition(settings, config.dead_letters, partition, dead.letter)
    return letters_of(
        dead, ((message.offset() or 0, entry_of(message, config.group)) for message in stored)
    )


def letters_of(dead: Entry, stored: Iterable[tuple[int, Entry | None]]) -> Letters:
    """A dead key's letters among the records of `dlt`, by their places, from its first letter on.

    Each comes once, and none of an earlier death. `dlt` deletes from its beginning: while it has
    the first letter at its place, it has all of them, unless the broker lost its end.
    """
    found: dict[int, Record] = {}
    has_first = False
    for place, entry in stored:
        if entry is None or entry.record is None or entry.key != dead.key:
            continue
        if dead.since <= entry.offset <= dead.offset:
            found[entry.offset] = entry.record
            has_first |= (place, entry.offset) == (dead.letter, dead.since)
    return Letters(tuple(found[at] for at in sorted(found)), has_first and dead.offset in found)


def request(
    settings: Settings,
    config: DeliveryConfig,
    kind: EnumEntry,
    keys: list[ParkedKey],
) -> int:
    """Ask the owners to replay or release dead keys; how many were asked for.

    Asking twice does no harm: a key that is not dead, or has died again since, is left alone.
    """
    records = [
        KafkaRecord(
            config.retry,
            None,
            parked.key if isinstance(parked.key, bytes) else None,
            encode(request_of(kind, parked.dead), config.group),
            partition=parked.partition,
        )
        for parked in keys
        if parked.dead is not None
    ]
    with open_producer(settings) as producer, effect("delivery.request"):
        return produce_all(producer, records)


def request_of(kind: EnumEntry, dead: Entry) -> Entry:
    """A request about one death of a key: when the key has died again, it means nothing."""
    return replace(dead, kind=kind, epoch=-1, number=-1, leads=False)


def dead_key(keys: list[ParkedKey], name: str) -> ParkedKey:
    """The dead key of this name."""
    for parked in keys:
        if parked.name == name and parked.dead is not None:
            return parked
    raise ConfigurationError(
        f"Key {name!r} is not dead.", hint="`onex delivery list` shows the keys that are."
    )


def entry_of(message: Message, group: str, mine: int | None = None) -> Entry | None:
    """The group's entry in a record of `rty` or `dlt`; None also for one that can't be read."""
    try:
        return decode(message.key(), message.value(), message.headers(), group, mine)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        return None


def read_partition(
    settings: Settings, topic: str, partition: int, begin: int
) -> Generator[Message]:
    """A partition's records from an offset, or from the oldest behind it, to the present end.

    An offset beyond the end is one of a topic that was made anew since: all of it is read.
    """
    overrides = {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    with open_consumer(settings, None, **overrides) as consumer:
        place = TopicPartition(topic, partition)
        with translated(settings, f"say where {topic} ends"):
            limit = settings.kafka.request_timeout_seconds
            first, end = consumer.get_watermark_offsets(place, timeout=limit)
            begin = max(first, begin) if begin <= end else first
            consumer.assign([TopicPartition(topic, partition, begin)])
        if begin < end:
            yield from read_assigned(consumer, {(topic, partition): end})

"""One topic, read from its start and then followed, without a group: who reads knows where it is.

Only committed records are handed out. A topic ends at its last stable offset: what an open
transaction wrote comes when it commits, and nobody waits for it. Markers of transactions take
offsets, too: a partition has been read when the broker says so, not when a last record was seen,
and never because nothing came for a while.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec, TopicDescription

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaAdmin,
    KafkaConsumer,
    open_consumer,
    translated,
)
from onex_platform.engines.kafka.topic_admin import describe

_RECORDS_PER_BATCH = 1000
# How soon the broker tells that a partition has no more; records come at once in any case.
_TELL_END_MS = 50
_PAUSE_SECONDS = 0.05
_LEADER_IS_AWAY = frozenset(
    {
        KafkaError._NOENT,  # librdkafka's "no leader is known"
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
_OFFSET_IS_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class TopicChangedError(InfraError):
    """The topic is no longer the one that was read: recreated, cut short, or divided anew."""


class Survey(NamedTuple):
    """A topic at one moment: which one it is, and where its partitions end."""

    asked_at: float  # wall clock: a machine that slept has missed that time, too
    reached: Mapping[int, int]  # where the reader was then
    topic_id: str
    ends: Mapping[int, int]


class PendingSurvey:
    """A survey under way; nobody need wait for it."""

    def __init__(self, admin: KafkaAdmin, topic: str, reached: Mapping[int, int]) -> None:
        self._admin = admin
        self._topic = topic
        self._asked_at = time.time()
        self._reached = reached
        self._offsets: dict[TopicPartition, Future[Any]] | None = None
        with self._translated():
            answers = admin.describe_topics(TopicCollection([topic]))
        self._description: Future[TopicDescription] = answers[topic]

    def result(self, patience: float = 0) -> Survey | None:
        """The answer, None while there is none; raises what the broker said instead."""
        if self._offsets is None:
            if wait([self._description], patience).not_done:
                return None
            with self._translated():
                # Asked second: librdkafka looks for leaders among the topics it has heard of.
                self._offsets = self._ask_for_ends(self._description.result())
        if wait(self._offsets.values(), patience).not_done:
            return None
        with self._translated():
            ends = {place.partition: end.result().offset for place, end in self._offsets.items()}
            if min(ends.values()) < 0:  # librdkafka's way to say that a leader did not answer
                raise TimeoutError
        topic_id = str(self._description.result().topic_id)
        return Survey(self._asked_at, self._reached, topic_id, ends)

    def _ask_for_ends(self, description: TopicDescription) -> dict[TopicPartition, Future[Any]]:
        newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = [TopicPartition(self._topic, part.id) for part in description.partitions]
        return self._admin.list_offsets(
            dict.fromkeys(places, newest), isolation_level=IsolationLevel.READ_COMMITTED
        )

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._admin.settings, f"say where {self._topic} ends")


class TopicReader:
    """Reads every partition of one topic from its start; made by `open_reader`."""

    def __init__(self, consumer: KafkaConsumer, admin: KafkaAdmin, topic: str) -> None:
        self._consumer = consumer
        self._admin = admin
        self._topic = topic
        self._settings = consumer.settings
        self._error: KafkaError | None = None
        self.positions: dict[int, int] = {}
        self.start = self.survey()
        self.positions = dict.fromkeys(self.start.ends, 0)
        with translated(self._settings, f"let us read {topic}"):
            consumer.assign(
                [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in self.positions]
            )

    def batch(self, patience: float) -> list[Message]:
        """The next records, and none if there are none for `patience` seconds."""
        error, self._error = self._error, None
        if error is not None:
            self._raise(error)
        # `consume` alone would sit out its time-out until so many have come.
        first = self._consumer.poll(patience)
        if first is None:
            return []
        messages: list[Any] = [first, *self._consumer.consume(_RECORDS_PER_BATCH, 0)]
        records, positions = [], self.positions
        for message in messages:
            error = message.error()
            if error is None:
                positions[message.partition()] = message.offset() + 1
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[message.partition()] = message.offset()
            else:
                self._error = error  # raised when what came with it has been handed out
        return records

    def read_to(self, ends: Mapping[int, int]) -> Iterator[list[Message]]:
        """Batches until every partition has been read to its end; silence is a time-out."""
        heard = time.monotonic()
        while self.behind(ends):
            before = sum(self.positions.values())
            if records := self.batch(_PAUSE_SECONDS):
                yield records
            if sum(self.positions.values()) > before:
                heard = time.monotonic()
            elif time.monotonic() > heard + self._settings.kafka.request_timeout_seconds:
                self._time_out()

    def behind(self, ends: Mapping[int, int]) -> int:
        """How many offsets lie between here and there."""
        return sum(
            max(0, end - self.positions.get(partition, 0)) for partition, end in ends.items()
        )

    def config(self) -> Mapping[str, str]:
        """How the topic is set up, in Kafka's names."""
        return describe(self._admin, [self._topic])[self._topic].config

    def ask(self) -> PendingSurvey:
        return PendingSurvey(self._admin, self._topic, self.positions.copy())

    def survey(self) -> Survey:
        """Where the topic ends now; a leader that is away for a moment is waited for."""
        limit = self._settings.kafka.request_timeout_seconds
        deadline = time.monotonic() + limit
        while True:
            try:
                # Longer than librdkafka's own limit, whose error says more than ours.
                found = self.ask().result(patience=2 * limit)
            except InfraError as error:
                if not _leader_is_away(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            if found is None:
                self._time_out()
            return found

    def require_same(self, now: Survey) -> None:
        """Refuse to go on if the topic is no longer the one that was read."""
        if now.topic_id != self.start.topic_id or now.ends.keys() != self.start.ends.keys():
            self._changed("was created anew or has other partitions")
        if any(end < now.reached[partition] for partition, end in now.ends.items()):
            self._changed("ends before the place that was read")

    def _raise(self, error: KafkaError) -> NoReturn:
        if error.code() in _OFFSET_IS_GONE:
            self._changed("no longer has the offset that comes next")
        with self._translated():
            raise KafkaException(error)

    def _time_out(self) -> NoReturn:
        with self._translated():
            raise TimeoutError

    def _changed(self, what: str) -> NoReturn:
        raise TopicChangedError(f"Topic {self._topic} {what}.", hint="Read it from its start.")

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._settings, f"hand over the records of {self._topic}")


@contextmanager
def open_reader(settings: Settings, topic: str) -> Iterator[TopicReader]:
    """A reader that stands before the topic's first record."""
    config = {"enable.partition.eof": True, "fetch.wait.max.ms": _TELL_END_MS}
    with open_consumer(settings, None, **config) as consumer:
        # The broker has answered one client; asking with the other costs 50 ms.
        admin = KafkaAdmin(settings, settings.kafka.client_config())
        try:
            yield TopicReader(consumer, admin, topic)
        finally:
            admin.poll(0)  # hands over what librdkafka logged


def _leader_is_away(error: InfraError) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in _LEADER_IS_AWAY

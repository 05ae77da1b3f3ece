"""Clients of Kafka: opened and closed here, with one set of limits, logs and errors.

Each client knows the settings it was opened with. Whatever it does should happen inside
`translated`, which turns librdkafka's errors into the platform's, names the address, and counts
"not there" and "too slow" in the breaker that all clients of that address share.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from onex_platform.base.errors import InfraTimeoutError
from onex_platform.base.resilience import shared_breaker
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.engines.kafka.broker_clock import BrokerClock, broker_clock
from onex_platform.engines.kafka.broker_ports import await_port
from onex_platform.engines.kafka.errors import naming_the_right, translate

_LIBRDKAFKA = logging.getLogger("librdkafka")
# A broker that has just begun gives no producer its id at once; the next attempt gets one, or the
# delivery fails and says so. Who lost a transactional name hears it as an error, which is expected.
_ALSO_RAISED = re.compile("^GETPID|newer instance|with an old epoch|guarantee is experimental")
_LIBRDKAFKA.addFilter(lambda entry: _ALSO_RAISED.search(entry.getMessage()) is None)
_MOST = 1000  # records at once
# Long enough to be cheap, short enough for Ctrl-C: librdkafka hears no signal while it waits.
_WAIT_SECONDS = 0.5
_ANSWER_SECONDS = 2.0  # between two looks for a refusal

# Of producers that send much at once.
BULK = {
    "linger.ms": 20,
    "batch.size": 512 * 1024,
    "compression.type": "lz4",
    # Bounds the memory of a producer whose broker is slower than its caller.
    "queue.buffering.max.kbytes": 64 * 1024,
}

# (topic, partition) -> the offset of the next record there
Positions = dict[tuple[str, int], int]


class KafkaRecord(NamedTuple):
    """What `produce_all` sends; `timestamp_ms` matters only to topics with CreateTime.

    Without a partition, the key chooses one.
    """

    topic: str
    value: bytes | str | None
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | str | None]] = ()
    timestamp_ms: int = 0
    partition: int = -1


class _KnowsItsSettings:
    """What our clients add to librdkafka's: where they belong, and where their logs go."""

    def __init__(self, settings: Settings, config: dict[str, Any]) -> None:
        super().__init__(config, logger=_LIBRDKAFKA)  # type: ignore[call-arg]
        self.settings = settings


class KafkaAdmin(_KnowsItsSettings, AdminClient):
    pass


class KafkaProducer(_KnowsItsSettings, Producer):
    pass


class KafkaConsumer(_KnowsItsSettings, Consumer):
    pass


_Client = TypeVar("_Client", KafkaAdmin, KafkaProducer, KafkaConsumer)


class Deliveries:
    """The broker's verdicts on produced records."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.first_error: KafkaError | None = None
        self._began = time.time()
        self._first: tuple[float, float] | None = None  # when it was appended, and when we heard

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if not self.acknowledged:
                kind, stamp = message.timestamp()
                if kind == TIMESTAMP_LOG_APPEND_TIME:
                    self._first = stamp / 1000, time.time()
            self.acknowledged += 1
        elif self.first_error is None:
            self.first_error = naming_the_right(error, "write", message.topic())

    def tell_time(self, clock: BrokerClock) -> None:
        """Let the clock know of the first record, if the broker has given it its time."""
        if self._first is not None:
            clock.note(self._began, *self._first)

    def require_no_failure(self) -> None:
        if self.first_error is not None:
            raise KafkaException(self.first_error)


@contextmanager
def open_admin(settings: Settings, **overrides: Any) -> Iterator[KafkaAdmin]:
    """A client that creates and describes; `overrides` are librdkafka's properties."""
    admin = open_client(KafkaAdmin, settings, overrides)
    try:
        yield admin
    finally:
        admin.poll(0)  # hands over what librdkafka logged


@contextmanager
def open_producer(settings: Settings, **overrides: Any) -> Iterator[KafkaProducer]:
    """An idempotent producer; leaving it flushes, and raises if a record was not acknowledged."""
    deliveries = Deliveries()
    config = {
        "enable.idempotence": True,
        "acks": "all",
        **BULK,
        "delivery.timeout.ms": int(settings.kafka.delivery_timeout_seconds * 1000),
        "on_delivery": deliveries.note,
        **overrides,
    }
    producer = open_client(KafkaProducer, settings, config)
    try:
        yield producer
    except BaseException:
        # The caller's error is the one to raise; what it had sent still gets a short chance.
        if left := _flush(producer, settings.kafka.connect_timeout_seconds):
            get_logger(__name__).warning("kafka.records_abandoned", records=left)
        raise
    with translated(settings, "acknowledge every record"):
        flush_all(producer)
        deliveries.require_no_failure()


@contextmanager
def open_consumer(
    settings: Settings, group_id: str | None = None, **overrides: Any
) -> Iterator[KafkaConsumer]:
    """A consumer that commits nothing by itself; without a group, offsets are the caller's own.

    A group begins with the oldest record. Without one, an offset that the broker no longer has is
    an error, never a silent jump.
    """
    config = {
        "group.id": group_id or f"{settings.kafka.client_id}-without-group",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest" if group_id else "error",
        "isolation.level": "read_committed",
        **overrides,
    }
    consumer = open_client(KafkaConsumer, settings, config)
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def translated(settings: Settings, action: str) -> Iterator[None]:
    """Run the block if the breaker lets it; Kafka's failures leave as ours, and count.

    `action` completes the sentence "Kafka could not …". Blocks are short: while the breaker is
    half open, everybody waits for the one that it let through.
    """
    address = settings.kafka.bootstrap_servers
    with shared_breaker(f"Kafka at {address}", settings.breaker).guard():
        try:
            yield
        except KafkaException as error:
            user = settings.kafka.sasl_username
            raise translate(error.args[0], f"Kafka at {address}", action, user) from error
        except TimeoutError as error:
            raise InfraTimeoutError(f"Kafka at {address} did not {action} in time.") from error


def produce_all(producer: KafkaProducer, records: Iterable[KafkaRecord]) -> int:
    """Send everything and wait for the acknowledgements; gives their number, raises on a failure.

    Memory stays flat however long `records` is: a full queue makes the caller wait. After a
    failure, some of the records may have been delivered and some not.
    """
    deliveries = Deliveries()
    pending = iter(records)
    while chunk := list(islice(pending, _MOST)):
        with translated(producer.settings, "take the records"):
            _enqueue(producer, chunk, deliveries)
    with translated(producer.settings, "acknowledge every record"):
        flush_all(producer)
        deliveries.require_no_failure()
    deliveries.tell_time(broker_clock(producer.settings.kafka.bootstrap_servers))
    return deliveries.acknowledged


def written_positions(settings: Settings, topics: Iterable[str]) -> Positions:
    """Where each partition ends now, transactions that are still open included.

    A commit is known to its sender a moment before its records are behind an end of the other kind.
    """
    return end_positions(settings, topics, **{"isolation.level": "read_uncommitted"})


def end_positions(settings: Settings, topics: Iterable[str], **overrides: Any) -> Positions:
    """Where each partition of the topics ends now: before the first transaction that is open."""
    with open_consumer(settings, None, **overrides) as consumer:
        return {place: end for place, (_, end) in _extents(consumer, topics).items()}


def read_to_end(
    settings: Settings,
    topics: Collection[str],
    start: Positions | None = None,
    ends: Positions | None = None,
) -> Iterator[Message]:
    """Every record from `start` (else the oldest) to `ends` (else those of now).

    Order holds within a partition. An empty poll is not taken for the end.
    """
    with open_consumer(settings, None, **{"enable.partition.eof": True}) as consumer:
        yield from read_assigned(consumer, _assign(consumer, topics, start or {}, ends or {}))


def read_assigned(consumer: KafkaConsumer, ends: Positions) -> Iterator[Message]:
    """Every record before the ends of the consumer's partitions; it has `enable.partition.eof`.

    A broker that hands over nothing for the time of a request raises.
    """
    settings, ends = consumer.settings, dict(ends)
    heard = time.monotonic()
    while ends:
        with translated(settings, "hand over its records"):
            # `consume` alone would sit out its time-out until so many have come.
            first = consumer.poll(_WAIT_SECONDS)
            # A message is as true as its value is long: a tombstone would pass for none.
            messages = [] if first is None else [first, *consumer.consume(_MOST, 0)]
            _require_records(messages)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() > heard + settings.kafka.request_timeout_seconds:
                raise TimeoutError
        for message in messages:
            place = cast("tuple[str, int]", (message.topic(), message.partition()))
            offset = cast("int", message.offset())
            if place not in ends:
                continue  # written after the reading began
            is_record = message.error() is None
            if is_record and offset < ends[place]:
                yield message
            # "No more" names the next record's place, and an open transaction may begin there.
            if offset + is_record >= ends[place]:
                del ends[place]


def _assign(
    consumer: KafkaConsumer, topics: Collection[str], start: Positions, stop: Positions
) -> Positions:
    """Set the consumer to where the reading begins; the ends of what there is to read."""
    begins = {}
    ends = {}
    for place, (first, end) in _extents(consumer, topics).items():
        begin, end = start.get(place, first), stop.get(place, end)
        if begin < end:
            begins[place], ends[place] = begin, end
    with translated(consumer.settings, "let us read its topics"):
        consumer.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
    return ends


def _extents(
    consumer: KafkaConsumer, topics: Iterable[str]
) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset and the end of each partition."""
    limit = consumer.settings.kafka.request_timeout_seconds
    extents = {}
    with translated(consumer.settings, "say where its topics end"):
        for topic in topics:
            found = consumer.list_topics(topic, timeout=limit).topics[topic]
            if found.error is not None:
                raise KafkaException(naming_the_right(found.error, "describe", topic))
            for partition in found.partitions:
                place = TopicPartition(topic, partition)
                first, end = consumer.get_watermark_offsets(place, timeout=limit)
                extents[topic, partition] = first, end
    return extents


def _require_records(messages: Iterable[Message]) -> None:
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(naming_the_right(error, "read", message.topic()))


def _enqueue(
    producer: KafkaProducer, records: Iterable[KafkaRecord], deliveries: Deliveries
) -> None:
    for record in records:
        enqueue(producer, record, deliveries)
    producer.poll(0)
    deliveries.require_no_failure()


def enqueue(
    producer: KafkaProducer,
    record: KafkaRecord,
    deliveries: Deliveries,
    note: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    """Queue a record, whose verdict goes to the deliveries, or to `note`; a full queue waits."""
    topic, value, key, headers, timestamp_ms, partition = record
    while True:
        try:
            producer.produce(
                topic,
                value,
                key,
                partition,
                headers=list(headers) if headers else None,
                timestamp=timestamp_ms,
                on_delivery=note or deliveries.note,
            )
            return
        except BufferError:
            producer.poll(_WAIT_SECONDS)
            deliveries.require_no_failure()


def flush_all(producer: KafkaProducer) -> None:
    """Wait for every verdict; each record has one when its delivery time-out is over."""
    limit = producer.settings.kafka.delivery_timeout_seconds
    if left := _flush(producer, limit + producer.settings.kafka.request_timeout_seconds):
        raise InfraTimeoutError(
            f"Kafka at {producer.settings.kafka.bootstrap_servers} said nothing about {left} "
            f"records for {limit:g} s.",
            hint="They may have been written; the limit is ONEX_KAFKA_DELIVERY_TIMEOUT_SECONDS.",
        )


def _flush(producer: KafkaProducer, seconds: float) -> int:
    """Give the queue up to `seconds`; the number of records that are still in it."""
    deadline = time.monotonic() + seconds
    while (left := producer.flush(_WAIT_SECONDS)) and time.monotonic() < deadline:
        pass
    return left


def open_client(kind: type[_Client], settings: Settings, config: dict[str, Any]) -> _Client:
    """A client whose broker has answered once: an open port alone is no proof of a broker."""
    refusals: list[KafkaError] = []
    config = {**settings.kafka.client_config(), "error_cb": refusals.append, **config}
    with translated(settings, "open a connection"):
        await_port(settings)
        client = kind(settings, config)
        _await_answer(client, settings.kafka.request_timeout_seconds, refusals)
    return client


def _await_answer(client: _Client, seconds: float, refusals: Sequence[KafkaError]) -> None:
    """Wait for the broker's first answer; a wrong password or certificate shows in the error
    callback only."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            client.list_topics(timeout=min(left, _ANSWER_SECONDS))
            return
        except KafkaException as error:
            client.poll(0)
            for refusal in refusals:
                if refusal.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                    raise KafkaException(refusal) from error
            is_silence = error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
            if not is_silence or left <= _ANSWER_SECONDS:
                raise

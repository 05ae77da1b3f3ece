"""Sending records and hearing what became of each: when it was appended, or why it was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from onex_platform.engines.kafka.broker_clock import broker_clock
from onex_platform.engines.kafka.clients import (
    Deliveries,
    KafkaProducer,
    KafkaRecord,
    enqueue,
    flush_all,
    translated,
)
from onex_platform.engines.kafka.errors import naming_the_right

_WAIT_SECONDS = 0.1
_MILLISECONDS = 1000
# What the broker says of a record, or of others that travelled with it; it will say so again.
_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
    }
)


def send_each(producer: KafkaProducer, records: Sequence[KafkaRecord]) -> dict[int, str]:
    """Send records and wait for the verdicts; why some were refused, by their places.

    A record that is refused may be so for its neighbours: the broker judges what travels together.
    Any other failure raises, and then some may have been delivered and some not.
    """
    deliveries, refused = Deliveries(), dict[int, str]()

    def note_of(place: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() in _REFUSALS:
                refused[place] = error.str()
            else:
                deliveries.note(error, message)

        return note

    with translated(producer.settings, "take the records"):
        for place, record in enumerate(records):
            try:
                enqueue(producer, record, deliveries, note_of(place))
            except KafkaException as error:
                if error.args[0].code() not in _REFUSALS:
                    raise
                refused[place] = error.args[0].str()
            except (TypeError, ValueError) as error:  # the client can't write it
                refused[place] = f"{type(error).__name__}: {error}"
    with translated(producer.settings, "acknowledge every record"):
        flush_all(producer)
        deliveries.require_no_failure()
    deliveries.tell_time(broker_clock(producer.settings.kafka.bootstrap_servers))
    return refused


class Appended(NamedTuple):
    """Where a record stands, and its time in the topic."""

    partition: int
    offset: int
    at: datetime


def send_one(producer: KafkaProducer, record: KafkaRecord) -> Appended:
    """Send a record and wait; where it stands. Raises if it was not taken."""
    deliveries, places = Deliveries(), list[Appended]()

    def note(error: KafkaError | None, message: Message) -> None:
        deliveries.note(error, message)
        if error is None:
            at = datetime.fromtimestamp(message.timestamp()[1] / _MILLISECONDS, UTC)
            places.append(Appended(message.partition() or 0, message.offset() or 0, at))

    with translated(producer.settings, "acknowledge the record"):
        enqueue(producer, record, deliveries, note)
        flush_all(producer)
        deliveries.require_no_failure()
    return places[0]


class Sender:
    """For those who must know a record's time before they send the next; verdicts come in `wait`.

    The producer stays the caller's. Leaving its block waits for the verdicts that are still due.
    """

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._failure: KafkaError | None = None

    def send(self, record: KafkaRecord, on_appended: Callable[[int], None]) -> None:
        """Queue a record; `on_appended` gets the time in its topic, in Unix milliseconds."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                on_appended(message.timestamp()[1])
            else:
                right = naming_the_right(error, "write", message.topic())
                self._failure = self._failure or right

        while True:
            try:
                with translated(self._producer.settings, "take a record"):
                    self._producer.produce(
                        record.topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        timestamp=record.timestamp_ms,
                        on_delivery=on_delivery,
                    )
                return
            except BufferError:
                self.wait(_WAIT_SECONDS)

    def wait(self, seconds: float) -> None:
        """Hear verdicts, at most this long; raises if a record was refused."""
        with translated(self._producer.settings, "acknowledge a record"):
            self._producer.poll(min(seconds, _WAIT_SECONDS))
            if self._failure is not None:
                raise KafkaException(self._failure)

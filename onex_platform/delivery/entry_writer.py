"""Sending a lane's entries to `rty` and its letters to `dlt`; the lane hears how it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from onex_platform.base.faults import effect
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.entries import Entry, EnumEntry, encode
from onex_platform.delivery.lane import Lane
from onex_platform.delivery.work import Bury
from onex_platform.engines.kafka.clients import KafkaProducer
from onex_platform.topics.contract import LARGEST_RECORD

_FULL_QUEUE_SECONDS = 0.1
# A topic that is gone is told within seconds, and stops whom it concerns; the rest goes on.
PRODUCER = {
    "delivery.timeout.ms": 10_000,
    "topic.metadata.propagation.max.ms": 3_000,
    "linger.ms": 5,
    # A record that the source took is not refused here: whether there is room, the topic says.
    "message.max.bytes": LARGEST_RECORD + 1024 * 1024,
}

_Note = Callable[[KafkaError | None, Any], None]


class EntryWriter:
    """Writes for all lanes of a consumer; verdicts come when its producer is polled."""

    def __init__(
        self, producer: KafkaProducer, config: DeliveryConfig, clock: Callable[[], int]
    ) -> None:
        self._producer = producer
        self._config = config
        self._clock = clock

    def append(self, partition: int, lane: Lane) -> None:
        """Send what the lane has to write to `rty`."""
        entries = lane.take_outbox()
        if not entries:
            return
        with effect("delivery.append"):
            for entry in entries:
                note = _refusal_of(lane, entry.number)
                self._produce(self._config.retry, partition, entry, note)

    def bury(self, partition: int, lane: Lane, work: Bury) -> None:
        """Send a key's records to `dlt`."""
        places: list[int] = []
        refusals: list[str] = []

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                places.append(message.offset())
            else:
                refusals.append(error.str())
            if len(places) + len(refusals) < len(work.entries):
                return
            if refusals:
                lane.not_buried(work.key, refusals[0], self._clock())
            else:
                lane.buried(work.key, work.entries, min(places))

        with effect("delivery.bury"):
            for entry in work.entries:
                letter = replace(entry, kind=EnumEntry.LETTER)
                self._produce(self._config.dead_letters, partition, letter, note)

    def _produce(self, topic: str, partition: int, entry: Entry, note: _Note) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    None if entry.record is None else entry.record.value,
                    entry.key if isinstance(entry.key, bytes) else None,
                    partition,
                    headers=encode(entry, self._config.group),
                    on_delivery=note,
                )
                return
            except BufferError:
                self._producer.poll(_FULL_QUEUE_SECONDS)
            except KafkaException as error:
                note(error.args[0], None)
                return


def _refusal_of(lane: Lane, number: int) -> _Note:
    def note(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            lane.refused(number, error.str())

    return note

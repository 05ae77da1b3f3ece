"""Sending records one at a time, and hearing when the broker appended each."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message

from onex_platform.engines.kafka import KafkaProducer, KafkaRecord, translated

_WAIT_SECONDS = 0.1


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
                self._failure = self._failure or error

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

"""A producer whose records appear all together or not at all, and only while its name is its own.

Whoever opens a transactional name shuts out everybody who opened it before: what they had begun is
aborted, what they still try is refused. So a send that succeeds proves that nobody else has used
the name since it was opened here.

A record that is larger than the topic takes is left out and named, because it would take all the
others with it. The producer knows a limit from the start; a topic with a lower one refuses the
whole send, and is then asked for its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    BULK,
    KafkaProducer,
    open_admin,
    open_client,
    translated,
)
from onex_platform.engines.kafka.topic_admin import most_bytes

_RECORDS_PER_POLL = 1000
_WAIT_SECONDS = 0.5  # librdkafka hears no signal while it waits
_PAUSE_SECONDS = 0.02
_LEAST_BYTES = 1000  # librdkafka's own
_FRAMING_BYTES = 1024  # what a record's headers and its batch add to key and value, amply

_TAKEN_OVER = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)

# By the topic's limit, or because it is larger than a segment.
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

BULK_IN_TRANSACTIONS = {
    **BULK,
    "delivery.report.only.error": True,  # the commit acknowledges
    # Java's choice of partition: whoever writes a key finds it in the same one.
    "partitioner": "murmur2_random",
}

# Key, value and headers: a plain tuple, because each of many thousands a second is made anew.
Outgoing = tuple[str | bytes, str | bytes | None, list[tuple[str, str | bytes | None]]]


def record_bytes(most: int) -> int:
    """What a producer may take for a topic of so many bytes at most (`message.max.bytes`)."""
    return max(most - _FRAMING_BYTES, _LEAST_BYTES)


class TakenOverError(InfraError):
    """Somebody else opened the name, or the broker forgot it; nothing of the send is visible."""


class LowerLimitError(InfraError):
    """The topic takes only smaller records than was thought; nothing of the send is visible."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How many messages the broker acknowledged, and the keys of those that it could not take."""

    acknowledged: int
    too_large: tuple[str, ...] = ()

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.acknowledged + other.acknowledged, self.too_large + other.too_large)


class TransactionalProducer:
    """Opened by its first user, and again after a failure; every failure closes it."""

    def __init__(
        self, settings: Settings, name: str, timeout_seconds: float, max_bytes: int
    ) -> None:
        self._settings = settings
        self._name = name
        self._timeout = timeout_seconds
        self._max_bytes = max_bytes
        self._producer: KafkaProducer | None = None
        self._refused: KafkaError | None = None

    def open(self) -> None:
        """Take the name, unless it was taken here before."""
        if self._producer is not None:
            return
        kafka, limit = self._settings.kafka, int(self._timeout * 1000)
        producer = open_client(
            KafkaProducer,
            self._settings,
            {
                "transactional.id": self._name,
                # How long a killed owner can keep readers from what was written behind it.
                "transaction.timeout.ms": limit,
                "delivery.timeout.ms": limit,
                "message.max.bytes": record_bytes(self._max_bytes),
                "socket.timeout.ms": min(limit, int(kafka.request_timeout_seconds * 1000)),
                # A topic that is missing is said to be, long before the transaction is over.
                "topic.metadata.propagation.max.ms": min(limit // 2, 3000),
                **BULK_IN_TRANSACTIONS,
                "on_delivery": self._note,
            },
        )
        with translated(self._settings, f"hand over the transactional name {self._name}"):
            _resumed(producer.init_transactions, kafka.request_timeout_seconds)
        self._producer = producer

    def send(self, topic: str, messages: Iterable[Outgoing]) -> Sent:
        """Send the messages as one: all of them but those that are too large.

        They are taken one by one while others are on their way. An error of theirs ends the
        transaction and passes.
        """
        producer = self._producer
        if producer is None:
            raise RuntimeError("open() comes first")
        self._refused = None
        try:
            with translated(self._settings, "take the records"):
                try:
                    producer.begin_transaction()
                    sent = self._enqueue(producer, topic, messages)
                    _resumed(producer.commit_transaction, self._timeout)
                except KafkaException as error:
                    if _is_taken_over(error.args[0]):
                        raise TakenOverError(
                            f"Somebody else took the transactional name {self._name}.",
                            hint="Open it again to go on.",
                        ) from error
                    raise KafkaException(self._refused or error.args[0]) from error
        except InfraError:
            self.close()
            if self._refused and self._refused.code() in _TOO_LARGE:
                self._learn_limit(topic)
            raise
        except BaseException:
            self.close()
            raise
        return sent

    def close(self) -> None:
        """Give up what is under way; what was sent is safe."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        # There may be none; or it is not ours any more; or the next owner aborts it.
        with suppress(KafkaException):
            producer.abort_transaction(_WAIT_SECONDS)

    def _enqueue(self, producer: KafkaProducer, topic: str, messages: Iterable[Outgoing]) -> Sent:
        produce, count = producer.produce, 0  # looked up once: this is the hot loop
        too_large = []
        for count, (key, value, headers) in enumerate(messages, 1):
            while True:
                try:
                    produce(topic, value, key, headers=headers)
                    break
                except BufferError:
                    self._poll(producer, _WAIT_SECONDS)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                        raise
                    too_large.append(key if isinstance(key, str) else key.decode())
                    break
            if count % _RECORDS_PER_POLL == 0:
                self._poll(producer, 0)
        return Sent(count - len(too_large), tuple(too_large))

    def _learn_limit(self, topic: str) -> None:
        """Take over a limit that is lower than ours, and let the caller send again."""
        with open_admin(self._settings) as admin:
            limit = most_bytes(admin, topic)
        if limit < self._max_bytes:
            self._max_bytes = limit
            raise LowerLimitError(
                f"{topic} takes records of up to {limit} bytes only.",
                hint="Open the name again to send what fits.",
            )

    def _poll(self, producer: KafkaProducer, seconds: float) -> None:
        producer.poll(seconds)
        if self._refused is not None:
            raise KafkaException(self._refused)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused = self._refused or error


def _resumed(call: Callable[[float], None], seconds: float) -> None:
    """Run a call of librdkafka that goes on where it stopped, in short parts."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call(_WAIT_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


def _is_taken_over(error: KafkaError) -> bool:
    return error.fatal() or error.code() in (*_TAKEN_OVER, KafkaError._FATAL)

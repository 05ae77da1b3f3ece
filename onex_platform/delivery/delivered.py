"""A record as a handler gets it. Delivery is at least once: one may come again, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Message

from onex_platform.delivery.entries import Record


class Delivery:
    """One record, at its first attempt or a later one."""

    __slots__ = ("_message", "_record", "attempt", "key", "value")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        attempt: int = 1,
        *,
        message: Message | None = None,
        record: Record | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self.attempt = attempt
        self._message = message
        self._record = record

    @property
    def record(self) -> Record:
        """All of it: headers, topic, partition, offset and time, as the source has them."""
        if self._record is None:
            self._record = record_of(self._message)
        return self._record


# Returns when the record is handled. `PermanentError` and `OutageError` say what kind of failure
# it met; after any other error the record is tried again later.
Handler = Callable[[Delivery], None]


def record_of(message: Any) -> Record:
    return Record(
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
    )

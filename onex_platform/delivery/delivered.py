"""A record as a handler gets it. Delivery is at least once: one may come again, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onex_platform.delivery.entries import Record


class Delivery:
    """One record at its first attempt; made for each, so it holds no more than it must."""

    __slots__ = ("_message", "key", "value")
    attempt = 1

    def __init__(self, key: bytes | None, value: bytes | None, message: Any) -> None:
        self.key = key
        self.value = value
        self._message = message

    @property
    def record(self) -> Record:
        """All of it: headers, topic, partition, offset and time, as the source has them."""
        return record_of(self._message)


class Redelivery(Delivery):
    """A record at a later attempt, or behind one."""

    __slots__ = ("_record", "attempt")

    def __init__(self, record: Record, attempt: int) -> None:
        self.key = record.key
        self.value = record.value
        self.attempt = attempt
        self._record = record

    @property
    def record(self) -> Record:
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

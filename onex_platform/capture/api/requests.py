"""What a writer asks to be captured, and which of it is refused before anything else happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from onex_platform.base.errors import OnexError

LONGEST_ID = 256
LATEST_US = 253_402_300_799_999_999  # the last moment of the year 9999


class InvalidRequestError(OnexError):
    """A field of a request is wrong; sending it again changes nothing."""


class Publication(NamedTuple):
    """One event as it arrived; what the writer left out is empty or zero. A tuple, because one is
    made per event, and a frozen dataclass takes three times as long to make."""

    tenant: str
    writer_id: str
    payload: bytes
    attributes: Mapping[str, str]
    event_id: str = ""
    producer_id: str = ""
    producer_sequence: int = 0
    timestamp_us: int = 0

    def digest(self) -> bytes:
        """Tells a retry from another event under the same id."""
        digest = blake2b(self.payload, digest_size=16)
        for name in sorted(self.attributes):
            digest.update(f"\0{name}\0{self.attributes[name]}".encode())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one event may weigh."""

    max_event_bytes: int = 1024 * 1024
    max_attributes: int = 64
    max_attribute_bytes: int = 16 * 1024


def check_publication(asked: Publication, limits: RequestLimits) -> None:
    """Raise an error that names field, value and bound."""
    check_id("topic", asked.writer_id)
    if asked.event_id:
        check_id("event_id", asked.event_id)
    if asked.producer_id:
        check_id("producer_id", asked.producer_id)
        if asked.producer_sequence < 1:
            raise _wrong("producer_sequence", asked.producer_sequence, "1 or more")
    elif asked.producer_sequence:
        raise _wrong("producer_id", "", "a name, because producer_sequence is set")
    if not 0 <= asked.timestamp_us <= LATEST_US:
        raise _wrong("timestamp_us", asked.timestamp_us, f"microseconds from 0 to {LATEST_US}")
    if len(asked.payload) > limits.max_event_bytes:
        size = f"{len(asked.payload)} bytes"
        raise _wrong("payload", size, f"at most {limits.max_event_bytes} bytes")
    if asked.attributes:
        _check_attributes(asked.attributes, limits)


def check_id(field: str, value: str) -> None:
    """Ids name folders, keys and labels: some text of a bounded length."""
    if not value or len(value) > LONGEST_ID:
        shown = f"{value[:20]!r}… ({len(value)} characters)" if value else "empty"
        raise _wrong(field, shown, f"1 to {LONGEST_ID} characters")
    if not value.isprintable():
        raise _wrong(field, repr(value), "free of control characters")


def _check_attributes(attributes: Mapping[str, str], limits: RequestLimits) -> None:
    if len(attributes) > limits.max_attributes:
        raise _wrong("attributes", f"{len(attributes)} of them", f"at most {limits.max_attributes}")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    if size > limits.max_attribute_bytes:
        bound = f"at most {limits.max_attribute_bytes} bytes together"
        raise _wrong("attributes", f"{size} bytes", bound)


def _wrong(field: str, value: object, bound: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} is {value}; it must be {bound}.", field=field)

"""Bytes: ids, times and envelopes as nodes and the registry write them.

Heartbeats are nearly all of a long history. Their unchanging parts are written once per life, and
the numbers in them come from the bits of their event_id, so that one costs a single format.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic_core import to_json

from onex_platform.domain.events import EnumEventKind

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = [f".{number:03d}Z" for number in range(1000)]


def uuid_text(bits: int) -> str:
    """A version 4 UUID made of 128 random bits."""
    digits = bits.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def time_text(time_ms: int) -> str:
    """RFC 3339, in UTC, with milliseconds."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return _second_text(seconds) + _MILLISECONDS[milliseconds]


@lru_cache(maxsize=256)
def _second_text(seconds: int) -> str:
    return (_ORIGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def dump(document: Any) -> bytes:
    return to_json(document)


def envelope(
    *,
    event_id: str,
    event_type: str,
    source: str,
    correlation_id: str,
    timestamp_ms: int,
    payload: dict[str, Any],
) -> dict[str, Any]:
    """The document around a payload; heartbeats rely on the order of its fields."""
    return {
        "event_id": event_id,
        "event_type": event_type,
        "source": source,
        "correlation_id": correlation_id,
        "timestamp": time_text(timestamp_ms),
        "payload": payload,
    }


class BeatForm(NamedTuple):
    """The parts of a heartbeat that stay the same: from id to time, and from time to numbers."""

    head: str
    tail: str


def beat_form(document: dict[str, Any]) -> BeatForm:
    """A heartbeat without numbers, cut where its id and its time stand."""
    _, _, after_id = dump(document).decode().partition(document["event_id"])
    head, _, tail = after_id.partition(document["timestamp"])
    return BeatForm(head, tail.removesuffix("}}"))


def beat(form: BeatForm, bits: int, timestamp_ms: int, uptime_s: int) -> bytes:
    """A heartbeat in `form`, its event_id and its load drawn from 128 random bits."""
    cpu, memory = bits >> 8 & 511, bits >> 20 & 4095
    return (
        f'{{"event_id":"{uuid_text(bits)}{form.head}{time_text(timestamp_ms)}{form.tail}'
        f',"uptime_seconds":{uptime_s},"active_operations_count":{bits & 31}'
        f',"memory_usage_mb":{64 + (memory >> 1)}.{memory & 1 and 5}'
        f',"cpu_usage_percent":{cpu // 8}.{cpu & 7}}}}}'
    ).encode()


def event_type_of(kind: EnumEventKind, *, old_style: bool) -> str:
    """Legacy nodes write the event type without the platform's namespace."""
    return kind.value if old_style else kind.event_type

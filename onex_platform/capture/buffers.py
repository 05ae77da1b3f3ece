"""Buffers: what was captured and is in no page yet, with its encoded size and its age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.wal.segments import Location
from onex_platform.capture.writers import WriterKey

# What one event costs beside its bytes: the objects that hold it.
OVERHEAD_BYTES = 400


@dataclass(slots=True)
class Held:
    """One captured event. A spilled one is only in the log; `location` finds it there."""

    sequence: int
    timestamp_us: int
    size: int
    arrived_at: float
    location: Location
    event: CapturedEvent | None

    @property
    def resident_bytes(self) -> int:
        return OVERHEAD_BYTES + (self.size if self.event is not None else 0)


@dataclass(slots=True)
class Buffer:
    """One writer's events, in order."""

    key: WriterKey
    held: list[Held] = field(default_factory=list)
    size: int = 0
    resident_bytes: int = 0
    last_at: float = 0.0

    @property
    def oldest_at(self) -> float:
        return self.held[0].arrived_at


class Buffers:
    """All buffers that hold something, the one with the oldest event first."""

    def __init__(self) -> None:
        self._buffers: dict[WriterKey, Buffer] = {}
        self.events = 0
        self.size = 0

    def __len__(self) -> int:
        return len(self._buffers)

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self._buffers.values())

    def get(self, key: WriterKey) -> Buffer | None:
        return self._buffers.get(key)

    def add(self, key: WriterKey, held: Held) -> Buffer:
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = Buffer(key)
        buffer.held.append(held)
        buffer.size += held.size
        buffer.resident_bytes += held.resident_bytes
        buffer.last_at = held.arrived_at
        self.events += 1
        self.size += held.size
        return buffer

    def take(self, key: WriterKey, count: int) -> list[Held]:
        """Remove a buffer's first events."""
        buffer = self._buffers.pop(key)
        taken, rest = buffer.held[:count], buffer.held[count:]
        size = sum(held.size for held in taken)
        self.events -= len(taken)
        self.size -= size
        if rest:
            buffer.held = rest
            buffer.size -= size
            buffer.resident_bytes -= sum(held.resident_bytes for held in taken)
            self._buffers[key] = buffer
        return taken

    def older_than(self, moment: float) -> list[Buffer]:
        """Buffers whose oldest event arrived before `moment`."""
        return [buffer for buffer in self if buffer.oldest_at <= moment]

    def idle_since(self, moment: float) -> list[Buffer]:
        """Buffers that got nothing since `moment`."""
        return [buffer for buffer in self if buffer.last_at <= moment]

    def largest(self) -> list[Buffer]:
        return sorted(self, key=lambda buffer: buffer.size, reverse=True)


def spill(held: Iterable[Held]) -> int:
    """Let events go from memory; the log has them. How many bytes that frees."""
    freed = 0
    for one in held:
        if one.event is not None:
            one.event = None
            freed += one.size
    return freed

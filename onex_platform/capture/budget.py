"""One byte budget for all writers: first spill, then flush the largest, then push back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Pressure(IntEnum):
    """What the budget asks for; each step includes those before it."""

    NONE = 0
    SPILL = 1
    FLUSH = 2
    REFUSE = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """How many bytes of events may be in memory."""

    limit_bytes: int
    spill_share: float = 0.6
    flush_share: float = 0.8

    def pressure(self, resident_bytes: int, arriving_bytes: int = 0) -> Pressure:
        wanted = resident_bytes + arriving_bytes
        if wanted > self.limit_bytes:
            return Pressure.REFUSE
        if wanted > self.limit_bytes * self.flush_share:
            return Pressure.FLUSH
        if wanted > self.limit_bytes * self.spill_share:
            return Pressure.SPILL
        return Pressure.NONE

    @property
    def relaxed_bytes(self) -> int:
        """How far a spill or a flush brings memory down: the next one is not due at once."""
        return int(self.limit_bytes * self.spill_share * 0.7)

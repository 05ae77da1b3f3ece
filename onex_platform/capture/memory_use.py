"""What captured events take in memory, and what is done when that becomes too much.

Payloads are let go first, since the log has them and pages read them back; then the largest buffers
are cut; then writers are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onex_platform.base.errors import OnexError
from onex_platform.capture.budget import Budget, Pressure
from onex_platform.capture.buffers import Buffer, Buffers, Held, spill
from onex_platform.capture.flush.page_making import Page


class BudgetFullError(OnexError):
    """Memory is used up by events that wait to be stored; room comes back by itself."""


class Memory:
    """One count for all events of an instance: those that the log is about to have, those in
    buffers, and those in pages on their way."""

    def __init__(self, budget: Budget) -> None:
        self.resident_bytes = 0
        self._budget = budget

    def require_room(self, weight: int) -> None:
        """Raise if an event of that weight would be too much."""
        if self._budget.pressure(self.resident_bytes, weight) is Pressure.REFUSE:
            raise BudgetFullError(
                f"{self.resident_bytes} bytes of events wait to be stored; the budget is "
                f"{self._budget.limit_bytes} bytes.",
                hint="Send the event again later.",
            )

    def spill_under_pressure(self, held: Held) -> None:
        """Let an event go at once if others need the room: a log may hold more than memory."""
        if self._budget.pressure(self.resident_bytes) is not Pressure.NONE:
            self.resident_bytes -= spill([held])

    def ease(self, pages: Iterable[Page], buffers: Buffers, cut: Callable[[Buffer], None]) -> None:
        """Spill, then cut, as far as the pressure asks for it."""
        pressure = self._budget.pressure(self.resident_bytes)
        if pressure >= Pressure.SPILL:
            self._spill(pages, buffers)
        if pressure >= Pressure.FLUSH:
            self._cut_largest(buffers, cut)

    def _spill(self, pages: Iterable[Page], buffers: Buffers) -> None:
        for page in pages:
            if self.resident_bytes <= self._budget.relaxed_bytes:
                return
            self.resident_bytes -= spill(page.held)
        for buffer in buffers.largest():
            if self.resident_bytes <= self._budget.relaxed_bytes:
                return
            freed = spill(buffer.held)
            buffer.resident_bytes -= freed
            self.resident_bytes -= freed

    def _cut_largest(self, buffers: Buffers, cut: Callable[[Buffer], None]) -> None:
        expected = self.resident_bytes
        for buffer in buffers.largest():
            if expected <= self._budget.relaxed_bytes:
                return
            expected -= buffer.resident_bytes
            cut(buffer)

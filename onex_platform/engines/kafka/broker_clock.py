"""How far a broker's clock is from ours, as far as the records tell that we write anyway.

A record is appended after we handed it over and before we hear of it. If the broker says otherwise,
one of the clocks is wrong by at least the difference; within these limits nothing can be said.
"""

from __future__ import annotations

from collections import deque
from functools import cache

_TICK_SECONDS = 0.001  # the broker's time is cut off there
# How many records count: a clock that is set back is known of after so many.
_REMEMBERED = 16


class BrokerClock:
    """The clock of one cluster, seen from this process."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._behind: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def ahead_seconds(self) -> float | None:
        """By how much it is ahead of ours at least, or behind if negative; None: not known."""
        return self._ahead

    @property
    def behind_at_most(self) -> float | None:
        """By how much it can be behind ours, going by the record that was heard of soonest among
        the last ones; None: not known."""
        return max(0.0, min(self._behind)) if self._behind else None

    def note(self, handed_over: float, appended: float, heard: float) -> None:
        """Take in one record's times, in Unix seconds: ours, the broker's, and ours again."""
        least, most = appended - heard, appended + _TICK_SECONDS - handed_over
        self._ahead = round(max(least, min(most, 0.0)), 3)
        self._behind.append(-least)


@cache
def broker_clock(address: str | None) -> BrokerClock:
    """What this process knows of the clock at an address."""
    return BrokerClock()

"""How far a broker's clock is from ours, as far as the records tell that we write anyway.

A record is appended after we handed it over and before we hear of it. If the broker says otherwise,
one of the clocks is wrong by at least the difference; within these limits nothing can be said.
"""

from __future__ import annotations

from functools import cache

_TICK_SECONDS = 0.001  # the broker's time is cut off there


class BrokerClock:
    """The clock of one cluster, seen from this process."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    @property
    def ahead_seconds(self) -> float | None:
        """By how much it is ahead of ours at least, or behind if negative; None: not known."""
        return self._ahead

    def note(self, handed_over: float, appended: float, heard: float) -> None:
        """Take in one record's times, in Unix seconds: ours, the broker's, and ours again."""
        least, most = appended - heard, appended + _TICK_SECONDS - handed_over
        self._ahead = round(max(least, min(most, 0.0)), 3)


@cache
def broker_clock(address: str | None) -> BrokerClock:
    """What this process knows of the clock at an address."""
    return BrokerClock()

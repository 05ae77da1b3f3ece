"""The rules of the expiry guard, pure: how many of a tenant's nodes may expire, and when.

A few silent nodes are dead nodes. Many at once are more likely a broken network, a broker that lost
a partition, or ourselves: then the registry must doubt before it declares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """`share` of a fleet, or `floor` nodes if that is more, may expire within `window`.

    What is held drains by `drain_share` of the fleet per minute, for `longest_hold` at most. Shares
    are fractions: 0.15 of a fleet of 100 are 15, not 14.999….
    """

    share: Fraction
    floor: int
    window: timedelta
    drain_share: Fraction
    longest_hold: timedelta


class Hold(NamedTuple):
    """A tenant's expiries are held back: since when, and the numbers that it began with."""

    since: datetime
    fleet: int
    limit: int


def expiry_limit(fleet: int, policy: GuardPolicy) -> int:
    """How many nodes of a fleet may expire within the window."""
    return max(policy.floor, math.floor(policy.share * fleet))


def fleet_that_allows(expiries: int, policy: GuardPolicy) -> int:
    """The smallest fleet of which so many may expire; counting further would tell nothing new."""
    return 0 if expiries <= policy.floor else math.ceil(expiries / policy.share)


def budget(limit: int, recent: int) -> int:
    """How many more may expire now, after those of the window."""
    return max(limit - recent, 0)


def drain_allowance(hold: Hold, drained: int, now: datetime, policy: GuardPolicy) -> int:
    """How many more a hold lets expire now; at least one in every minute."""
    per_minute = max(1, math.floor(policy.drain_share * hold.fleet))
    elapsed = max(now - hold.since, timedelta())
    return max(elapsed * per_minute // _MINUTE - drained, 0)


def is_too_long(hold: Hold, now: datetime, policy: GuardPolicy) -> bool:
    """After the longest hold, silence is believed."""
    return now - hold.since >= policy.longest_hold


def is_silence_over(hold: Hold, held: int, recent: int) -> bool:
    """Whether what is still held would not be held if the silence began now."""
    return held <= budget(hold.limit, recent)

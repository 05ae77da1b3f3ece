"""How far behind now a cut ends, so that a record with an earlier time is not still on its way.

A leader gives a record its time as it appends it, in the order of its log; the record can be read a
moment later, as soon as the other replicas have it. So a record that comes after a partition's end
was captured has a time before the cut's only if

- the broker's clock is behind ours: by how much at most, the records tell that we write anyway; or
- it was on its way to its replicas for longer than we allow, or in a transaction.

Such a record is late: it takes its place at the end of the log, behind what the cut had of other
topics. Nothing is lost by that but the order between topics, so there is a limit to the waiting.
"""

from __future__ import annotations

from typing import NamedTuple

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.broker_clock import broker_clock

# From its time to where a consumer can read it: an append, and a fetch by each replica.
REPLICATION_SECONDS = 0.05


class Settling(NamedTuple):
    """How long a record is waited for, and why so long."""

    seconds: float
    reason: str


def settling(settings: Settings) -> Settling:
    """What this process has to wait, as far as it knows the broker's clock."""
    behind = broker_clock(settings.kafka.bootstrap_servers).behind_at_most
    return settling_behind(behind, settings.pages.settle_seconds)


def settling_behind(behind_at_most: float | None, limit: float) -> Settling:
    """What to wait for a broker whose clock is behind ours by so much at most; None: not known."""
    if behind_at_most is None:
        return Settling(limit, "the limit: the broker's clock is not known yet")
    needed = REPLICATION_SECONDS + behind_at_most
    told = f"the broker's clock is behind by {behind_at_most:.3f} s at most"
    if needed >= limit:
        return Settling(limit, f"the limit: {told}")
    return Settling(needed, f"{told}, and replicas have {REPLICATION_SECONDS:g} s")

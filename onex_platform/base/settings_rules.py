"""What settings of several groups must agree on; each group's own rules stand with the group."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from onex_platform.base.environment import PREFIX

if TYPE_CHECKING:
    from onex_platform.base.settings import Settings


class _Order(NamedTuple):
    """A duration that must exceed another one, and what would happen if it did not."""

    larger: str
    smaller: str
    otherwise: str


_ORDERS = (
    # Rows are streamed while they are sent: the statement lasts as long as the sending.
    _Order(
        "postgres.statement_timeout_seconds",
        "snapshots.transaction_seconds",
        "a publication would be cut off while it may still succeed",
    ),
    _Order(
        "deadlines.gap_seconds",
        "pipeline.clock_seconds",
        "every look would begin a new watch",
    ),
    _Order(
        "deadlines.gap_seconds",
        "pipeline.lease_seconds",
        "every take-over would begin a new watch",
    ),
    _Order(
        "registration.heartbeat_liveness_seconds",
        "registration.heartbeat_seconds",
        "nodes would expire between two heartbeats",
    ),
    _Order(
        "pipeline.linger_seconds",
        "registration.heartbeat_seconds",
        "a small fleet would pay for a cold start with every heartbeat",
    ),
    _Order(
        "pipeline.run_seconds",
        "pipeline.handover_seconds",
        "runs would only follow each other",
    ),
    _Order(
        "pipeline.run_seconds",
        "pipeline.linger_seconds",
        "a run would be over before it has lingered",
    ),
    _Order(
        "health.lease_silence_seconds",
        "health.lease_beat_seconds",
        "whoever holds a lease would be missed between two signs of life",
    ),
)


def disagreements(settings: Settings) -> Iterator[str]:
    """What is wrong between groups, with the variables to change."""
    for larger, smaller, otherwise in _ORDERS:
        if _value(settings, larger) <= _value(settings, smaller):
            named = f"{_shown(settings, larger)} must exceed {_shown(settings, smaller)}"
            yield f"{named}; {otherwise}"
    yield from _an_unseen_outage_is_short_beside_the_windows(settings)


def _an_unseen_outage_is_short_beside_the_windows(settings: Settings) -> Iterator[str]:
    # What fits into a gap begins no grace. Half a window is left to a node that beats in time.
    gap = "deadlines.gap_seconds"
    windows = ("registration.first_liveness_seconds", "registration.heartbeat_liveness_seconds")
    shortest = min(windows, key=lambda window: _value(settings, window))
    if 2 * _value(settings, gap) > _value(settings, shortest):
        yield (
            f"{_shown(settings, gap)} must be at most half of {_shown(settings, shortest)}; "
            "nodes would expire by an outage of the broker that nobody saw"
        )


def _value(settings: Settings, name: str) -> float:
    value: float = attrgetter(name)(settings)
    return value


def _shown(settings: Settings, name: str) -> str:
    return f"{PREFIX}{name.replace('.', '_').upper()}={_value(settings, name):g}"

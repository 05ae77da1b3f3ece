"""Measurements for tests: numbers by hand, a minute apart."""

from __future__ import annotations

from datetime import timedelta

from onex_platform.base import faults
from onex_platform.health.alert_rules import Measurement
from onex_platform.health.thresholds import reading
from onex_platform_tests.support.events import at

MINUTE = timedelta(minutes=1)


class Killed(Exception):  # noqa: N818 - an accident
    """What happens at a crash point."""


def die_at(point: str) -> None:
    """Let the next one who comes there end."""

    def die() -> None:
        raise Killed

    faults.arm(point, die)


def measured(minute: float, **numbers: float) -> Measurement:
    """What was measured then; a scope may stand behind the metric: `lag_seconds__topic`."""
    named = (name.partition("__") for name in numbers)
    readings = [
        reading(metric, scope or "events", value)
        for (metric, _, scope), value in zip(named, numbers.values(), strict=True)
    ]
    return Measurement(at(60 * minute), readings)

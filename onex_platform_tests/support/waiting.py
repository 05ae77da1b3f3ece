"""Waiting in tests: for a condition, and not for ever. Nothing else in the tests may sleep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from onex_platform.stack.processes import wait_until


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    """Whether it comes to hold in time."""
    return wait_until(holds, seconds, interval_seconds=0.02)


def let_clock_pass(instant: datetime) -> None:
    """Return when it is later than that, also for the servers: they share this machine's clock.

    Only for rules about time itself; what can be observed is waited for with `eventually`.
    """
    left = (instant - datetime.now(UTC)).total_seconds()
    assert wait_until(lambda: datetime.now(UTC) > instant, left + 10, interval_seconds=0.005)

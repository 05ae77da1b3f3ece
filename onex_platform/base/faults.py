"""Named effects: where a test can let an accident happen, to see what the next run makes of it.

In production `effect` only marks where something outside this process changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_armed: dict[str, Callable[[], None]] = {}


def arm(point: str, accident: Callable[[], None] = _die) -> None:
    """Let an accident happen, once, at `before:NAME` or `after:NAME`; by default this process dies,
    at once and by SIGKILL."""
    _armed[point] = accident


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect by a name that a test can arm."""
    _pass(f"before:{name}")
    yield
    _pass(f"after:{name}")


def _pass(point: str) -> None:
    if accident := _armed.pop(point, None):
        accident()

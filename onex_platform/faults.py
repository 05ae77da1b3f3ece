"""Named effects: where a test can kill the process, to see what a restart makes of it.

In production `effect` only marks where something outside this process changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_deadly: set[str] = set()


def arm(point: str) -> None:
    """Let this process die, at once and by SIGKILL, at `before:NAME` or `after:NAME`."""
    _deadly.add(point)


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect by a name that a test can arm."""
    _die_at(f"before:{name}")
    yield
    _die_at(f"after:{name}")


def _die_at(point: str) -> None:
    if point in _deadly:
        os.kill(os.getpid(), signal.SIGKILL)

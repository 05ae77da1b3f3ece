"""Named effects: where a test can kill the process, to see what a restart makes of it.

In production `effect` only marks where something outside this process changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

KILL_VARIABLE = "ONEX_TEST_KILL_AT"


@contextmanager
def effect(name: str) -> Iterator[None]:
    """Mark an effect; with the test variable `before:name` or `after:name`, die there at once."""
    _die_at(f"before:{name}")
    yield
    _die_at(f"after:{name}")


def _die_at(point: str) -> None:
    if os.environ.get(KILL_VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)

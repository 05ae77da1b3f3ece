"""How often Python looks for cycles of garbage, where many objects are made that have none.

By default it looks after every 700 of them, and goes through all that are alive: for who holds many
events at once that takes as long as the work itself. What is not part of a cycle goes without it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 20)


def collect_rarely() -> None:
    """Look rarely, from now on."""
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Look rarely, for the block."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""How long work tells what it is doing: one sentence at a time, to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]


def silent(_sentence: str) -> None:
    """For callers that need no progress."""

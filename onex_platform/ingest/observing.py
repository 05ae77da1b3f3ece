"""Which topics are worth an entry in the graph's history: those whose verdict or end has changed.

A look is taken often, so that a lag shows soon; an entry stays for ever, so that there should not
be one of every topic for every look.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError

from onex_platform.ingest.lag import TopicState

_AT_MOST_EVERY = timedelta(minutes=10)


class Observed(BaseModel):
    """What was last recorded of a topic."""

    at: AwareDatetime
    end_offset: int
    verdict: str


_Memory = dict[str, Observed]
_MEMORY = TypeAdapter(_Memory)


def recalled(text: str | None) -> _Memory:
    """What a sensor's cursor says; one that can't be read costs an extra entry per topic."""
    try:
        return _MEMORY.validate_json(text or "{}")
    except ValidationError:
        return {}


def noted(memory: _Memory, states: Iterable[TopicState], now: datetime) -> str:
    """The next cursor, once these states are recorded."""
    new = {
        state.topic: Observed(at=now, end_offset=state.end_offset, verdict=_verdict(state))
        for state in states
    }
    return _MEMORY.dump_json(memory | new).decode()


def worth_recording(
    memory: _Memory, states: Iterable[TopicState], now: datetime
) -> list[TopicState]:
    """The states that say something new."""
    return [state for state in states if _is_news(memory.get(state.topic), state, now)]


def _is_news(last: Observed | None, state: TopicState, now: datetime) -> bool:
    if last is None or last.verdict != _verdict(state):
        return True
    return last.end_offset != state.end_offset and now - last.at >= _AT_MOST_EVERY


def _verdict(state: TopicState) -> str:
    if state.lag is None:
        return ""
    lag = state.lag
    danger = (lag.lost > 0, lag.restarted > 0, lag.endangered)
    return f"{lag.verdict} {danger} {lag.timestamps}"

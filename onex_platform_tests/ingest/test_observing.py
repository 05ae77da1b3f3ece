"""Which looks at a topic are kept, and what becomes of a cursor that can't be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.ingest.lag import ArchiveLag, EnumLagVerdict, TopicState
from onex_platform.ingest.observing import noted, recalled, worth_recording

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _state(
    end_offset: int = 5,
    verdict: EnumLagVerdict = EnumLagVerdict.OK,
    *,
    lost: int = 0,
    restarted: int = 0,
    endangered: bool = False,
    timestamps: str = "LogAppendTime",
) -> TopicState:
    lag = ArchiveLag(
        events=1,
        lost=lost,
        restarted=restarted,
        seconds=1.0,
        retention=timedelta(hours=1),
        timestamps=timestamps,
        verdict=verdict,
        endangered=endangered,
    )
    return TopicState(topic="t", partitions=3, records=5, end_offset=end_offset, lag=lag)


def _is_kept(state: TopicState, after: timedelta) -> bool:
    memory = recalled(noted({}, [_state()], NOW))
    return worth_recording(memory, [state], NOW + after) == [state]


def test_a_topic_that_was_never_seen_is_news() -> None:
    assert worth_recording({}, [_state()], NOW) == [_state()]


def test_more_records_are_news_after_a_while() -> None:
    assert not _is_kept(_state(end_offset=9), timedelta(minutes=9))
    assert _is_kept(_state(end_offset=9), timedelta(minutes=10))


def test_a_topic_that_nobody_writes_to_is_never_news() -> None:
    assert not _is_kept(_state(), timedelta(days=1))


@pytest.mark.parametrize(
    "state",
    [
        _state(verdict=EnumLagVerdict.RISING),
        _state(lost=1),
        _state(restarted=1),
        _state(endangered=True),
        _state(timestamps="CreateTime"),
    ],
    ids=["verdict", "loss", "restart", "danger", "clock"],
)
def test_another_verdict_is_news_at_once(state: TopicState) -> None:
    assert _is_kept(state, timedelta(seconds=1))


@pytest.mark.parametrize("cursor", [None, "", "{", "[]", '{"t": 1}', '{"t": {"at": "soon"}}'])
def test_a_cursor_that_can_not_be_read_counts_as_none(cursor: str | None) -> None:
    assert recalled(cursor) == {}

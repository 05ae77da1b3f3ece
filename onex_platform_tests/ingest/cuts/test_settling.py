"""How long a cut waits for records that are on their way: as long as the clock asks, to a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.ingest.cuts.settling import REPLICATION_SECONDS, settling_behind

SECONDS = st.floats(0, 100)


@pytest.mark.parametrize(
    ("behind", "limit", "seconds", "why"),
    [
        (None, 0.5, 0.5, "not known yet"),
        (0.0, 0.5, REPLICATION_SECONDS, "behind by 0.000 s at most, and replicas"),
        (0.03, 0.5, REPLICATION_SECONDS + 0.03, "behind by 0.030 s at most, and replicas"),
        (0.49, 0.5, 0.5, "the limit: the broker's clock is behind by 0.490 s"),
        (7.0, 0.5, 0.5, "the limit: the broker's clock is behind by 7.000 s"),
        (0.0, 0.05, 0.05, "the limit"),
        (0.0, 0.0, 0.0, "the limit"),
    ],
)
def test_the_wait_is_as_short_as_the_clock_allows(
    behind: float | None, limit: float, seconds: float, why: str
) -> None:
    settled = settling_behind(behind, limit)
    assert settled.seconds == seconds
    assert why in settled.reason


@given(behind=SECONDS, limit=SECONDS, lag=st.floats(0, 1), replication=st.floats(0, 1))
def test_what_is_within_its_limits_is_never_late(
    behind: float, limit: float, lag: float, replication: float
) -> None:
    """A record that is not there when the ends are captured has a time behind the cut's end."""
    settled = settling_behind(behind, limit)
    if settled.seconds < REPLICATION_SECONDS + behind:
        assert settled.seconds == limit  # then order between topics may suffer, and nothing else
        return
    captured = 1_000_000.0
    readable = captured + 1e-6  # just missed
    appended_by_our_clock = readable - replication * REPLICATION_SECONDS
    stamp = appended_by_our_clock - lag * behind
    assert stamp >= captured - settled.seconds

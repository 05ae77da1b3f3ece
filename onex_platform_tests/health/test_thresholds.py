"""Numbers are judged by their bounds, and shares of many numbers are what sorting says."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.health.thresholds import (
    METRICS,
    EnumLevel,
    Thresholds,
    percentile,
    percentile_of_classes,
    reading,
)
from onex_platform.ingest.lag import judge
from onex_platform.snapshots.publish.publish_times import CLASSES, class_of
from onex_platform.topics.contract import LAG_THRESHOLDS
from onex_platform_tests.support.events import at

NUMBERS = st.floats(0, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("metric", "fine", "rising", "warning", "critical"),
    [
        ("publish_latency_p50_ms", 50, 51, None, None),
        ("publish_latency_p99_ms", 200, None, 201, None),
        ("publish_success_percent", 99.9, 99.5, 98.9, None),
        ("event_queue_depth", 100, 101, 1001, None),
        ("circuit_breaker_open_count", 0, None, 1, None),
        ("heartbeat_interval_seconds", 35, 36, 91, None),
        ("heartbeat_jitter_seconds", 5, 6, 16, None),
        ("heartbeat_size_bytes", 1024, 1025, 10241, None),
        ("node_cpu_percent", 70, None, 71, 86),
        ("node_memory_percent", 80, None, 81, 91),
        ("node_operations_percent", 99, None, 100, 101),
    ],
)
def test_numbers_are_judged_as_specified(
    metric: str,
    fine: float,
    rising: float | None,
    warning: float | None,
    critical: float | None,
) -> None:
    values = dict(zip(EnumLevel, (fine, rising, warning, critical), strict=True))
    judged = {
        level: reading(metric, "it", value).level
        for level, value in values.items()
        if value is not None
    }
    assert judged == {level: level for level in judged}


@given(NUMBERS, st.sampled_from(list(LAG_THRESHOLDS.values())))
def test_lag_is_judged_as_the_archive_judges_it(seconds: float, lag: object) -> None:
    found = Thresholds.of_lag(lag).judge(round(seconds, 3))  # type: ignore[arg-type]
    known = judge(at(round(seconds, 3)) - at(0), lag)  # type: ignore[arg-type]
    assert (found.rank, found.value) == (
        list(type(known)).index(known),
        known.value.replace("ok", "fine"),
    )


@given(st.lists(NUMBERS, min_size=3, max_size=3), NUMBERS, NUMBERS, st.booleans())
def test_a_worse_number_is_never_judged_better(
    bounds: list[float], one: float, other: float, less_is_worse: bool
) -> None:
    ordered = sorted(bounds, reverse=less_is_worse)
    thresholds = Thresholds(*ordered, less_is_worse=less_is_worse)
    better, worse = sorted((one, other), reverse=less_is_worse)
    assert thresholds.judge(better).rank <= thresholds.judge(worse).rank


@given(st.lists(NUMBERS, min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_least_number_that_so_many_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    smaller = [value for value in values if value < found]
    assert len(smaller) < share * len(values) + 1e-9


@given(st.lists(st.floats(0, 2000), min_size=1), st.sampled_from([0.5, 0.99]))
def test_a_histogram_says_the_class_of_the_percentile(seconds: list[float], share: float) -> None:
    classes = Counter(map(class_of, seconds))
    assert percentile_of_classes(classes, share) == class_of(percentile(seconds, share))


@given(st.floats(0, 800))
def test_a_time_belongs_to_the_first_class_that_holds_it(seconds: float) -> None:
    found = class_of(seconds)
    assert seconds * 1000 <= found
    assert all(bound < seconds * 1000 for bound in CLASSES[: bisect_left(CLASSES, found)])


def test_the_histogram_can_tell_both_sides_of_the_latencies_that_alert() -> None:
    for metric in ("publish_latency_p50_ms", "publish_latency_p99_ms"):
        thresholds = METRICS[metric].thresholds
        assert thresholds is not None
        assert thresholds.acceptable in CLASSES

"""What is measured, and what is said of it: one table of metrics, one rule that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from onex_platform.topics.contract import LagThresholds


class EnumLevel(StrEnum):
    """How good a number is, best first."""

    FINE = "fine"
    RISING = "rising"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return _LEVELS.index(self)


_LEVELS = tuple(EnumLevel)


class EnumGroup(StrEnum):
    """What a metric is about."""

    PUBLISHING = "publishing"
    HEARTBEATS = "heartbeats"
    LOAD = "load"
    TOPICS = "topics"
    SERVICE = "service"


class Thresholds(NamedTuple):
    """Bounds of a number; each is passed only beyond it, and None is never passed.

    Up to `acceptable` a number is fine. If less is worse, so are the bounds.
    """

    acceptable: float
    warning: float | None = None
    critical: float | None = None
    less_is_worse: bool = False

    @classmethod
    def of_lag(cls, lag: LagThresholds) -> Self:
        """Those of a topic's category."""
        return cls(*lag)

    def judge(self, value: float) -> EnumLevel:
        """The level of a number."""
        bounds = zip(
            (EnumLevel.CRITICAL, EnumLevel.WARNING, EnumLevel.RISING),
            (self.critical, self.warning, self.acceptable),
            strict=True,
        )
        for level, bound in bounds:
            if bound is not None and (value < bound if self.less_is_worse else value > bound):
                return level
        return EnumLevel.FINE


class Metric(NamedTuple):
    """A number by name: its unit, what it is of each of, where it comes from, and its bounds.

    Without thresholds it only informs; those of `lag_seconds` are of the topic's category.
    """

    name: str
    unit: str
    of_each: str
    source: str
    group: EnumGroup
    thresholds: Thresholds | None = None


_G = EnumGroup
_OUTBOX = "what the relay noted with its acknowledgements, last five minutes"
_PAGES = "a sample of nodes in the newest pages, all of their heartbeats"
_BROKER = "the broker's offsets, by time"
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("publish_latency_p50_ms", "ms", "outlet", _OUTBOX, _G.PUBLISHING, Thresholds(50)),
        Metric(
            "publish_latency_p99_ms", "ms", "outlet", _OUTBOX, _G.PUBLISHING, Thresholds(200, 200)
        ),
        Metric(
            "publish_success_percent",
            "%",
            "outlet",
            _OUTBOX,
            _G.PUBLISHING,
            Thresholds(99.9, 99, less_is_worse=True),
        ),
        Metric(
            "event_queue_depth",
            "entries",
            "outlet",
            "the outbox",
            _G.PUBLISHING,
            Thresholds(100, 1000),
        ),
        Metric(
            "circuit_breaker_open_count",
            "breakers",
            "platform",
            "`circuit_breaker.state_changed`, last five minutes",
            _G.SERVICE,
            Thresholds(0, 0),
        ),
        Metric(
            "heartbeat_interval_seconds", "s", "tenant", _PAGES, _G.HEARTBEATS, Thresholds(35, 90)
        ),
        Metric("heartbeat_jitter_seconds", "s", "tenant", _PAGES, _G.HEARTBEATS, Thresholds(5, 15)),
        Metric(
            "heartbeat_size_bytes", "B", "tenant", _PAGES, _G.HEARTBEATS, Thresholds(1024, 10240)
        ),
        Metric("node_cpu_percent", "%", "tenant", _PAGES, _G.LOAD, Thresholds(70, 70, 85)),
        Metric(
            "node_memory_percent",
            "% of the limit",
            "tenant",
            _PAGES,
            _G.LOAD,
            Thresholds(80, 80, 90),
        ),
        Metric(
            "node_operations_percent",
            "% of the pool",
            "tenant",
            _PAGES,
            _G.LOAD,
            Thresholds(99.9, 99.9, 100),  # a pool that is just full warns
        ),
        Metric("lag_seconds", "s", "topic", "the oldest record not archived", _G.TOPICS),
        Metric(
            "group_lag_seconds", "s", "topic and group", "the oldest record not read", _G.TOPICS
        ),
        Metric("records_per_second", "1/s", "topic", _BROKER, _G.TOPICS),
        Metric("heartbeats_per_second", "1/s", "topic", _BROKER, _G.HEARTBEATS),
        Metric(
            "errors_percent",
            "%",
            "topic",
            "records parked or illegal, last five minutes, of those that came",
            _G.TOPICS,
            Thresholds(0, 1, 5),
        ),
        Metric(
            "unanswered",
            "sources",
            "source",
            "the measuring itself",
            _G.SERVICE,
            Thresholds(0, 0),
        ),
    )
}


class Reading(NamedTuple):
    """A number that was measured, of whom, and how good it is."""

    metric: str
    scope: str
    value: float
    level: EnumLevel


def reading(metric: str, scope: str, value: float, thresholds: Thresholds | None = None) -> Reading:
    """A number, judged by its metric's thresholds or by its own."""
    bounds = thresholds or METRICS[metric].thresholds
    level = EnumLevel.FINE if bounds is None else bounds.judge(value)
    return Reading(metric, scope, round(value, 3), level)


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(_places(len(ordered), share) - 1, 0)]


def percentile_of_classes(classes: Mapping[int, int], share: float) -> int:
    """The same of a histogram: the upper bound of the class in which it lies."""
    wanted, seen = _places(sum(classes.values()), share), 0
    for bound in sorted(classes):
        seen += classes[bound]
        if seen >= wanted:
            return bound
    raise ValueError("the histogram is empty")


def _places(count: int, share: float) -> int:
    """How many of so many are this share, rounded up."""
    return -int(-(count * share) // 1)

"""When an alert is raised, rises and ends: rules as data, and what they make of measurements.

Pure: what counts is what was measured, and when. A condition whose number is missing is neither
true nor false: it raises nothing and ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

from onex_platform.health.thresholds import METRICS, EnumLevel, Reading

# An alert ends when its conditions have not held for so long.
SETTLES_AFTER = timedelta(minutes=2)
# What the longest rule looks back at; measurements are kept a while longer.
LOOKS_BACK = timedelta(hours=1)


class EnumTier(StrEnum):
    """Who should care, and how soon."""

    WARNING = "warning"
    CRITICAL = "critical"
    EMERGENCY = "emergency"

    @property
    def rank(self) -> int:
        return _TIERS.index(self)


_TIERS = tuple(EnumTier)


@dataclass(frozen=True)
class Measurement:
    """All that was measured at a moment."""

    at: datetime
    readings: Sequence[Reading]

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], Reading]:
        return {(item.metric, item.scope): item for item in self.readings}

    def scopes(self, metric: str) -> list[str]:
        return [item.scope for item in self.readings if item.metric == metric]


class Condition(Protocol):
    """Something that holds of a metric's scope, or not; None: it can't be told."""

    @property
    def metric(self) -> str: ...

    def holds(self, past: Sequence[Measurement], scope: str) -> bool | None:
        """Whether it holds at the last of the measurements."""


@dataclass(frozen=True)
class IsAt:
    """The number is at this level or a worse one."""

    metric: str
    level: EnumLevel

    def holds(self, past: Sequence[Measurement], scope: str) -> bool | None:
        found = past[-1].by_name.get((self.metric, scope))
        return None if found is None else found.level.rank >= self.level.rank

    def __str__(self) -> str:
        return f"{self.metric} is {self.level} or worse"


@dataclass(frozen=True)
class Fell:
    """The number has lost this share of what it was, within a time; small ones say nothing."""

    metric: str
    percent: float
    within: timedelta
    from_at_least: float

    def holds(self, past: Sequence[Measurement], scope: str) -> bool | None:
        found = past[-1].by_name.get((self.metric, scope))
        earliest = past[-1].at - self.within
        before = [
            item.value
            for measurement in past[:-1]
            if measurement.at >= earliest
            and (item := measurement.by_name.get((self.metric, scope))) is not None
        ]
        if found is None or not before:
            return None
        most = max(before)
        return most >= self.from_at_least and 100 * found.value <= most * (100 - self.percent)

    def __str__(self) -> str:
        minutes = self.within.total_seconds() / 60
        return f"{self.metric} fell by {self.percent:g} % or more within {minutes:g} min"


class Step(NamedTuple):
    """A tier, and for how long its conditions hold before it is reached."""

    tier: EnumTier
    conditions: tuple[Condition, ...]
    after: timedelta = timedelta()


class Rule(NamedTuple):
    """An alert by name. It speaks of each scope of its first condition's metric.

    Further conditions on another metric hold if they do so for any scope of it.
    """

    name: str
    steps: tuple[Step, ...]

    @property
    def metric(self) -> str:
        return self.steps[0].conditions[0].metric


class Finding(NamedTuple):
    """What a rule makes of a scope now: its tier, or none, and whether it is known to be over."""

    rule: str
    scope: str
    tier: EnumTier | None
    over: bool
    says: str


_W, _C, _E = EnumTier
_MIN = timedelta(minutes=1)


def _at(metric: str, level: EnumLevel = EnumLevel.WARNING) -> IsAt:
    return IsAt(metric, level)


_FALLS = [Fell("heartbeats_per_second", percent, 5 * _MIN, 0.2) for percent in (50, 80, 95)]
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("slow_publishing", (Step(_W, (_at("publish_latency_p99_ms"),), 5 * _MIN),)),
        Rule(
            "slow_publishing_under_load",
            (
                Step(_C, (_at("publish_latency_p99_ms"), _at("node_cpu_percent")), 2 * _MIN),
                Step(_E, (_at("publish_latency_p99_ms"), _at("node_cpu_percent")), 15 * _MIN),
            ),
        ),
        Rule(
            "failing_publishing",
            (
                Step(_W, (_at("publish_success_percent"),)),
                Step(_C, (_at("publish_success_percent"),), 5 * _MIN),
                Step(_E, (_at("publish_success_percent"), _at("event_queue_depth")), 10 * _MIN),
            ),
        ),
        Rule(
            "growing_queue",
            (
                Step(_W, (_at("event_queue_depth"),), 2 * _MIN),
                Step(_C, (_at("event_queue_depth"),), 10 * _MIN),
            ),
        ),
        Rule("open_breaker", (Step(_W, (_at("circuit_breaker_open_count"),), _MIN),)),
        Rule(
            "fewer_heartbeats",
            tuple(Step(tier, (fall,)) for tier, fall in zip(EnumTier, _FALLS, strict=True)),
        ),
        Rule("rare_heartbeats", (Step(_W, (_at("heartbeat_interval_seconds"),), 2 * _MIN),)),
        Rule("uneven_heartbeats", (Step(_W, (_at("heartbeat_jitter_seconds"),), 5 * _MIN),)),
        Rule("large_heartbeats", (Step(_W, (_at("heartbeat_size_bytes"),), 5 * _MIN),)),
        *(
            Rule(
                f"high_{what}",
                (
                    Step(_W, (_at(f"node_{what}_percent"),), 5 * _MIN),
                    Step(_C, (_at(f"node_{what}_percent", EnumLevel.CRITICAL),), 5 * _MIN),
                ),
            )
            for what in ("cpu", "memory", "operations")
        ),
        Rule(
            "late_archive",
            (
                Step(_W, (_at("lag_seconds"),)),
                Step(_C, (_at("lag_seconds", EnumLevel.CRITICAL),)),
                Step(_E, (_at("lag_seconds", EnumLevel.CRITICAL),), 15 * _MIN),
            ),
        ),
        # No emergency: a group that nobody needs any more is late until its offsets expire.
        Rule(
            "late_group",
            (
                Step(_W, (_at("group_lag_seconds"),), 2 * _MIN),
                Step(_C, (_at("group_lag_seconds", EnumLevel.CRITICAL),), 5 * _MIN),
            ),
        ),
        Rule(
            "bad_records",
            (
                Step(_W, (_at("errors_percent"),)),
                Step(_C, (_at("errors_percent", EnumLevel.CRITICAL),), 2 * _MIN),
            ),
        ),
        Rule(
            "blind",
            (
                Step(_W, (_at("unanswered"),), 2 * _MIN),
                Step(_C, (_at("unanswered"),), 10 * _MIN),
            ),
        ),
    )
}


def evaluate(rules: Iterable[Rule], past: Sequence[Measurement]) -> list[Finding]:
    """What the rules make of each scope; measurements come oldest first."""
    found = []
    for rule in rules:
        scopes = {scope for item in past for scope in item.scopes(rule.metric)}
        found += [_finding(rule, scope, past) for scope in sorted(scopes)]
    return found


def _finding(rule: Rule, scope: str, past: Sequence[Measurement]) -> Finding:
    reached = [
        step
        for step in rule.steps
        if (lasts := _lasting(step, scope, past, True)) is not None and lasts >= step.after
    ]
    top = max(reached, key=lambda step: step.tier.rank, default=None)
    quiet = [_lasting(step, scope, past, False) for step in rule.steps]
    return Finding(
        rule.name,
        scope,
        top and top.tier,
        all(lasts is not None and lasts >= SETTLES_AFTER for lasts in quiet),
        _says(top or rule.steps[0], scope, past[-1]),
    )


def _lasting(step: Step, scope: str, past: Sequence[Measurement], wanted: bool) -> timedelta | None:
    """For how long it is known without a break that the step holds, or that it does not; None: it
    is not so now."""
    lasts = None
    for end in range(len(past), 0, -1):
        if _step_holds(step, scope, past[:end]) is not wanted:
            break
        lasts = past[-1].at - past[end - 1].at
        if lasts >= max(step.after, SETTLES_AFTER):
            break  # longer than anybody asks for
    return lasts


def _step_holds(step: Step, scope: str, past: Sequence[Measurement]) -> bool | None:
    """Whether all conditions hold; one that is known not to is enough to know it."""
    verdicts = [_holds(each, step, past, scope) for each in step.conditions]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _holds(
    condition: Condition, step: Step, past: Sequence[Measurement], scope: str
) -> bool | None:
    if condition.metric == step.conditions[0].metric:
        return condition.holds(past, scope)
    others = past[-1].scopes(condition.metric)
    if scope in others:
        return condition.holds(past, scope)
    verdicts = [condition.holds(past, other) for other in others]
    if any(verdicts):
        return True
    return None if not verdicts or None in verdicts else False


def _says(step: Step, scope: str, last: Measurement) -> str:
    numbers = [
        f"{each.metric} is {item.value:g} {METRICS[each.metric].unit}"
        for each in step.conditions
        if (item := last.by_name.get((each.metric, scope))) is not None
    ]
    return f"{'; '.join(numbers)}." if numbers else "Nothing is measured now."

"""When an alert is raised, rises and ends, by what was measured and nothing else."""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.health.alert_rules import (
    LOOKS_BACK,
    RULES,
    SETTLES_AFTER,
    EnumTier,
    Fell,
    Finding,
    IsAt,
    Measurement,
    evaluate,
)
from onex_platform.health.alerting import Alert, changed_alerts
from onex_platform.health.thresholds import METRICS, EnumLevel
from onex_platform_tests.support.events import at
from onex_platform_tests.support.measured import MINUTE, measured

HOT = {"publish_latency_p99_ms": 500.0, "node_cpu_percent__t": 80.0}
# A number of a minute: bad, good, or missing.
STATES = st.lists(st.sampled_from([50.0, 100.0, None]), min_size=1, max_size=25)


def findings(past: list[Measurement], rule: str) -> list[Finding]:
    return evaluate([RULES[rule]], past)


def test_every_rule_speaks_of_metrics_that_there_are_and_rises_with_its_tiers() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert {each.metric for step in rule.steps for each in step.conditions} <= METRICS.keys()
        ranks = [step.tier.rank for step in rule.steps]
        assert ranks == sorted(set(ranks)), name
        assert all(step.after < LOOKS_BACK for step in rule.steps), name
        for step in rule.steps:
            for each in step.conditions:
                if isinstance(each, IsAt) and (bounds := METRICS[each.metric].thresholds):
                    assert getattr(bounds, each.level) is not None, (name, each)


@given(STATES)
def test_a_rule_reaches_the_tier_whose_time_has_passed_without_a_break(
    values: list[float | None],
) -> None:
    past = [
        measured(minute, **({} if value is None else {"publish_success_percent": value}))
        for minute, value in enumerate(values)
    ]
    found = findings(past, "failing_publishing")
    if all(value is None for value in values):
        assert found == []
        return
    [finding] = found
    bad = len(list(takewhile(lambda value: value == 50, reversed(values))))
    expected = None
    if bad:
        expected = EnumTier.CRITICAL if bad - 1 >= 5 else EnumTier.WARNING
    assert finding.tier is expected
    good = len(list(takewhile(lambda value: value == 100, reversed(values))))
    assert finding.over == (good > SETTLES_AFTER / MINUTE)


def test_a_combination_needs_both_for_the_whole_time() -> None:
    cool = HOT | {"node_cpu_percent__t": 10.0}
    calm = HOT | {"publish_latency_p99_ms": 20.0}
    rule = "slow_publishing_under_load"
    for other in (cool, calm):
        past = [measured(minute, **(other if minute == 1 else HOT)) for minute in range(5)]
        tiers = [findings(past[:end], rule)[0].tier for end in range(1, 6)]
        assert tiers == [None, None, None, None, EnumTier.CRITICAL]
    past = [measured(minute, **HOT) for minute in range(16)]
    [finding] = findings(past[:3], rule)
    assert (finding.scope, finding.tier) == ("events", EnumTier.CRITICAL)
    [finding] = findings(past, rule)
    assert finding.tier is EnumTier.EMERGENCY
    assert "publish_latency_p99_ms is 500 ms" in finding.says


@pytest.mark.parametrize(
    ("rates", "tier"),
    [
        ([10, 6], None),
        ([10, 5], EnumTier.WARNING),
        ([10, 2], EnumTier.CRITICAL),
        ([10, 0], EnumTier.EMERGENCY),
        ([10, 0, 0, 0, 0, 0], EnumTier.EMERGENCY),
        ([10, 0, 0, 0, 0, 0, 0], None),
        ([0.1, 0], None),
        ([5, 10], None),
        ([5], None),
    ],
)
def test_a_fall_is_judged_by_the_most_of_the_last_minutes(
    rates: list[float], tier: EnumTier | None
) -> None:
    past = [measured(n, heartbeats_per_second__t=rate) for n, rate in enumerate(rates)]
    assert [finding.tier for finding in findings(past, "fewer_heartbeats")] == [tier]


def test_a_number_that_is_missing_neither_falls_nor_rises() -> None:
    fall = Fell("heartbeats_per_second", 50, 5 * MINUTE, 0.2)
    past = [measured(0, heartbeats_per_second__t=10), measured(1)]
    assert fall.holds(past, "t") is None
    assert IsAt("lag_seconds", EnumLevel.WARNING).holds(past, "t") is None


@given(
    st.lists(st.tuples(st.sampled_from([None, *EnumTier]), st.booleans()), min_size=1, max_size=12)
)
def test_an_alert_only_rises_until_it_is_over(steps: list[tuple[EnumTier | None, bool]]) -> None:
    alert: Alert | None = None
    for minute, (tier, over) in enumerate(steps):
        now = at(60 * minute)
        finding = Finding("blind", "lag", tier, over and tier is None, "")
        changed = changed_alerts([alert] if alert else [], [finding], "registration", now)
        assert len(changed) <= 1
        for new in changed:
            assert new.changed_at == now
            if alert is None:
                assert (new.tier, new.state) == (tier, tier)
            elif new.resolved_at is None:
                assert tier is not None
                assert new.tier.rank == tier.rank > alert.tier.rank
            else:
                assert finding.over
            alert = None if new.resolved_at else new
        if alert is not None and tier is not None:
            assert alert.tier.rank >= tier.rank


def test_an_alert_of_whom_nothing_is_measured_any_more_ends() -> None:
    finding = Finding("blind", "lag", EnumTier.WARNING, False, "")
    raised = changed_alerts([], [finding], "registration", at(0))
    [ended] = changed_alerts(raised, [], "registration", at(9))
    assert ended.state == "resolved"


def test_what_is_raised_again_is_another_alert() -> None:
    finding = Finding("blind", "lag", EnumTier.WARNING, False, "")
    first, again = (
        changed_alerts([], [finding], "registration", at(0) + timedelta(seconds=second))
        for second in (0, 1)
    )
    assert first[0].alert_id != again[0].alert_id

"""Whom a silence is about: a rule, a scope or a part of one, or everything but emergencies."""

from __future__ import annotations

import pytest

from onex_platform.health.alert_rules import EnumTier
from onex_platform.health.alerting import Alert, silenced_among
from onex_platform.health.silences import EVERYTHING, Silence
from onex_platform_tests.support.events import at, number_id

TOPIC = "onex.node.heartbeat.published.v1"


def alert(tier: EnumTier = EnumTier.CRITICAL, scope: str = f"{TOPIC} readers") -> Alert:
    return Alert(number_id(1), "late_group", scope, tier, "", at(0), at(0))


def silence(target: str, *, emergencies: bool = False) -> Silence:
    return Silence(1, target, emergencies, "why", "ada", at(0), at(60))


@pytest.mark.parametrize(
    ("target", "is_meant"),
    [
        ("late_group", True),
        (f"{TOPIC} readers", True),
        (TOPIC, True),
        ("readers", True),
        (EVERYTHING, True),
        ("late_archive", False),
        ("reader", False),
        ("onex.node", False),
    ],
)
def test_a_silence_is_about_a_rule_a_scope_or_a_part_of_it(target: str, is_meant: bool) -> None:
    assert bool(silenced_among([alert()], [silence(target)])) is is_meant


@pytest.mark.parametrize("target", ["late_group", TOPIC, EVERYTHING])
def test_an_emergency_is_silenced_by_its_flag_alone(target: str) -> None:
    emergency = alert(EnumTier.EMERGENCY)
    assert not silenced_among([emergency], [silence(target)])
    assert silenced_among([emergency], [silence(target, emergencies=True)])
    # Of several silences one that is about it is enough.
    both = [silence("late_archive"), silence(target, emergencies=True)]
    assert silenced_among([emergency], both)


def test_without_a_silence_everything_is_told() -> None:
    assert not silenced_among([alert(tier) for tier in EnumTier], [])

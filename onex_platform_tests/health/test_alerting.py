"""Alerts as they stand and as they are told: once per change, whatever ends whom in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import Positions, end_positions, read_to_end
from onex_platform.health.alerting import Alert, advance, alerts, tell_alerts
from onex_platform.health.measurements import measurements
from onex_platform.health.silences import active_silences, lift, silence, silences
from onex_platform.health.watching import standing
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import at
from onex_platform_tests.support.measured import MINUTE, Killed, die_at, measured
from onex_platform_tests.support.watched_clock import Watched

pytestmark = pytest.mark.servers

ERRORS = load_catalogue().for_kind(EnumEventKind.ERROR_DETECTED).topic
BAD, GOOD = 50.0, 100.0


@pytest.fixture
def look(piped: Watched) -> Callable[[float, float], int]:
    """A look at a minute with a share of publications that succeed; how much was told."""

    def take(minute: float, success: float) -> int:
        platform = piped.archive.platform
        advance(platform, measured(minute, publish_success_percent=success))
        return tell_alerts(platform, at(60 * minute))

    return take


@pytest.fixture
def before(piped: Watched) -> Positions:
    return end_positions(piped.archive.settings, [ERRORS])


def told_since(piped: Watched, before: Positions) -> list[tuple[str, str]]:
    """The event ids of this test's alerts, each with the state that it tells of."""
    found = []
    for message in read_to_end(piped.archive.settings, [ERRORS], before):
        said: dict[str, Any] = json.loads(message.value() or b"{}")
        if said["payload"]["error_code"].startswith("HEALTH_ALERT"):
            state = said["payload"]["context"]["state"]
            found.append((said["timestamp"], said["event_id"], state))
    return [(event_id, state) for _, event_id, state in sorted(found)]


def known(piped: Watched) -> list[Alert]:
    with piped.archive.database.transaction() as cursor:
        return alerts(cursor, piped.archive.domain, 100)


def test_an_alert_is_told_when_raised_when_it_rises_and_when_it_is_over(
    piped: Watched, look: Callable[[float, float], int], before: Positions
) -> None:
    assert [look(minute, BAD) for minute in range(7)] == [1, 0, 0, 0, 0, 1, 0]
    assert [look(minute, GOOD) for minute in range(7, 11)] == [0, 0, 1, 0]
    assert [state for _, state in told_since(piped, before)] == ["warning", "critical", "resolved"]
    [alert] = known(piped)
    assert (alert.rule, alert.tier, alert.resolved_at) == (
        "failing_publishing",
        "critical",
        at(540),
    )
    assert look(11, BAD) == 1
    assert len(known(piped)) == 2


@pytest.mark.parametrize(
    ("point", "sent"),
    [
        ("before:alerts.advance", 1),
        ("after:alerts.advance", 1),
        ("before:alerts.tell", 1),
        ("after:alerts.tell", 2),
        ("before:alerts.mark_told", 2),
        ("after:alerts.mark_told", 1),
    ],
)
def test_ended_at_any_effect_an_alert_is_told_as_one_event(
    piped: Watched,
    look: Callable[[float, float], int],
    before: Positions,
    point: str,
    sent: int,
) -> None:
    die_at(point)
    with pytest.raises(Killed):
        look(0, BAD)
    look(0, BAD)
    look(0.5, BAD)
    told = told_since(piped, before)
    assert (len(told), len(set(told))) == (sent, 1)
    [alert] = known(piped)
    assert alert.told == "warning"


def test_a_broker_that_is_away_is_told_later(
    piped: Watched, look: Callable[[float, float], int], before: Positions
) -> None:
    platform = piped.archive.platform
    limits = {"bootstrap_servers": "127.0.0.1:1", "delivery_timeout_seconds": 1}
    kafka = platform.settings.kafka.model_copy(update=limits)
    nowhere = replace(platform, settings=platform.settings.model_copy(update={"kafka": kafka}))
    advance(nowhere, measured(0, publish_success_percent=BAD))
    assert tell_alerts(nowhere, at(0)) == 0
    assert [alert.told for alert in known(piped)] == [None]
    assert look(1, BAD) == 1
    assert [state for _, state in told_since(piped, before)] == ["warning"]


def test_a_silence_keeps_an_alert_from_being_told_until_it_ends(
    piped: Watched, look: Callable[[float, float], int], before: Positions
) -> None:
    platform = piped.archive.platform
    order: Any = {"reason": "deployment", "by": "ada", "now": at(0)}
    silence(platform, "failing_publishing", lasts=3 * MINUTE, **order)
    assert [look(minute, BAD) for minute in range(3)] == [0, 0, 0]
    now = standing(platform, at(120))
    assert [alert.tier for alert in now.alerts] == ["warning"]
    assert [item.target for item in now.silences] == ["failing_publishing"]
    assert look(3, BAD) == 1
    silence(platform, "everything", lasts=60 * MINUTE, **order)
    assert [look(minute, GOOD) for minute in range(4, 8)] == [0, 0, 0, 0]
    lift(platform, "everything", by="ben", now=at(480))
    assert look(8, GOOD) == 1
    assert [state for _, state in told_since(piped, before)] == ["warning", "resolved"]
    with piped.archive.database.transaction() as cursor:
        book = silences(cursor, platform.domain, 10)
    assert [(item.target, item.reason, item.ordered_by, item.lifted_by) for item in book] == [
        ("everything", "deployment", "ada", "ben"),
        ("failing_publishing", "deployment", "ada", None),
    ]


def test_what_came_and_went_in_silence_is_never_told(
    piped: Watched, look: Callable[[float, float], int], before: Positions
) -> None:
    look(-1, GOOD)  # now the scope is known
    order: Any = {"reason": "test", "by": "ada", "now": at(0), "lasts": 5 * MINUTE}
    silence(piped.archive.platform, "events", **order)
    assert [look(minute, BAD if minute < 1 else GOOD) for minute in range(9)] == [0] * 9
    assert told_since(piped, before) == []
    [alert] = known(piped)
    assert alert.resolved_at == at(180)


@pytest.mark.parametrize(("moment", "orders"), [("before", 0), ("after", 1)])
def test_a_silence_is_in_the_book_or_was_not_given(
    piped: Watched, moment: str, orders: int
) -> None:
    platform = piped.archive.platform
    order: Any = {"reason": "why", "by": "ada", "now": at(0), "lasts": MINUTE}
    die_at(f"{moment}:alerts.silence")
    with pytest.raises(Killed):
        silence(platform, "blind", **order)
    with piped.archive.database.transaction() as cursor:
        assert len(active_silences(cursor, platform.domain, at(1))) == orders
    silence(platform, "blind", **order)
    die_at(f"{moment}:alerts.unsilence")
    with pytest.raises(Killed):
        lift(platform, "blind", by="ada", now=at(1))
    with piped.archive.database.transaction() as cursor:
        left = active_silences(cursor, platform.domain, at(1))
    assert len(left) == (0 if moment == "after" else 1)


@pytest.mark.parametrize(
    ("target", "lasts", "reason", "answer"),
    [
        ("late_archiv", MINUTE, "why", "'late_archiv' is no rule"),
        ("late_archive", MINUTE, " ", "reason is empty"),
        ("late_archive", timedelta(), "why", "can't last 0:00:00"),
        ("late_archive", timedelta(days=8), "why", "can't last 8 days"),
    ],
)
def test_a_wrong_silence_is_refused(
    piped: Watched, target: str, lasts: timedelta, reason: str, answer: str
) -> None:
    with pytest.raises(ConfigurationError, match=answer):
        silence(piped.archive.platform, target, reason=reason, by="ada", now=at(0), lasts=lasts)


def test_old_measurements_are_forgotten(piped: Watched) -> None:
    for minute in (0, 100, 121):
        advance(piped.archive.platform, measured(minute, event_queue_depth=1))
    with piped.archive.database.transaction() as cursor:
        kept = measurements(cursor, piped.archive.domain, at(0))
    assert [item.at for item in kept] == [at(6000), at(7260)]

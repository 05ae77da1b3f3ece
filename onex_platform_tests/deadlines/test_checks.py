"""The verdict on the clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from onex_platform.deadlines.checks import CLOCK_AHEAD, no_overdue_without_fact
from onex_platform.engines.kafka.broker_clock import BrokerClock, broker_clock
from onex_platform_tests.support.events import at
from onex_platform_tests.support.watched_clock import MINUTE, Watched

pytestmark = pytest.mark.servers

NOW = at(600)
SECOND = timedelta(seconds=1)


def verdict(watched: Watched, now: datetime = NOW) -> tuple[bool, bool, dict[str, object]]:
    watched.watched_at(now)
    watched.folded_to(now)
    found = no_overdue_without_fact(watched.archive.platform, now)
    return found.verdict.passed, found.is_warning, dict(found.verdict.metadata)


def test_a_row_that_is_just_overdue_is_nobodys_fault_and_one_that_was_forgotten_is(
    watched: Watched,
) -> None:
    watched.active(1, NOW - MINUTE)
    passed, _, numbers = verdict(watched)
    assert passed
    assert numbers["overdue without fact"] == 1
    passed, is_warning, _ = verdict(watched, NOW + timedelta(milliseconds=1))
    assert (passed, is_warning) == (False, False)
    watched.scan(NOW)
    passed, _, numbers = verdict(watched, NOW + timedelta(milliseconds=1))
    assert passed
    assert (numbers["overdue without fact"], numbers["with a fact on its way"]) == (0, 1)


def test_what_is_held_on_purpose_is_a_warning(piped: Watched) -> None:
    piped.active(100, at(0))
    piped.scan(NOW)
    passed, is_warning, numbers = verdict(piped)
    assert (passed, is_warning) == (False, True)
    assert (numbers["held"], numbers["holds"]) == (85, 1)


@pytest.mark.parametrize(("ahead", "passed"), [(8, True), (-8, True), (10, False), (-10, False)])
def test_clocks_that_differ_by_much_of_the_grace_are_a_warning(
    watched: Watched, clock: BrokerClock, ahead: float, passed: bool
) -> None:
    assert CLOCK_AHEAD not in verdict(watched)[2]
    clock.note(100, 100 + ahead, 100)
    found = no_overdue_without_fact(watched.archive.platform, NOW)
    assert (found.verdict.passed, found.is_warning) == (passed, not passed)
    assert found.verdict.metadata[CLOCK_AHEAD] == pytest.approx(ahead, abs=0.01)
    if not passed:
        assert ("late" if ahead > 0 else "early") in found.verdict.description


@pytest.fixture
def clock(watched: Watched) -> Iterator[BrokerClock]:
    """As in a process that has sent nothing yet."""
    broker_clock.cache_clear()
    yield broker_clock(watched.archive.settings.kafka.bootstrap_servers)
    broker_clock.cache_clear()


def test_within_the_grace_nothing_is_missed(watched: Watched) -> None:
    watched.active(5, NOW - MINUTE)
    watched.watched_at(NOW - MINUTE)
    watched.folded_to(NOW)
    found = no_overdue_without_fact(watched.archive.platform, NOW).verdict
    assert found.passed
    assert (found.metadata["within grace"], found.metadata["overdue without fact"]) == (5, 0)
    assert found.metadata["grace until"] == at(690).isoformat()
    assert found.metadata["last look"] == (NOW - MINUTE).isoformat()


@pytest.mark.parametrize(
    ("last_look", "complaint"),
    [
        (NOW - 90 * SECOND, None),  # the gap and the time by which a fact may be late
        (NOW - 91 * SECOND, f"Nobody has looked at the deadlines since {NOW - 91 * SECOND}; "),
        (NOW - 600 * MINUTE, f"Nobody has looked at the deadlines since {NOW - 600 * MINUTE}; "),
        (None, "Nobody has ever looked at the deadlines; "),
    ],
)
def test_overdue_rows_that_nobody_looks_at_are_missed_although_a_look_would_begin_with_a_grace(
    watched: Watched, last_look: datetime | None, complaint: str | None
) -> None:
    watched.active(5, NOW - 100 * SECOND)
    if last_look is not None:
        watched.watched_at(last_look)
    watched.folded_to(NOW)
    found = no_overdue_without_fact(watched.archive.platform, NOW)
    assert (found.verdict.passed, found.is_warning) == (complaint is None, False)
    if complaint is not None:
        assert found.verdict.description.startswith(f"{complaint}5 rows are overdue")


def test_nobody_needs_to_look_if_nothing_is_overdue(watched: Watched) -> None:
    watched.active(5, NOW)
    watched.watched_at(NOW - 600 * MINUTE)
    watched.folded_to(NOW)
    assert no_overdue_without_fact(watched.archive.platform, NOW).verdict.passed


def test_a_watch_that_begins_anew_again_and_again_is_a_warning(watched: Watched) -> None:
    watched.active(5, NOW - 180 * SECOND)  # the gap, the grace and the time to be late
    watched.watched_at(NOW, since=NOW - SECOND)
    watched.folded_to(NOW)
    assert no_overdue_without_fact(watched.archive.platform, NOW).verdict.passed
    watched.watched_at(NOW + SECOND, since=NOW)
    found = no_overdue_without_fact(watched.archive.platform, NOW + SECOND)
    assert (found.verdict.passed, found.is_warning) == (False, True)
    assert f"Nobody is judged before {NOW + 90 * SECOND}" in found.verdict.description

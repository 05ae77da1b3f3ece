"""Mass silence is held at the limit, told once, drained slowly, and believed in the end."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from onex_platform.base.errors import ConfigurationError, InfraTimeoutError
from onex_platform.base.settings import Settings
from onex_platform.deadlines.scan import is_due, scan
from onex_platform.deadlines.scan_state import flapping, holds, override_guard, overrides
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, produce_all, read_to_end
from onex_platform.topics import alarms, signals
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.stacks import halted_broker
from onex_platform_tests.support.watched_clock import MINUTE, Watched, open_watched, with_deadlines

pytestmark = pytest.mark.servers

ERRORS = load_catalogue().for_kind(EnumEventKind.ERROR_DETECTED).topic
NOW = at(600)
TEN = timedelta(minutes=10)


def override(watched: Watched, **changes: object) -> None:
    order = {"reason": "the site burnt down", "by": "ada", "now": NOW, "lasts": TEN} | changes
    override_guard(watched.archive, TENANT, **order)  # type: ignore[arg-type]


def test_total_silence_holds_at_the_limit_drains_and_is_believed_in_the_end(
    piped: Watched,
) -> None:
    before = end_positions(piped.archive.settings, [ERRORS])
    piped.active(100, at(0))
    first = piped.scan(NOW)
    assert (first.expired, first.held, first.alerts) == (15, 85, 1)
    assert piped.holds() == [(TENANT, 15, 85, None)]
    assert [piped.scan(NOW + n * MINUTE / 2).expired for n in (1, 2, 3, 10)] == [0, 1, 0, 4]
    almost = piped.scan(NOW + timedelta(hours=1) - timedelta(microseconds=1))
    assert (almost.expired, almost.held) == (54, 26)
    piped.fold(NOW + timedelta(hours=1))
    assert piped.states() == {"active": 26, "liveness_expired": 74}
    assert piped.scan(NOW + timedelta(hours=1)).expired == 26
    assert piped.holds() == [(TENANT, 15, 0, "maximum")]
    piped.fold(NOW + timedelta(hours=1, seconds=1))
    assert piped.states() == {"liveness_expired": 100}

    [record] = read_to_end(piped.archive.settings, [ERRORS], before)  # once, and not per scan
    told = json.loads(record.value())["payload"]
    assert told["error_code"] == "EXPIRY_HOLD"
    assert told["context"] == {
        "tenant": TENANT,
        "since": NOW.isoformat(),
        "fleet": 100,
        "limit": 15,
        "held": 85,
    }


def test_the_oldest_deadlines_expire_first(piped: Watched) -> None:
    piped.active(90, at(100))
    piped.active(10, at(0), first=90)
    piped.scan(NOW)
    deadlines = sorted(fact.deadline for fact in piped.waiting() if fact.deadline)
    assert sum(deadline < at(1) for deadline in deadlines) == 10
    assert deadlines[-1] == at(100) + timedelta(microseconds=4)


def test_a_hold_ends_when_the_silence_does(piped: Watched) -> None:
    piped.active(100, at(0))
    piped.scan(NOW)
    piped.beat(80, at(9000))
    assert piped.scan(NOW + MINUTE).held == 4
    assert piped.holds() == [(TENANT, 15, 4, None)]
    piped.beat(84, at(9000))
    assert piped.scan(NOW + 2 * MINUTE).held == 0
    assert piped.holds() == [(TENANT, 15, 0, "silence_over")]


def test_a_hold_ends_when_what_is_left_fits_the_limit_again(piped: Watched) -> None:
    piped.active(100, at(0))
    piped.scan(NOW)
    piped.beat(72, at(90_000))
    # 15 at once, then one per minute: after the window, those of the first minute are forgotten.
    assert piped.scan(NOW + 9 * MINUTE).held == 4
    assert piped.scan(NOW + 10 * MINUTE).held == 3
    assert piped.holds() == [(TENANT, 15, 3, "silence_over")]
    assert piped.scan(NOW + 11 * MINUTE).expired == 3
    assert len(piped.holds()) == 1


def test_a_scan_that_did_not_see_everything_ends_no_hold(pipeline_settings: Settings) -> None:
    with open_watched(pipeline_settings) as watched:
        watched.active(100, at(0))
        assert watched.scan(NOW).held == 85
    in_steps = with_deadlines(pipeline_settings, batch_rows=10, scan_seconds=1e-9)
    with open_watched(in_steps) as watched:
        # The first of them see only nodes that have their facts, and hold nobody back.
        for _ in range(10):
            assert not watched.scan(NOW).complete
            assert watched.holds() == [(TENANT, 15, 85, None)]
        watched.scan(NOW)  # the rest, but not from the beginning on
        assert watched.holds() == [(TENANT, 15, 85, None)]


@pytest.mark.parametrize("dead", [1, 3])
def test_in_a_fleet_of_three_the_dead_expire(watched: Watched, dead: int) -> None:
    watched.active(dead, at(0))
    watched.active(3 - dead, at(9000), first=3)
    assert watched.scan(NOW).expired == dead
    assert watched.holds() == []


def test_one_tenants_silence_is_not_anothers(piped: Watched) -> None:
    piped.active(100, at(0), tenant="silent")
    piped.active(100, at(9000), tenant="lively")
    piped.active(2, at(100), tenant="lively", first=100)
    account = piped.scan(NOW)
    assert (account.expired, account.held) == (15 + 2, 85)
    assert [tenant for tenant, *_ in piped.holds()] == ["silent"]


def test_the_limit_is_for_a_window_and_does_not_shrink_with_the_fleet(piped: Watched) -> None:
    piped.active(80, at(90_000), first=100)
    piped.active(10, at(0))
    assert piped.scan(NOW).expired == 10
    piped.fold(at(601))
    piped.active(10, at(0), first=10)
    # 90 are active and 10 are gone: of 100, five more may go.
    assert piped.scan(NOW + MINUTE).expired == 5
    assert piped.holds() == [(TENANT, 15, 5, None)]
    piped.fold(at(661))
    piped.active(2, at(0), first=20)
    late = piped.scan(NOW + 12 * MINUTE)
    assert (late.expired, late.held) == (7, 0)


@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_the_limit_is_exact_however_the_rows_are_read(
    pipeline_settings: Settings, batch_rows: int
) -> None:
    with open_watched(with_deadlines(pipeline_settings, batch_rows=batch_rows)) as watched:
        watched.active(800, at(90_000), first=1000)
        watched.active(200, at(0))
        account = watched.scan(NOW)
        assert (account.expired, account.held) == (150, 50)
        assert watched.holds() == [(TENANT, 150, 50, None)]


def test_another_process_goes_on_with_a_hold_where_the_last_one_stopped(
    piped: Watched, pipeline_settings: Settings
) -> None:
    piped.active(100, at(0))
    piped.scan(NOW)
    piped.scan(NOW + 3 * MINUTE)
    with open_watched(pipeline_settings) as other:
        assert other.scan(NOW + 4 * MINUTE).expired == 1
        assert other.scan(NOW + 4 * MINUTE).expired == 0


def test_an_override_lets_everybody_go_for_its_time_and_stays_in_the_book(piped: Watched) -> None:
    piped.active(100, at(0))
    piped.scan(NOW)
    override(piped, now=NOW + MINUTE)
    assert piped.scan(NOW + 2 * MINUTE).expired == 85
    assert piped.holds() == [(TENANT, 15, 0, "override")]
    piped.fold(NOW + 3 * MINUTE)
    # Neither does what was ordered count against the limit, nor does the order last for ever.
    piped.active(100, at(90_000), first=1000)
    piped.active(1, at(0), first=100)
    assert piped.scan(NOW + 12 * MINUTE).expired == 1
    piped.active(100, at(0), first=200)
    late = piped.scan(NOW + 13 * MINUTE)
    assert (late.expired, late.held) == (29, 71)
    [order] = overrides(piped.archive.platform)
    assert order[1:] == (TENANT, "the site burnt down", "ada", NOW + MINUTE, NOW + 11 * MINUTE)
    assert overrides(piped.archive.platform, in_force_at=NOW + 11 * MINUTE) == []


@pytest.mark.parametrize("wrong", [{"reason": " "}, {"by": ""}, {"lasts": timedelta()}])
def test_an_override_without_who_why_or_until_is_refused(
    watched: Watched, wrong: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError):
        override(watched, **wrong)
    assert overrides(watched.archive.platform) == []


def test_an_override_of_one_tenant_leaves_the_others_guarded(piped: Watched) -> None:
    piped.active(100, at(0))
    piped.active(100, at(0), tenant="other")
    override(piped)
    assert piped.scan(NOW).expired == 100 + 15


def test_a_hold_that_could_not_be_told_is_told_by_a_later_scan(
    piped: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InfraTimeoutError("The broker sleeps.")

    before = end_positions(piped.archive.settings, [ERRORS])
    with monkeypatch.context() as patched:
        patched.setattr(alarms, "raise_alarms", fail)
        piped.active(100, at(0))
        assert piped.scan(NOW).alerts == 0
    piped.watched_at(NOW + MINUTE)
    piped.folded_to(NOW + MINUTE)
    assert is_due(piped.archive.platform, NOW + MINUTE)
    assert scan(piped.archive.platform, NOW + MINUTE).alerts == 1
    assert len(list(read_to_end(piped.archive.settings, [ERRORS], before))) == 1
    [hold] = holds(piped.archive.platform)
    assert hold.alerted_at == NOW + MINUTE


def test_a_broker_that_leaves_before_the_alert_is_heard_does_not_keep_the_scan(
    piped: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = piped.archive.settings
    assert settings.kafka.delivery_timeout_seconds > 60
    before = end_positions(settings, [ERRORS])
    piped.active(100, at(0))
    with ExitStack() as halted, monkeypatch.context() as patched:

        def produce(*sent: Any) -> int:
            halted.enter_context(halted_broker(settings))  # the producer is open by now
            return produce_all(*sent)

        patched.setattr(signals, "produce_all", produce)
        began = time.monotonic()
        account = piped.scan(NOW)
        assert (account.expired, account.held, account.alerts) == (15, 85, 0)
        assert time.monotonic() - began < 60
    piped.watched_at(NOW + MINUTE)
    piped.folded_to(NOW + MINUTE)
    assert scan(piped.archive.platform, NOW + MINUTE).alerts == 1
    [hold] = holds(piped.archive.platform)
    told = read_to_end(settings, [ERRORS], before)  # the first may have been written after all
    assert {message.key() for message in told} == {str(hold.hold_id).encode()}


def test_a_scan_is_due_when_it_may_change_something(piped: Watched) -> None:
    def due(seconds: float) -> bool:
        piped.watched_at(at(seconds))
        piped.folded_to(at(seconds))
        return is_due(piped.archive.platform, at(seconds))

    piped.active(100, at(650))
    assert not due(600)
    assert due(651)
    piped.watched_at(at(651))
    assert scan(piped.archive.platform, at(651)).held == 85
    assert not due(652)  # nothing has passed since
    piped.active(1, at(652), first=200)
    assert due(653)
    assert due(662)  # and every now and then, as long as something is held


def test_nodes_that_expire_again_and_again_are_flagged_and_old_expiries_forgotten(
    watched: Watched,
) -> None:
    watched.active(2, at(0))
    for silence in range(3):
        # One of the two comes back each time, and falls silent again.
        watched.beat(1, at(600 * silence + 100))
        watched.scan(at(600 * silence + 200))
    [node] = flapping(watched.archive.platform, at(2000))
    assert (node.tenant, node.expiries, node.last_at) == (TENANT, 3, at(1400))
    assert flapping(watched.archive.platform, at(1400) + timedelta(days=1)) == []
    watched.scan(at(1) + timedelta(days=2))
    assert watched.select("SELECT * FROM declared_expiries") == []

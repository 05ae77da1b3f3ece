"""Killed before or after any effect and started again, a scan declares everything once."""

from __future__ import annotations

import json
import signal
from datetime import timedelta

import pytest

from onex_platform.base.settings import address_variables
from onex_platform.deadlines.scan import scan
from onex_platform.deadlines.scan_state import holds, overrides
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.watched_clock import Watched

pytestmark = pytest.mark.servers

ERRORS = load_catalogue().for_kind(EnumEventKind.ERROR_DETECTED).topic
NOW = at(600)

# A process that dies where it was armed to.
_CHILD = """
import sys
from datetime import datetime, timedelta
from onex_platform.base import faults
from onex_platform.deadlines.scan_state import override_guard
from onex_platform.deadlines.scan import scan
from onex_platform_tests.support.archives import open_archive
from onex_platform.base.settings import load_settings
point, now = sys.argv[1], datetime.fromisoformat(sys.argv[2])
faults.arm(point)
with open_archive(load_settings()) as archive:
    if point.endswith("override"):
        lasts = timedelta(minutes=1)
        override_guard(archive.platform, "omnibase", reason="why", by="ada", now=now, lasts=lasts)
    else:
        scan(archive.platform, now)
"""


def killed_at(watched: Watched, point: str, **variables: str) -> None:
    settings = watched.archive.settings
    usual = address_variables(settings) | {
        "ONEX_PAGES_URL": settings.pages.url or "",
        "ONEX_DEADLINES_BATCH_ROWS": "10",
    }
    ended = run_program(_CHILD, point, NOW.isoformat(), variables=usual | variables)
    assert ended == -signal.SIGKILL


# In the order in which they happen, with the facts that are there then. Where one effect follows
# another directly, after the first is before the second.
@pytest.mark.parametrize(
    ("point", "facts"),
    [
        ("before:deadlines.watch", 0),
        ("after:deadlines.watch", 0),
        ("before:deadlines.declare", 0),
        ("after:deadlines.declare", 10),
        ("before:deadlines.close", 18),
        ("after:deadlines.close", 18),
        ("before:expiry_hold.alert", 18),
        ("after:expiry_hold.alert", 18),
        ("after:deadlines.mark_alert", 18),
    ],
)
def test_a_scan_killed_at_any_effect_is_completed_by_the_next(
    piped: Watched, point: str, facts: int
) -> None:
    before = end_positions(piped.archive.settings, [ERRORS])
    piped.active(100, at(0))
    piped.awaiting_ack(3, at(0), first=100)
    piped.watched_at(NOW)
    piped.folded_to(NOW)
    killed_at(piped, point)
    assert len(piped.waiting()) == facts
    account = scan(piped.archive.platform, NOW)
    assert account.declared == 18 - facts
    assert len({fact.event_id for fact in piped.waiting()}) == len(piped.waiting()) == 18
    assert piped.holds() == [(TENANT, 15, 85, None)]
    [hold] = holds(piped.archive.platform)
    assert hold.alerted_at == NOW
    alarms = read_to_end(piped.archive.settings, [ERRORS], before)
    assert len({json.loads(alarm.value())["event_id"] for alarm in alarms}) == 1


@pytest.mark.parametrize(("moment", "declared"), [("before", 1), ("after", 0)])
def test_a_look_in_vain_is_noted_or_was_none(piped: Watched, moment: str, declared: int) -> None:
    piped.active(1, at(0))
    piped.watched_at(NOW - timedelta(seconds=1))
    piped.folded_to(at(300))
    nowhere = {"ONEX_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    killed_at(piped, f"{moment}:deadlines.in_vain", **nowhere)
    piped.folded_to(NOW)
    assert scan(piped.archive.platform, NOW).declared == declared


@pytest.mark.parametrize(("moment", "orders"), [("before", 0), ("after", 1)])
def test_an_order_is_in_the_book_or_was_not_given(piped: Watched, moment: str, orders: int) -> None:
    piped.active(1, at(9000))
    killed_at(piped, f"{moment}:deadlines.override")
    assert len(overrides(piped.archive.platform)) == orders

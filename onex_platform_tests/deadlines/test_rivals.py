"""Scanners that get in each other's way: at once, and beside one that is stuck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.deadlines.expiry_guard import ExpiryGuard, note_expiries
from onex_platform.deadlines.scan import ScanAccount, scan
from onex_platform.deadlines.timeout_facts import undeclared
from onex_platform.domain.events import EnumEventKind
from onex_platform.projections import overdue
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.forked_programs import start_program
from onex_platform_tests.support.waiting import let_clock_pass
from onex_platform_tests.support.watched_clock import MINUTE, Watched, open_watched, with_deadlines

pytestmark = pytest.mark.servers

NOW = at(600)

# A scanner that is stopped in its first call of the named function.
_STUCK = """
import importlib, os, signal, sys
from datetime import datetime
from onex_platform_tests.support.archives import open_archive
from onex_platform.base.settings import load_settings
scanning = importlib.import_module("onex_platform.deadlines.scan")
name, now = sys.argv[1], datetime.fromisoformat(sys.argv[2])
work, stopped = getattr(scanning, name), []
def stop_once(*arguments):
    done = work(*arguments)
    if not stopped:
        stopped.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return done
setattr(scanning, name, stop_once)
with open_archive(load_settings()) as archive:
    scanning.scan(archive.platform, now)
"""


@contextmanager
def stuck_scanner(settings: Settings, function: str) -> Iterator[psutil.Process]:
    limits = settings.deadlines
    variables = address_variables(settings) | {
        "ONEX_PAGES_URL": settings.pages.url or "",
        "ONEX_DEADLINES_BATCH_ROWS": str(limits.batch_rows),
        "ONEX_DEADLINES_TURN_SECONDS": str(limits.turn_seconds),
    }
    child = start_program(_STUCK, function, NOW.isoformat(), variables=variables)
    process = psutil.Process(child.pid)
    try:
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 60)
        yield process
    finally:
        child.kill()


# Inside a batch, after the last one, and before its turn, with the watch in its hands.
@pytest.mark.parametrize("where", ["submit", "_remember_place", "keep_watch"])
def test_a_scanner_that_is_stuck_delays_the_others_by_no_more_than_its_turn(
    pipeline_settings: Settings, where: str
) -> None:
    settings = with_deadlines(pipeline_settings, batch_rows=10, turn_seconds=3)
    with open_watched(settings) as watched:
        watched.active(100, at(0))
        watched.awaiting_ack(30, at(0), first=100)
        watched.watched_at(NOW)
        watched.folded_to(NOW)
        with stuck_scanner(settings, where) as stuck:
            if where != "keep_watch":
                first = scan(watched.archive.platform, NOW)
                assert (first.stood_back, first.declared, first.complete) == (True, 0, False)
            # Whoever waited for a lock would be refused it after this time, and no further.
            limit = settings.postgres.lock_timeout_seconds
            assert wait_until(lambda: not scan(watched.archive.platform, NOW).stood_back, limit)
            assert len(watched.waiting()) == 15 + 30
            stuck.resume()
            stuck.wait(60)
        # What it goes on to do changes nothing any more.
        assert len({fact.event_id for fact in watched.waiting()}) == len(watched.waiting()) == 45
        assert watched.holds() == [(TENANT, 15, 85, None)]


def test_two_scanners_truly_at_once_declare_nothing_twice_and_keep_to_the_limit(
    pipeline_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both pass a stuck one, and read every page at the same moment."""
    settings = with_deadlines(pipeline_settings, batch_rows=50, turn_seconds=2)
    page_by_page = threading.Barrier(2, timeout=60)
    read_page = overdue.read_page

    def together(*arguments: Any) -> overdue.OverduePage:
        page_by_page.wait()
        return read_page(*arguments)

    def scanned(_: int) -> ScanAccount:
        with open_watched(settings) as own:
            return scan(own.archive.platform, NOW)

    with open_watched(settings) as watched:
        watched.active(1000, at(0))
        watched.awaiting_ack(1000, at(0), first=2000)
        watched.watched_at(NOW)
        watched.folded_to(NOW)
        with stuck_scanner(settings, "_place"), monkeypatch.context() as patched:
            let_clock_pass(datetime.now(UTC) + timedelta(seconds=settings.deadlines.turn_seconds))
            patched.setattr(overdue, "read_page", together)
            with ThreadPoolExecutor(2) as pool:
                accounts = list(pool.map(scanned, range(2)))
        assert not any(account.stood_back for account in accounts)
        assert sum(account.ack_timed_out for account in accounts) == 1000
        assert sum(account.expired for account in accounts) == 150
        assert len({fact.event_id for fact in watched.waiting()}) == len(watched.waiting()) == 1150
        assert watched.holds() == [(TENANT, 150, 850, None)]


def test_what_another_scan_declares_meanwhile_counts_against_the_limit(watched: Watched) -> None:
    watched.active(100, at(0))
    domain, settings = watched.archive.domain, watched.archive.settings
    ours, theirs = (ExpiryGuard(domain, settings, NOW) for _ in range(2))

    def declared(guard: ExpiryGuard, first: int, last: int) -> int:
        with watched.store.transaction() as cursor:
            page = overdue.read_page(
                *(cursor, domain, EnumEventKind.LIVENESS_EXPIRED, NOW),
                *(overdue.BEGINNING, last, MINUTE),
            )
            admitted = guard.admit(cursor, undeclared(cursor, domain, page.passed[first:], NOW))
            note_expiries(cursor, admitted, NOW)
            return len(admitted)

    assert declared(ours, 0, 5) == 5
    assert declared(theirs, 5, 13) == 8
    assert declared(ours, 13, 100) == 2


def test_what_another_scan_declared_since_it_was_looked_up_is_not_held(watched: Watched) -> None:
    watched.active(100, at(0))
    domain, settings = watched.archive.domain, watched.archive.settings
    ours, theirs = (ExpiryGuard(domain, settings, NOW) for _ in range(2))
    with watched.store.transaction() as cursor:
        page = overdue.read_page(
            *(cursor, domain, EnumEventKind.LIVENESS_EXPIRED, NOW),
            *(overdue.BEGINNING, 100, MINUTE),
        )
        facts = undeclared(cursor, domain, page.passed, NOW)
        with watched.store.transaction() as other:
            note_expiries(other, theirs.admit(other, facts), NOW)
        assert ours.admit(cursor, facts) == []
    assert ours.held == theirs.held == 85

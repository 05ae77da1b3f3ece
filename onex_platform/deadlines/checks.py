"""Verdicts on the clock: is anybody overdue without a fact that says so, and is that on purpose?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from onex_platform.base.settings import Settings
from onex_platform.checks import Number, Verdict
from onex_platform.context import PlatformContext
from onex_platform.deadlines.scan import ScanAccount, scan
from onex_platform.deadlines.scan_state import flapping, holds
from onex_platform.engines.kafka.broker_clock import broker_clock

CLOCK_AHEAD = "broker clock ahead by seconds"
_SKEW_OF_GRACE = 0.1
_LEAST_SKEW_SECONDS = 1.0


class WatchVerdict(NamedTuple):
    """A verdict; what was decided on purpose is a warning, what was missed an error."""

    verdict: Verdict
    is_warning: bool


def no_overdue_without_fact(platform: PlatformContext, now: datetime) -> WatchVerdict:
    """Whether every deadline that passed a while ago has become a fact, or is held on purpose."""
    found = scan(platform, now, dry_run=True)
    open_holds = holds(platform, "open")
    ahead = clock_ahead_seconds(platform.settings)
    numbers = account_numbers(found) | {
        "overdue without fact": found.declared,
        "holds": len(open_holds),
        "flapping": len(flapping(platform, now)),
        **({} if ahead is None else {CLOCK_AHEAD: ahead}),
    }
    if found.judged_before is None:
        return WatchVerdict(Verdict(True, "Another registry declares timeouts.", numbers), False)
    if complaint := _missed(found, platform.settings, now):
        return WatchVerdict(Verdict(False, complaint, numbers), False)
    if complaint := _put_off(found, platform.settings, now):
        return WatchVerdict(Verdict(False, complaint, numbers), True)
    if open_holds:
        named = ", ".join(hold.tenant for hold in open_holds[:10])
        sentence = f"{found.held} overdue nodes are held back, of {named}."
        return WatchVerdict(Verdict(False, sentence, numbers), True)
    if ahead is not None and abs(ahead) > most_skew_seconds(platform.settings):
        return WatchVerdict(Verdict(False, _skewed(ahead), numbers), True)
    sentence = f"{found.overdue} rows are overdue; none of them waits without reason."
    return WatchVerdict(Verdict(True, sentence, numbers), False)


def _missed(found: ScanAccount, settings: Settings, now: datetime) -> str | None:
    """What is wrong if rows are overdue that nobody has judged in time."""
    if found.oldest is None or found.judged_before is None:
        return None
    late = timedelta(seconds=settings.deadlines.late_seconds)
    if found.grace_until is None:
        if found.judged_before - found.oldest <= late:
            return None
        return f"{found.declared} rows are overdue without a fact, the first since {found.oldest}."
    # Whoever looks now would begin with a grace; that excuses nobody who should have looked.
    gap = timedelta(seconds=settings.deadlines.gap_seconds)
    if now - (found.watched_at or found.oldest) <= gap + late:
        return None
    never = "Nobody has ever looked at the deadlines"
    since = f"Nobody has looked at the deadlines since {found.watched_at}"
    return f"{since if found.watched_at else never}; {_overdue_in_grace(found)}."


def _put_off(found: ScanAccount, settings: Settings, now: datetime) -> str | None:
    """A grace after a long pause; or one after another, because the watch breaks off each time."""
    chosen = settings.deadlines
    usual = timedelta(seconds=chosen.gap_seconds + chosen.grace_seconds + chosen.late_seconds)
    if found.grace_until is None or found.oldest is None or now - found.oldest <= usual:
        return None
    return f"Nobody is judged before {found.grace_until}; {_overdue_in_grace(found)}."


def _overdue_in_grace(found: ScanAccount) -> str:
    return f"{found.in_grace} rows are overdue, the first since {found.oldest}"


def clock_ahead_seconds(settings: Settings) -> float | None:
    """By how much the broker's clock is ahead of ours, as far as this process has noticed."""
    return broker_clock(settings.kafka.bootstrap_servers).ahead_seconds


def most_skew_seconds(settings: Settings) -> float:
    """How far the clocks may be apart: little beside the time that a silent node is granted."""
    return max(_SKEW_OF_GRACE * settings.deadlines.grace_seconds, _LEAST_SKEW_SECONDS)


def _skewed(ahead: float) -> str:
    where, so = ("ahead of", "late") if ahead > 0 else ("behind", "early")
    return (
        f"The broker's clock is {abs(ahead):.1f} s {where} ours: silent nodes expire too {so}. "
        "Set the machines' clocks right."
    )


def account_numbers(account: ScanAccount) -> dict[str, Number]:
    """A scan as metadata."""
    judged, looked, grace = account.judged_before, account.watched_at, account.grace_until
    return {
        "overdue": account.overdue,
        "ack timed out": account.ack_timed_out,
        "liveness expired": account.expired,
        "with a fact on its way": account.waiting,
        "request not published": account.unpublished,
        "held": account.held,
        "within grace": account.in_grace,
        "complete": str(account.complete),
        **({"stood back": "another scan is at work"} if account.stood_back else {}),
        "judged before": "never" if judged is None else judged.isoformat(),
        "last look": "never" if looked is None else looked.isoformat(),
        **({} if grace is None else {"grace until": grace.isoformat()}),
    }

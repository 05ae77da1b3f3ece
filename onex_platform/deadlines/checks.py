"""Verdicts on the clock: is anybody overdue without a fact that says so, and is that on purpose?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from onex_platform.deadlines.records import flapping, holds
from onex_platform.deadlines.scan import ScanAccount, scan
from onex_platform.engines.broker_clock import broker_clock
from onex_platform.pages.archive import PageArchive
from onex_platform.pages.checks import Number, Verdict
from onex_platform.settings import Settings

CLOCK_AHEAD = "broker's clock ahead by seconds"
_SKEW_OF_GRACE = 0.1
_LEAST_SKEW_SECONDS = 1.0


class WatchVerdict(NamedTuple):
    """A verdict; what was decided on purpose is a warning, what was missed an error."""

    verdict: Verdict
    is_warning: bool


def no_overdue_without_fact(archive: PageArchive, now: datetime) -> WatchVerdict:
    """Whether every deadline that passed a while ago has become a fact, or is held on purpose."""
    found = scan(archive, now, dry_run=True)
    open_holds = holds(archive, "open")
    ahead = clock_ahead_seconds(archive.settings)
    numbers = account_numbers(found) | {
        "overdue without fact": found.declared,
        "holds": len(open_holds),
        "flapping": len(flapping(archive, now)),
        **({} if ahead is None else {CLOCK_AHEAD: ahead}),
    }
    if found.judged_before is None:
        return WatchVerdict(Verdict(True, "Another registry declares timeouts.", numbers), False)
    patience = timedelta(seconds=archive.settings.deadlines.late_seconds)
    if found.oldest is not None and found.judged_before - found.oldest > patience:
        sentence = (
            f"{found.declared} rows are overdue without a fact, the first since {found.oldest}."
        )
        return WatchVerdict(Verdict(False, sentence, numbers), False)
    if open_holds:
        named = ", ".join(hold.tenant for hold in open_holds[:10])
        sentence = f"{found.held} overdue nodes are held back, of {named}."
        return WatchVerdict(Verdict(False, sentence, numbers), True)
    if ahead is not None and abs(ahead) > most_skew_seconds(archive.settings):
        return WatchVerdict(Verdict(False, _skewed(ahead), numbers), True)
    sentence = f"{found.overdue} rows are overdue; none of them waits without reason."
    return WatchVerdict(Verdict(True, sentence, numbers), False)


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
    judged, grace = account.judged_before, account.grace_until
    return {
        "overdue": account.overdue,
        "ack timed out": account.ack_timed_out,
        "liveness expired": account.expired,
        "with a fact on its way": account.waiting,
        "request not published": account.unpublished,
        "held": account.held,
        "within grace": account.in_grace,
        "complete": str(account.complete),
        "judged before": "never" if judged is None else judged.isoformat(),
        **({} if grace is None else {"grace until": grace.isoformat()}),
    }

"""What may be judged: nobody is declared dead on the evidence of our own delay.

A deadline is compared with the moment up to which the input is folded, never with the clock alone.
And whoever begins to watch, after a start, after a gap in which nobody looked, or after the broker
could not be asked, waits for a grace before the first verdict: nodes that could not reach it keep
their heartbeats, and get the time to send them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from onex_platform.base.settings import Settings
from onex_platform.capture.read.kafka_relay import captured_until
from onex_platform.context import PlatformContext
from onex_platform.domain.deadlines import is_past
from onex_platform.domain.order import moment_of
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.projections.backlog import measure_backlog
from onex_platform.projections.fold.refold import folded_to

# So soon after a fold, its own position is evidence enough, and the broker need not be asked.
_FRESH = timedelta(seconds=5)


class Watch(NamedTuple):
    """Since when the deadlines are watched without a gap, and when judging begins."""

    resumed_at: datetime
    grace_until: datetime
    watched_at: datetime | None  # the last look; None: the first one is still to come

    def may_judge(self, now: datetime) -> bool:
        return is_past(self.grace_until, now)


def evident_until(platform: PlatformContext, now: datetime) -> datetime:
    """The moment before which everything that nodes sent is in the rows, `now` at the latest.

    That is where the fold stands. If it stands because nothing is left to fold, time has passed all
    the same: then it is now, less the time in which a record may still be on its way. What a
    snapshotter captured and has not relayed is not in the rows either. Raises `InfraError` if the
    broker can't be asked: then there is no evidence at all.
    """
    folded = moment_of(folded_to(platform.database, platform.domain))
    if now - folded > _FRESH and not measure_backlog(platform):
        folded = max(folded, now - timedelta(seconds=platform.settings.pages.settle_seconds))
    with platform.database.transaction() as cursor:
        captured = captured_until(cursor, folded)
    return min(now, folded, captured or now)


def keep_watch(cursor: Cursor, domain: str, settings: Settings, now: datetime) -> Watch:
    """Note that the deadlines were looked at, evidence at hand; after a gap the watch is new."""
    row = fetch_one(
        cursor,
        "INSERT INTO deadline_watches AS watch (domain, watched_at, resumed_at)"
        " VALUES (%(domain)s, %(now)s, %(now)s)"
        " ON CONFLICT (domain) DO UPDATE SET"
        "  watched_at = greatest(watch.watched_at, excluded.watched_at),"
        "  resumed_at = CASE WHEN excluded.watched_at - watch.watched_at > %(gap)s"
        "    OR excluded.watched_at >= watch.in_vain_at AND watch.in_vain_at > watch.watched_at"
        "   THEN excluded.resumed_at ELSE watch.resumed_at END"
        " RETURNING resumed_at, watched_at",
        {"domain": domain, "now": now, "gap": _gap(settings)},
    )
    return _watch(row.resumed_at, settings, row.watched_at)


def look_in_vain(cursor: Cursor, domain: str, now: datetime) -> None:
    """Note that the evidence could not be had: the next watch is a new one.

    Asking in vain takes its time. Whoever looked meanwhile may have had a fresh fold's word only.
    """
    cursor.execute(
        "UPDATE deadline_watches SET in_vain_at ="
        " greatest(in_vain_at, %s, watched_at + interval '1 microsecond') WHERE domain = %s",
        [now, domain],
    )


def look_at_watch(cursor: Cursor, domain: str, settings: Settings, now: datetime) -> Watch:
    """What `keep_watch` would say, without being noted."""
    query = "SELECT watched_at, resumed_at, in_vain_at FROM deadline_watches WHERE domain = %s"
    row = cursor.execute(query, [domain]).fetchone()
    if row is None:
        return _watch(now, settings, None)
    was_in_vain = row.in_vain_at is not None and now >= row.in_vain_at > row.watched_at
    is_new = was_in_vain or now - row.watched_at > _gap(settings)
    return _watch(now if is_new else row.resumed_at, settings, row.watched_at)


def _gap(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.deadlines.gap_seconds)


def _watch(resumed_at: datetime, settings: Settings, watched_at: datetime | None) -> Watch:
    grace = timedelta(seconds=settings.deadlines.grace_seconds)
    return Watch(resumed_at, resumed_at + grace, watched_at)

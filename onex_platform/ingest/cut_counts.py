"""Counts of cuts: for those who compare what was read with what became of it, and by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from onex_platform.domain.order import POSITIONS_PER_MILLISECOND, position_at
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.log.page_log import PageLog

_HOUR = timedelta(hours=1)
_HOUR_WIDTH = _HOUR // timedelta(milliseconds=1) * POSITIONS_PER_MILLISECOND
_WEEK = timedelta(weeks=1)

# Cuts in which nothing was read leave no account: there may be time between two of them, but none
# may begin before the one before it has ended.
_COUNT_CUTS = """
    SELECT
        coalesce(sum(read), 0)::bigint AS read,
        coalesce(sum(archived), 0)::bigint AS archived,
        coalesce(sum(parked), 0)::bigint AS parked,
        coalesce(sum(echoes), 0)::bigint AS echoes,
        count(*) AS cuts,
        count(*) FILTER (WHERE read <> archived + parked + echoes) AS unbalanced,
        count(*) FILTER (WHERE overlapping) AS overlapping
    FROM (
        SELECT
            *,
            closed_before < lag(instant, 1, %(after)s::timestamptz)
                OVER (ORDER BY instant) AS overlapping
        FROM log_cuts
        WHERE domain = %(domain)s AND instant > %(after)s AND instant <= %(until)s
    ) AS cuts"""


class CutCounts(NamedTuple):
    """What some cuts read, and how many of them are wrong whatever the sums."""

    read: int
    archived: int
    parked: int
    echoes: int
    cuts: int
    unbalanced: int
    overlapping: int


class Archived(NamedTuple):
    """Events of some cuts, and when the first of these was committed."""

    events: int
    since: datetime | None


def count_cuts(cursor: Cursor, domain: str, after: datetime, until: datetime) -> CutCounts:
    """The cuts that ended after the one moment, and not after the other."""
    parameters = {"domain": domain, "after": after, "until": until}
    return CutCounts(*fetch_one(cursor, _COUNT_CUTS, parameters))


def archived_after(cursor: Cursor, domain: str, moment: datetime) -> Archived:
    """What the cuts that ended after the moment brought into the log."""
    row = fetch_one(
        cursor,
        "SELECT coalesce(sum(archived), 0)::bigint AS events, min(committed_at) AS since"
        " FROM log_cuts WHERE domain = %s AND instant > %s AND archived > 0",
        [domain, moment],
    )
    return Archived(row.events, row.since)


class HourCounts(NamedTuple):
    """What the cuts of one hour read, and how many pages reach into it by now, of what size.

    A page that compaction made may reach into several hours, and counts in each.
    """

    cuts: int = 0
    read: int = 0
    archived: int = 0
    parked: int = 0
    duplicates: int = 0
    pages: int = 0
    bytes: int = 0


def hour_counts(log: PageLog, start: datetime, end: datetime) -> dict[datetime, HourCounts]:
    """The counts of every hour from `start` on and before `end`, which are whole hours in UTC."""
    first, parts = start.astimezone(UTC), (end - start) // _HOUR
    hours = {first + number * _HOUR: HourCounts() for number in range(parts)}
    with log.database.transaction() as cursor:
        cursor.execute(
            # A cut that ends on the hour belongs to the hour before.
            "SELECT date_trunc('hour', instant - interval '1 ms', 'UTC') AS hour,"
            " count(*) AS cuts, sum(read)::bigint AS read, sum(archived)::bigint AS archived,"
            " sum(parked)::bigint AS parked, sum(duplicates)::bigint AS duplicates"
            " FROM log_cuts WHERE domain = %s AND instant > %s AND instant <= %s GROUP BY hour",
            (log.domain, start, end),
        )
        for hour, *counts in cursor:
            hours[hour.astimezone(UTC)] = HourCounts(*counts)
    for part, found in log.table.counts(position_at(start), _HOUR_WIDTH, parts).items():
        hour = first + part * _HOUR
        hours[hour] = hours[hour]._replace(**found._asdict())
    return hours


def hours_closed(log: PageLog, before: datetime, after: datetime) -> dict[datetime, HourCounts]:
    """The hours that ended while the head moved, as far as something was read in them.

    A week of them at most: a log that was left alone for longer has its hours backfilled.
    """
    end = _whole(after)
    counts = hour_counts(log, max(_whole(before), end - _WEEK), end)
    return {hour: found for hour, found in counts.items() if found.cuts}


def _whole(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)

"""Counts of the log by hour, from the index alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from onex_platform.domain.order import POSITIONS_PER_MILLISECOND, position_at
from onex_platform.ingest.archive import PageArchive

_HOUR = timedelta(hours=1)
_WEEK = timedelta(weeks=1)


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


def hour_counts(archive: PageArchive, start: datetime, end: datetime) -> dict[datetime, HourCounts]:
    """The counts of every hour from `start` on and before `end`, which are whole hours in UTC."""
    hours = {
        start.astimezone(UTC) + number * _HOUR: HourCounts()
        for number in range((end - start) // _HOUR)
    }
    with archive.database.transaction() as cursor:
        cursor.execute(
            # A cut that ends on the hour belongs to the hour before.
            "WITH cuts AS ("
            " SELECT date_trunc('hour', instant - interval '1 ms', 'UTC') AS hour,"
            "  count(*) AS cuts, sum(read) AS read, sum(archived) AS archived,"
            "  sum(parked) AS parked, sum(duplicates) AS duplicates"
            " FROM log_cuts WHERE domain = %(domain)s"
            " AND instant > %(start)s AND instant <= %(end)s GROUP BY 1"
            "), filed AS ("
            " SELECT hour, count(*) AS pages, sum(encoded_bytes) AS bytes"
            " FROM pages, LATERAL generate_series("
            "  greatest(%(start)s,"
            "   date_trunc('hour', to_timestamp(min_position / %(per_second)s), 'UTC')),"
            "  least(%(last)s, to_timestamp(max_position / %(per_second)s)),"
            "  interval '1 hour') AS hour"
            " WHERE domain = %(domain)s AND replaced_at IS NULL"
            "  AND min_position < %(below)s AND max_position >= %(above)s GROUP BY 1"
            ") SELECT * FROM cuts FULL JOIN filed USING (hour)",
            {
                "domain": archive.domain,
                "start": start,
                "end": end,
                "last": end - _HOUR,
                "above": position_at(start),
                "below": position_at(end),
                "per_second": 1000 * POSITIONS_PER_MILLISECOND,
            },
        )
        for row in cursor:
            numbers = {name: int(getattr(row, name) or 0) for name in HourCounts._fields}
            hours[row.hour.astimezone(UTC)] = HourCounts(**numbers)
    return hours


def hours_closed(
    archive: PageArchive, before: datetime, after: datetime
) -> dict[datetime, HourCounts]:
    """The hours that ended while the head moved, as far as something was read in them.

    A week of them at most: a log that was left alone for longer has its hours backfilled.
    """
    end = _whole(after)
    counts = hour_counts(archive, max(_whole(before), end - _WEEK), end)
    return {hour: found for hour, found in counts.items() if found.cuts}


def _whole(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)

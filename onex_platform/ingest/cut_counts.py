"""Counts of cuts, for those who compare what was read with what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from onex_platform.engines.postgres.database import Cursor, fetch_one

# Cuts in which nothing was read leave no account: there may be time between two of them, but none
# may begin before the one before it has ended.
_COUNT_CUTS = """
    SELECT
        coalesce(sum(read), 0)::bigint AS read,
        coalesce(sum(archived), 0)::bigint AS archived,
        coalesce(sum(parked), 0)::bigint AS parked,
        count(*) AS cuts,
        count(*) FILTER (WHERE read <> archived + parked) AS unbalanced,
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

"""How long publications took, and how many failed: a histogram per minute, kept with the work.

It is written in the transaction that takes entries out of the outbox, one statement per batch. Each
entry of a batch counts as taking as long as the batch did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from onex_platform.engines.postgres.database import Cursor

What = Literal["events", "snapshots"]

# Upper bounds in milliseconds, those of the thresholds among them; the last one has no end.
CLASSES = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 900_000)
_FAILED = 0


class PublicationTimes(NamedTuple):
    """Entries that were acknowledged, by the class of their time, and those that were not."""

    classes: Mapping[int, int]
    failed: int


def class_of(seconds: float) -> int:
    """The class to which a time belongs."""
    return CLASSES[min(bisect_left(CLASSES, seconds * 1000), len(CLASSES) - 1)]


def note_published(cursor: Cursor, domain: str, what: What, entries: int, seconds: float) -> None:
    """Count entries that the broker acknowledged after this time."""
    _count(cursor, domain, what, entries, class_of(seconds))


def note_failed(cursor: Cursor, domain: str, what: What, entries: int) -> None:
    """Count entries that were tried in vain."""
    _count(cursor, domain, what, entries, _FAILED)


def publication_times(cursor: Cursor, domain: str, since: datetime) -> dict[str, PublicationTimes]:
    """What was noted from the minute of this moment on, by what was published."""
    rows = cursor.execute(
        "SELECT what, within_ms, sum(entries)::bigint AS entries FROM publication_times"
        " WHERE domain = %s AND minute >= date_trunc('minute', %s::timestamptz)"
        " GROUP BY what, within_ms ORDER BY what, within_ms",
        [domain, since],
    ).fetchall()
    return {
        what: PublicationTimes(
            {r.within_ms: r.entries for r in rows if r.what == what and r.within_ms != _FAILED},
            sum(r.entries for r in rows if r.what == what and r.within_ms == _FAILED),
        )
        for what in dict.fromkeys(r.what for r in rows)
    }


def forget_times(cursor: Cursor, domain: str, before: datetime) -> None:
    """Forget minutes that nobody asks for any more."""
    cursor.execute(
        "DELETE FROM publication_times WHERE domain = %s AND minute < %s", [domain, before]
    )


def _count(cursor: Cursor, domain: str, what: What, entries: int, within_ms: int) -> None:
    if entries:
        cursor.execute(
            "INSERT INTO publication_times AS known (domain, minute, what, within_ms, entries)"
            " VALUES (%s, date_trunc('minute', clock_timestamp()), %s, %s, %s)"
            " ON CONFLICT (domain, minute, what, within_ms)"
            " DO UPDATE SET entries = known.entries + excluded.entries",
            [domain, what, within_ms, entries],
        )

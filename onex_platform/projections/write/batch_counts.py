"""The account of a batch: what became of everything that it read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.database import Cursor


class Tally(NamedTuple):
    """Outcomes of events; of the parked, `set_aside` belong to nodes that are."""

    outcomes: Counter[EnumOutcome]
    set_aside: int = 0

    def agrees_with(self, other: Tally) -> bool:
        """Whether the same events may have come to both.

        Exactly so where nobody was set aside. Else the two may differ by as many events as one of
        them did not fold, and by no more.
        """
        ours, theirs = self._folded(), other._folded()
        more = (ours - theirs).total()
        less = (theirs - ours).total()
        return (
            self.outcomes.total() == other.outcomes.total()
            and more <= other.set_aside
            and less <= self.set_aside
        )

    def _folded(self) -> Counter[EnumOutcome]:
        return self.outcomes - Counter({EnumOutcome.PARKED: self.set_aside})


def record_outcomes(
    cursor: Cursor,
    domain: str,
    *,
    start: int,
    end: int,
    read: int,
    outcomes: Mapping[EnumOutcome, int],
    set_aside: int = 0,
) -> None:
    """Store the counts; the database refuses them if they do not add up to `read`.

    `set_aside` says how many of the parked belong to nodes that are set aside.
    """
    cursor.execute(
        "INSERT INTO batch_outcomes (domain, start_position, end_position, read,"
        " applied, duplicate, stale, illegal, parked, set_aside)"
        " VALUES (%(domain)s, %(start)s, %(end)s, %(read)s,"
        " %(applied)s, %(duplicate)s, %(stale)s, %(illegal)s, %(parked)s, %(set_aside)s)",
        {
            "domain": domain,
            "start": start,
            "end": end,
            "read": read,
            "set_aside": set_aside,
            **{outcome.value: outcomes.get(outcome, 0) for outcome in EnumOutcome},
        },
    )


def illegal_since(cursor: Cursor, domain: str, moment: datetime) -> dict[EnumEventKind, int]:
    """How many events that occurred from this moment on the fold has refused, by kind."""
    rows = cursor.execute(
        "SELECT kind, sum(times)::bigint AS events FROM illegal_events"
        " WHERE domain = %s AND occurred_at >= %s GROUP BY kind",
        [domain, moment],
    )
    return {EnumEventKind(row.kind): row.events for row in rows}

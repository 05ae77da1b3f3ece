"""The account of a batch: what became of everything that it read."""

from __future__ import annotations

from collections.abc import Mapping

from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import Cursor


def record_outcomes(
    cursor: Cursor,
    domain: str,
    *,
    start: int,
    end: int,
    read: int,
    outcomes: Mapping[EnumOutcome, int],
) -> None:
    """Store the counts; the database refuses them if they do not add up to `read`."""
    cursor.execute(
        "INSERT INTO batch_outcomes (domain, start_position, end_position, read,"
        " applied, duplicate, stale, illegal, parked)"
        " VALUES (%(domain)s, %(start)s, %(end)s, %(read)s,"
        " %(applied)s, %(duplicate)s, %(stale)s, %(illegal)s, %(parked)s)",
        {
            "domain": domain,
            "start": start,
            "end": end,
            "read": read,
            **{outcome.value: outcomes.get(outcome, 0) for outcome in EnumOutcome},
        },
    )

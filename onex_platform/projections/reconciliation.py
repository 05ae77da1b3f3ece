"""Three accounts of the folded log: what cuts read, what pages hold, what batches made of it.

`look` counts and changes nothing. `settle` notes what it found right (`verified_accounts`), and the
next look counts what came since, so that it costs the same however long the log is. A recount
counts everything, and finds what changed after it was found right.

Pages can be counted from a position on because none reaches across it: compaction merges only
below what is settled, where every page has been counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import NamedTuple

from onex_platform.domain.order import moment_of
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.ingest.cut_counts import count_cuts
from onex_platform.log.page_log import PageLog
from onex_platform.log.page_table import count_events
from onex_platform.projections.fold.checkpoint import fold_position

BATCHES_AT_ONCE = 100_000


class Totals(NamedTuple):
    """Counts of the three accounts."""

    read_by_cuts: int = 0
    archived: int = 0
    parked_by_cuts: int = 0
    echoed_by_cuts: int = 0
    in_pages: int = 0
    read_by_batches: int = 0
    applied: int = 0
    duplicate: int = 0
    stale: int = 0
    illegal: int = 0
    parked: int = 0

    @property
    def outcomes(self) -> dict[str, int]:
        return {outcome.value: getattr(self, outcome.value) for outcome in EnumOutcome}

    @property
    def facts(self) -> int:
        """What the pages hold besides what was read."""
        return self.in_pages - self.archived

    @property
    def add_up(self) -> bool:
        return (
            self.read_by_cuts == self.archived + self.parked_by_cuts + self.echoed_by_cuts
            and self.in_pages == self.read_by_batches == sum(self.outcomes.values())
            and self.facts >= 0
        )


class Count(NamedTuple):
    """A stretch of the log: its totals, and single accounts that are wrong whatever the totals."""

    totals: Totals = Totals()
    cuts: int = 0
    batches: int = 0
    unbalanced_cuts: int = 0
    overlapping_cuts: int = 0
    unbalanced_batches: int = 0
    overlapping_batches: int = 0

    def extended(self, other: Count) -> Count:
        return Count(_sum(self.totals, other.totals), *map(add, self[1:], other[1:]))

    @property
    def faults(self) -> dict[str, int]:
        return {
            "unbalanced cuts": self.unbalanced_cuts,
            "overlapping cuts": self.overlapping_cuts,
            "unbalanced batches": self.unbalanced_batches,
            "overlapping batches": self.overlapping_batches,
        }

    @property
    def holds(self) -> bool:
        return self.totals.add_up and not any(self.faults.values())


@dataclass(frozen=True, slots=True)
class LogAccounts:
    """What a look found."""

    counted: Count  # by this look
    totals: Totals  # since the beginning
    changed: frozenset[str]  # totals that are others now than when they were verified
    settled: int  # up to this position the accounts were settled before
    folded: int  # up to this one they were counted

    @property
    def hold(self) -> bool:
        return self.counted.holds and not self.changed

    @property
    def right_to(self) -> int:
        """Up to which position all accounts are right."""
        return self.folded if self.hold else self.settled


def look(log: PageLog, *, whole: bool = False) -> LogAccounts:
    """Count what was folded since the accounts were last found right, or everything."""
    with log.database.transaction() as cursor:
        verified, known = _verified(cursor, log.domain)
        folded = max(fold_position(cursor, log.domain), verified)
        counted = _count(cursor, log.domain, verified, folded)
        totals, changed = _sum(known, counted.totals), frozenset[str]()
        if whole:
            counted = _count(cursor, log.domain, 0, folded)
            changed = _differing(totals, counted.totals)
            totals = counted.totals
    return LogAccounts(counted, totals, changed, verified, folded)


def settle(log: PageLog, found: LogAccounts) -> int:
    """Note what a look found right; up to which position the accounts are settled now."""
    with log.database.transaction() as cursor:
        if found.hold:
            _keep(cursor, log.domain, found)
        return _verified(cursor, log.domain)[0]


def _verified(cursor: Cursor, domain: str) -> tuple[int, Totals]:
    query = f"SELECT position, {_NAMES} FROM verified_accounts WHERE domain = %s"  # noqa: S608
    row = cursor.execute(query, [domain]).fetchone()
    return (0, Totals()) if row is None else (row.position, Totals(*row[1:]))


def _keep(cursor: Cursor, domain: str, found: LogAccounts) -> None:
    """Go on from there next time; a rival that kept a point meanwhile is right as well."""
    cursor.execute(
        f"INSERT INTO verified_accounts AS kept (domain, position, {_NAMES})"  # noqa: S608
        f" VALUES (%(domain)s, %(folded)s, {_VALUES}) ON CONFLICT (domain) DO UPDATE"
        f" SET (position, verified_at, {_NAMES}) = (excluded.position, now(), {_EXCLUDED})"
        " WHERE kept.position = %(settled)s",
        {
            "domain": domain,
            "settled": found.settled,
            "folded": found.folded,
            **found.totals._asdict(),
        },
    )


def _count(cursor: Cursor, domain: str, start: int, end: int) -> Count:
    """Count in stretches, so that no statement takes longer the longer the log is."""
    count = Count()
    while start < end:
        stop = _end_of_stretch(cursor, domain, start, end)
        count = count.extended(_count_stretch(cursor, domain, start, stop, end))
        start = stop
    return count


def _count_stretch(cursor: Cursor, domain: str, start: int, stop: int, end: int) -> Count:
    cuts = count_cuts(cursor, domain, moment_of(start), moment_of(stop))
    stretch = {"domain": domain, "above": start, "below": stop}
    batches = fetch_one(cursor, _COUNT_BATCHES, stretch)
    return Count(
        Totals(
            read_by_cuts=cuts.read,
            archived=cuts.archived,
            parked_by_cuts=cuts.parked,
            echoed_by_cuts=cuts.echoes,
            in_pages=count_events(cursor, domain, start, stop, end),
            read_by_batches=batches.read,
            **{outcome.value: getattr(batches, outcome.value) for outcome in EnumOutcome},
        ),
        cuts=cuts.cuts,
        batches=batches.batches,
        unbalanced_cuts=cuts.unbalanced,
        overlapping_cuts=cuts.overlapping,
        unbalanced_batches=batches.unbalanced,
        overlapping_batches=batches.overlapping,
    )


def _end_of_stretch(cursor: Cursor, domain: str, start: int, end: int) -> int:
    """Where some batch ends, and thus a cut as well: none reaches across it."""
    row = cursor.execute(
        "SELECT end_position FROM batch_outcomes WHERE domain = %s"
        " AND end_position > %s AND end_position < %s ORDER BY end_position OFFSET %s LIMIT 1",
        [domain, start, end, BATCHES_AT_ONCE - 1],
    ).fetchone()
    return end if row is None else int(row.end_position)


def _sum(one: Totals, other: Totals) -> Totals:
    return Totals(*map(add, one, other))


def _differing(before: Totals, now: Totals) -> frozenset[str]:
    return frozenset(
        name for name, old, new in zip(Totals._fields, before, now, strict=True) if old != new
    )


_NAMES = ", ".join(Totals._fields)
_VALUES = ", ".join(f"%({name})s" for name in Totals._fields)
_EXCLUDED = ", ".join(f"excluded.{name}" for name in Totals._fields)
_OUTCOMES = ", ".join(f"coalesce(sum({o.value}), 0)::bigint AS {o.value}" for o in EnumOutcome)
_OUTCOMES_ADDED = " + ".join(outcome.value for outcome in EnumOutcome)

# Batches in which nothing was read leave no account: there may be time between two of them, but
# none may begin before the one before it has ended.
_COUNT_BATCHES = f"""
    SELECT
        coalesce(sum(read), 0)::bigint AS read,
        {_OUTCOMES},
        count(*) AS batches,
        count(*) FILTER (WHERE read <> {_OUTCOMES_ADDED}) AS unbalanced,
        count(*) FILTER (WHERE overlapping) AS overlapping
    FROM (
        SELECT
            *,
            start_position < lag(end_position, 1, %(above)s::bigint)
                OVER (ORDER BY end_position) AS overlapping
        FROM batch_outcomes
        WHERE domain = %(domain)s AND end_position > %(above)s AND end_position <= %(below)s
    ) AS batches"""  # noqa: S608 - constant names

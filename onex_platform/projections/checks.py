"""Verdicts on the rows: does every event have its one outcome, and is the fold close behind?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from onex_platform.domain.order import moment_of
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import fetch_one, transaction
from onex_platform.pages.archive import PageArchive
from onex_platform.pages.checks import Number, Verdict
from onex_platform.pages.lag import judge
from onex_platform.projections.cursors import fold_position
from onex_platform.topics.contract import LAG_THRESHOLDS, EnumLagCategory

if TYPE_CHECKING:
    from onex_platform.projections.proof import ReplayProof
    from onex_platform.projections.rebuilt import Comparison

# What the cuts read, what the pages hold, what the batches made of it: of the folded part.
_ACCOUNTS = """
    SELECT cuts.*, filed.*, folded.*
    FROM (
        SELECT
            coalesce(sum(read), 0)::bigint AS read_by_cuts,
            coalesce(sum(archived), 0)::bigint AS archived,
            coalesce(sum(parked), 0)::bigint AS parked_by_cuts
        FROM log_cuts WHERE domain = %(domain)s AND instant <= %(folded)s
    ) AS cuts, (
        SELECT coalesce(sum(event_count), 0)::bigint AS in_pages
        FROM pages
        WHERE domain = %(domain)s AND replaced_at IS NULL AND max_position < %(position)s
    ) AS filed, (
        SELECT
            coalesce(sum(read), 0)::bigint AS read_by_batches,
            coalesce(sum(applied), 0)::bigint AS applied,
            coalesce(sum(duplicate), 0)::bigint AS duplicate,
            coalesce(sum(stale), 0)::bigint AS stale,
            coalesce(sum(illegal), 0)::bigint AS illegal,
            coalesce(sum(parked), 0)::bigint AS parked
        FROM batch_outcomes WHERE domain = %(domain)s AND end_position <= %(position)s
    ) AS folded"""


class Unfolded(NamedTuple):
    """What the log has beyond the rows."""

    events: int
    since: datetime | None  # when the oldest of them entered the log


def unfolded(archive: PageArchive) -> Unfolded:
    with transaction(archive.engine, archive.breaker) as cursor:
        folded = moment_of(fold_position(cursor, archive.domain))
        row = fetch_one(
            cursor,
            "SELECT coalesce(sum(archived), 0)::bigint AS events, min(committed_at) AS since"
            " FROM log_cuts WHERE domain = %s AND instant > %s AND archived > 0",
            [archive.domain, folded],
        )
    return Unfolded(row.events, row.since)


def fold_keeps_up(archive: PageArchive, now: datetime) -> Verdict:
    """Whether what is in the log reaches the rows as soon as consumers may expect."""
    events, since = unfolded(archive)
    age = timedelta() if since is None else max(now - since, timedelta())
    verdict = judge(age, LAG_THRESHOLDS[EnumLagCategory.REGISTRY_STATE])
    seconds = age.total_seconds()
    return Verdict(
        not verdict.is_alarm,
        f"{events} events of the log wait for the fold, the oldest for {seconds:.1f} s: {verdict}.",
        {"lag in events": events, "lag in seconds": seconds, "lag verdict": verdict.value},
    )


def accounting(archive: PageArchive) -> Verdict:
    """Whether every record that was read, and every fact, has exactly one outcome.

    Three independent accounts of the folded part of the log are compared: what the cuts read, what
    the pages hold, and what the batches made of it.
    """
    with transaction(archive.engine, archive.breaker) as cursor:
        position = fold_position(cursor, archive.domain)
        row = fetch_one(
            cursor,
            _ACCOUNTS,
            {"domain": archive.domain, "position": position, "folded": moment_of(position)},
        )
    outcomes = {outcome.value: getattr(row, outcome.value) for outcome in EnumOutcome}
    facts = row.in_pages - row.archived
    passed = (
        row.read_by_cuts == row.archived + row.parked_by_cuts
        and row.in_pages == row.read_by_batches == sum(outcomes.values())
        and facts >= 0
    )
    return Verdict(
        passed,
        f"{row.read_by_cuts} records were read and {facts} facts decided; "
        f"{row.parked_by_cuts} were parked unread, {sum(outcomes.values())} have an outcome.",
        {
            "read": row.read_by_cuts,
            "archived": row.archived,
            "parked before the log": row.parked_by_cuts,
            "facts": facts,
            "in pages": row.in_pages,
            "folded": row.read_by_batches,
            **outcomes,
        },
    )


def live_equals_replay(proof: ReplayProof) -> Verdict:
    """Whether the rows that were compared are what the log says, cell by cell."""
    numbers = compared_numbers(proof.comparison)
    named = ", ".join(
        f"{difference.entity_id} ({difference.verdict})"
        for difference in proof.comparison.differences
    )
    return Verdict(
        proof.holds,
        f"{proof.comparison.changes} rows are not what the log says: {named}."
        if named
        else f"{proof.comparison.equal} rows are what the log says.",
        numbers | {"events": proof.events},
    )


def compared_numbers(comparison: Comparison) -> dict[str, Number]:
    """A comparison of live rows with the log as metadata."""
    return {
        "compared up to": moment_of(comparison.position).isoformat(),
        "equal": comparison.equal,
        "differing": comparison.differing,
        "missing": comparison.missing,
        "extra": comparison.extra,
        "moved on": comparison.moved_on,
    }

"""Verdicts on the rows: does every event have its one outcome, and is the fold close behind?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from onex_platform.base.telemetry import shortened
from onex_platform.checks import Number, Verdict
from onex_platform.context import PlatformContext
from onex_platform.domain.order import moment_of
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.cut_counts import Archived, archived_after
from onex_platform.ingest.lag import judge
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform.projections.fold.set_aside import marks
from onex_platform.projections.reconciliation import LogAccounts
from onex_platform.projections.write.batch_counts import Tally
from onex_platform.topics.contract import LAG_THRESHOLDS, EnumLagCategory

if TYPE_CHECKING:
    from onex_platform.projections.rebuild.proof import ReplayProof
    from onex_platform.projections.rebuild.side_table import Comparison


def unfolded(platform: PlatformContext) -> Archived:
    """What the log has beyond the rows."""
    with platform.database.transaction() as cursor:
        folded = moment_of(fold_position(cursor, platform.domain))
        return archived_after(cursor, platform.domain, folded)


def fold_keeps_up(platform: PlatformContext, now: datetime) -> Verdict:
    """Whether what is in the log reaches the rows as soon as consumers may expect."""
    events, since = unfolded(platform)
    age = timedelta() if since is None else max(now - since, timedelta())
    verdict = judge(age, LAG_THRESHOLDS[EnumLagCategory.REGISTRY_STATE])
    seconds = age.total_seconds()
    return Verdict(
        not verdict.is_alarm,
        f"{events} events of the log wait for the fold, the oldest for {seconds:.1f} s: {verdict}.",
        {"lag in events": events, "lag in seconds": seconds, "lag verdict": verdict.value},
    )


def accounting(found: LogAccounts) -> Verdict:
    """Whether every record that was read, and every fact, has exactly one outcome."""
    totals, counted = found.totals, found.counted
    sentences = [
        f"{totals.read_by_cuts} records were read and {totals.facts} facts decided; "
        f"{totals.parked_by_cuts} were parked unread, {totals.echoed_by_cuts} were echoes, "
        f"{sum(totals.outcomes.values())} have an outcome."
    ]
    wrong = [f"{count} {name}" for name, count in counted.faults.items() if count]
    if wrong:
        sentences.append(f"Inconsistent: {', '.join(wrong)}.")
    if found.changed:
        names = ", ".join(sorted(found.changed))
        sentences.append(f"Other than when they were found right: {names}.")
    return Verdict(
        found.hold,
        " ".join(sentences),
        {
            "read": totals.read_by_cuts,
            "archived": totals.archived,
            "parked before the log": totals.parked_by_cuts,
            "echoes": totals.echoed_by_cuts,
            "facts": totals.facts,
            "in pages": totals.in_pages,
            "folded": totals.read_by_batches,
            **totals.outcomes,
            "cuts counted": counted.cuts,
            "batches counted": counted.batches,
            **counted.faults,
        },
    )


def live_equals_replay(proof: ReplayProof) -> Verdict:
    """Whether the rows that were compared are what the log says, cell by cell, and whether all
    events, if all were folded, came to the outcomes that the batches recorded."""
    named = ", ".join(
        f"{difference.entity_id} ({difference.verdict})"
        for difference in proof.comparison.differences
    )
    sentences = [
        f"{proof.comparison.changes + proof.comparison.raising} rows are not what the log says: "
        f"{named}."
        if named
        else f"{proof.comparison.equal} rows are what the log says."
    ]
    if proof.recorded is not None and not proof.agrees:
        sentences.append(other_outcomes(proof.replayed, proof.recorded))
    numbers = compared_numbers(proof.comparison)
    return Verdict(proof.holds, " ".join(sentences), numbers | {"events": proof.events})


def nobody_is_set_aside(platform: PlatformContext, now: datetime) -> Verdict:
    """Whether the code folds the events of every node."""
    with platform.database.transaction() as cursor:
        aside = marks(cursor, platform.domain)
    oldest = min((mark.set_aside_at for mark in aside), default=now)
    return Verdict(
        not aside,
        f"{len(aside)} nodes are set aside: {shortened(list(map(str, aside)))}. Their events are"
        " in the log; `onex registry rebuild --node` brings one back once it can be folded."
        if aside
        else "The events of every node are folded.",
        {"set aside": len(aside), "longest in seconds": max((now - oldest).total_seconds(), 0.0)},
    )


def other_outcomes(replayed: Tally, recorded: Tally) -> str:
    """Says that a replay came to other outcomes than the batches did."""
    now, live = (
        ", ".join(f"{tally.outcomes[outcome]} {outcome}" for outcome in EnumOutcome)
        for tally in (replayed, recorded)
    )
    return f"The log came to {now} now, but to {live} when it was folded live."


def compared_numbers(comparison: Comparison) -> dict[str, Number]:
    """A comparison of live rows with the log as metadata."""
    return {
        "compared up to": moment_of(comparison.position).isoformat(),
        "equal": comparison.equal,
        "differing": comparison.differing,
        "missing": comparison.missing,
        "extra": comparison.extra,
        "moved on": comparison.moved_on,
        "set aside": comparison.set_aside,
        "raising": comparison.raising,
    }

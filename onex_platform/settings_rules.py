"""What settings of several groups must agree on; each group's own rules stand with the group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onex_platform.settings import Settings


def disagreements(settings: Settings) -> Iterator[str]:
    """What is wrong between groups, with the variables to change."""
    for rule in (
        _a_statement_outlasts_a_publication,
        _an_unseen_outage_is_short_beside_the_windows,
        _a_watch_lasts_from_look_to_look,
    ):
        yield from rule(settings)


def _a_statement_outlasts_a_publication(settings: Settings) -> Iterator[str]:
    # Rows are streamed while they are sent: the statement lasts as long as the sending.
    statement = settings.postgres.statement_timeout_seconds
    publication = settings.snapshots.transaction_seconds
    if statement <= publication:
        yield (
            f"ONEX_POSTGRES_STATEMENT_TIMEOUT_SECONDS={statement:g} must exceed "
            f"ONEX_SNAPSHOTS_TRANSACTION_SECONDS={publication:g}; "
            "a publication would be cut off while it may still succeed"
        )


def _an_unseen_outage_is_short_beside_the_windows(settings: Settings) -> Iterator[str]:
    # What fits into a gap begins no grace. Half a window is left to a node that beats in time.
    gap = settings.deadlines.gap_seconds
    windows = {
        "FIRST_LIVENESS": settings.registration.first_liveness_seconds,
        "HEARTBEAT_LIVENESS": settings.registration.heartbeat_liveness_seconds,
    }
    shortest = min(windows, key=lambda name: windows[name])
    if 2 * gap > windows[shortest]:
        yield (
            f"ONEX_DEADLINES_GAP_SECONDS={gap:g} must be at most half of "
            f"ONEX_REGISTRATION_{shortest}_SECONDS={windows[shortest]:g}; "
            "nodes would expire by an outage of the broker that nobody saw"
        )


def _a_watch_lasts_from_look_to_look(settings: Settings) -> Iterator[str]:
    gap, clock = settings.deadlines.gap_seconds, settings.pipeline.clock_seconds
    if gap <= clock:
        yield (
            f"ONEX_DEADLINES_GAP_SECONDS={gap:g} must exceed "
            f"ONEX_PIPELINE_CLOCK_SECONDS={clock:g}; every look would begin a new watch"
        )

"""Proof that the live rows are what the log says: numbers for checks, commands and people.

Nothing here changes a live row or holds up the fold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import fetch_one, transaction
from onex_platform.pages.archive import PageArchive
from onex_platform.projections.history import THE_BEGINNING, nearest_state
from onex_platform.projections.rebuild import open_rebuild
from onex_platform.projections.rebuilt import Comparison
from onex_platform.projections.replaying import EVERYTHING, Scope, folded_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProof:
    """The live rows beside the replayed log.

    `outcomes` are the replay's; of the whole log they must be those that the batches recorded.
    """

    comparison: Comparison
    events: int
    outcomes: Counter[EnumOutcome]
    recorded: Counter[EnumOutcome] | None

    @property
    def holds(self) -> bool:
        return self.comparison.changes == 0 and self.recorded in (None, self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAccounts:
    """Batches whose account does not fit the cuts that they read, or the batch before them."""

    batches: int
    not_adding_up: int
    overlapping: int
    losing_records: int
    miscounting_duplicates: int

    @property
    def holds(self) -> bool:
        return not (
            self.not_adding_up
            or self.overlapping
            or self.losing_records
            or self.miscounting_duplicates
        )


def live_equals_replay(
    spark: SparkSession, archive: PageArchive, sample: int | None = None
) -> ReplayProof:
    """Fold the log again and compare every live row with it.

    With a `sample`, about so many rows of neighbouring ids, from the nearest stored hour on; nodes
    with such ids that only one side knows are found as well.
    """
    scope, base = EVERYTHING, THE_BEGINNING
    if sample is not None:
        scope = _sample(archive, sample)
        base = nearest_state(archive, folded_to(archive))
    with open_rebuild(spark, archive, scope, base) as rebuild:
        rebuild.catch_up()
        comparison = rebuild.compare()
        with transaction(archive.engine, archive.breaker) as cursor:
            recorded = rebuild.recorded_outcomes(cursor)
        return ReplayProof(
            comparison=comparison,
            events=rebuild.events,
            outcomes=rebuild.outcomes,
            recorded=recorded,
        )


def batch_accounts(archive: PageArchive) -> BatchAccounts:
    """Hold every batch against the cuts of its positions: none reads less than they archived."""
    with transaction(archive.engine, archive.breaker) as cursor:
        row = fetch_one(cursor, _BATCHES, {"domain": archive.domain})
    return BatchAccounts(**row._asdict())


# A position is the millisecond times 2^20; extract() is exact.
_BATCHES = """
    WITH cuts AS (
        SELECT
            (extract(epoch FROM instant) * 1000)::bigint * 1048576 AS end_position,
            archived,
            duplicates
        FROM log_cuts WHERE domain = %(domain)s
    ), batches AS (
        SELECT *, lag(end_position) OVER (ORDER BY end_position) AS previous
        FROM batch_outcomes WHERE domain = %(domain)s
    ), judged AS (
        SELECT
            batch.read <> applied + duplicate + stale + illegal + parked AS not_adding_up,
            start_position < previous AS overlapping,
            batch.read < coalesce(sum(archived), 0) AS losing_records,
            duplicate <> coalesce(sum(duplicates), 0) AS miscounting_duplicates
        FROM batches AS batch
        LEFT JOIN cuts
            ON cuts.end_position > batch.start_position
            AND cuts.end_position <= batch.end_position
        GROUP BY batch.*, start_position, previous, read, applied, duplicate, stale, illegal, parked
    )
    SELECT
        count(*) AS batches,
        count(*) FILTER (WHERE not_adding_up) AS not_adding_up,
        count(*) FILTER (WHERE overlapping) AS overlapping,
        count(*) FILTER (WHERE losing_records) AS losing_records,
        count(*) FILTER (WHERE miscounting_duplicates) AS miscounting_duplicates
    FROM judged"""


def _sample(archive: PageArchive, size: int) -> Scope:
    """A range of ids with `size` live rows, begun at random; all ids if there are no more."""
    with transaction(archive.engine, archive.breaker) as cursor:
        for start in (uuid4(), _FIRST_ID):
            last = cursor.execute(
                "SELECT entity_id FROM registration_projections"
                " WHERE domain = %s AND entity_id >= %s ORDER BY entity_id OFFSET %s LIMIT 1",
                [archive.domain, start, size - 1],
            ).fetchone()
            if last is not None:
                return Scope(ids=(start, last.entity_id))
    return EVERYTHING

"""Proof that the live rows are what the log says: numbers for checks, commands and people.

Nothing here changes a live row or holds up the fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from onex_platform.log.page_log import PageLog
from onex_platform.projections.fold.refold import EVERYTHING, Scope, folded_to
from onex_platform.projections.history.hourly_states import nearest_state
from onex_platform.projections.history.state_files import THE_BEGINNING
from onex_platform.projections.rebuild.rebuild import open_rebuild
from onex_platform.projections.rebuild.side_table import Comparison
from onex_platform.projections.write.batch_counts import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProof:
    """The live rows beside the replayed log.

    `replayed` is what the replay came to; of the whole log it must be what the batches recorded.
    """

    comparison: Comparison
    replayed: Tally
    recorded: Tally | None

    @property
    def events(self) -> int:
        return self.replayed.outcomes.total()

    @property
    def agrees(self) -> bool:
        """Whether the outcomes are those that were recorded, as far as that can be told."""
        return self.recorded is None or self.replayed.agrees_with(self.recorded)

    @property
    def is_contained(self) -> bool:
        """Whether nothing is wrong but that nodes are set aside, which is known and told."""
        rows = self.comparison
        return rows.changes == rows.set_aside and not rows.unmarked and self.agrees

    @property
    def holds(self) -> bool:
        rows = self.comparison
        return rows.changes == rows.raising == 0 and self.agrees


def live_equals_replay(spark: SparkSession, log: PageLog, sample: int | None = None) -> ReplayProof:
    """Fold the log again and compare every live row with it.

    With a `sample`, about so many rows of neighbouring ids, from the nearest stored hour on; nodes
    with such ids that only one side knows are found as well.
    """
    scope, base = EVERYTHING, THE_BEGINNING
    if sample is not None:
        scope = _sample(log, sample)
        base = nearest_state(log, folded_to(log.database, log.domain))
    with open_rebuild(spark, log, scope, base) as rebuild:
        rebuild.catch_up()
        comparison = rebuild.compare()
        with log.database.transaction() as cursor:
            recorded = rebuild.recorded_outcomes(cursor)
        return ReplayProof(
            comparison=comparison,
            replayed=rebuild.tally,
            recorded=recorded,
        )


def _sample(log: PageLog, size: int) -> Scope:
    """A range of ids with `size` live rows, begun at random; all ids if there are no more."""
    with log.database.transaction() as cursor:
        for start in (uuid4(), _FIRST_ID):
            last = cursor.execute(
                "SELECT entity_id FROM registration_projections"
                " WHERE domain = %s AND entity_id >= %s ORDER BY entity_id OFFSET %s LIMIT 1",
                [log.domain, start, size - 1],
            ).fetchone()
            if last is not None:
                return Scope(ids=(start, last.entity_id))
    return EVERYTHING

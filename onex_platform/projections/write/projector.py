"""The only writer of projections: one row, or a whole batch, in one guarded transaction.

What holds when a batch is committed, and not a part of it otherwise: its rows, what they publish,
the registry's own events with their ids and their pages, the account of every event read, and the
fold's cursor. A batch that does not begin where the log is folded to (a repetition, a rival that
lost), or that did without a node which was released meanwhile, changes nothing and is told so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from onex_platform.base.settings import Settings
from onex_platform.domain.batch import RowChange
from onex_platform.domain.projection import ModelRegistrationProjection, ModelSequenceInfo
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.database import Cursor, Database, lift_statement_limit
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.log.page_table import insert_pages
from onex_platform.log.store import StoredPage
from onex_platform.projections.fold.checkpoint import (
    fold_position,
    lock_checkpoint,
    move_fold_cursor,
)
from onex_platform.projections.fold.set_aside import ReleasedMeanwhileError
from onex_platform.projections.write.batch_counts import record_outcomes
from onex_platform.projections.write.staged_batch import Given, Staged, give, take_over
from onex_platform.projections.write.upsert import PositionRange, Written

_END_OF_LOG = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionBatch:
    """What folding the log from `start` up to, and without, `end` came to.

    `read` counts what was read, `outcomes` what became of it: they must agree. Of the parked,
    `set_aside` belong to nodes that are. The content waits where tasks staged it, or is given.
    `pages` hold what was decided.
    """

    domain: str
    start: int
    end: int
    read: int
    outcomes: Counter[EnumOutcome]
    set_aside: int = 0
    content: Staged | Given = field(default_factory=Given)
    pages: Sequence[StoredPage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """Whether the batch took effect, where the fold stands now, and what was written."""

    committed: bool
    position: int
    written: Written = field(default_factory=Written)


class ProjectorRegistration:
    """Writes registration projections. Callers of all processes take turns per domain."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    def initialize_schema(self) -> list[str]:
        """Apply pending migrations; the names of those applied now."""
        return migrate(self._settings)

    def persist(self, projection: ModelRegistrationProjection) -> bool:
        """Write one whole row unless it is stale; whether it was written."""
        row = Given([RowChange(row=projection, wide=True, liveness=True)])
        with self._database.transaction() as cursor:
            lock_checkpoint(cursor, projection.domain)
            if _is_stale(cursor, projection.entity_id, projection.domain, projection.sequence_info):
                return False
            take_over(cursor, give(cursor, row), PositionRange(projection.domain, 0, _END_OF_LOG))
            return True

    def is_stale(self, entity_id: UUID, domain: str, sequence: ModelSequenceInfo) -> bool:
        """Whether `persist` would refuse a row at this place: something as new stands there."""
        with self._database.transaction() as cursor:
            return _is_stale(cursor, entity_id, domain, sequence)

    def persist_batch(self, batch: ProjectionBatch) -> BatchResult:
        """Write the whole batch if the log is folded up to its start, else nothing."""
        domain, start, end = batch.domain, batch.start, batch.end
        with self._database.transaction() as cursor:
            lift_statement_limit(cursor)
            if not move_fold_cursor(cursor, domain, start, end):
                cursor.connection.rollback()
                return BatchResult(committed=False, position=fold_position(cursor, domain))
            content = batch.content
            staged = give(cursor, content) if isinstance(content, Given) else content
            try:
                written = take_over(cursor, staged, PositionRange(domain, start, end))
            except ReleasedMeanwhileError:
                cursor.connection.rollback()
                return BatchResult(committed=False, position=fold_position(cursor, domain))
            insert_pages(cursor, batch.pages)
            if batch.read or batch.outcomes.total():
                record_outcomes(
                    cursor,
                    domain,
                    start=start,
                    end=end,
                    read=batch.read,
                    outcomes=batch.outcomes,
                    set_aside=batch.set_aside,
                )
            return BatchResult(committed=True, position=end, written=written)


def _is_stale(cursor: Cursor, entity_id: UUID, domain: str, sequence: ModelSequenceInfo) -> bool:
    held = cursor.execute(
        "SELECT last_applied_sequence AS sequence FROM registrations"
        " WHERE entity_id = %s AND domain = %s",
        [entity_id, domain],
    ).fetchone()
    return held is not None and sequence.is_stale_compared_to(
        ModelSequenceInfo(sequence=held.sequence)
    )

"""Rebuild: the log folded anew into a side table, compared with the live rows, and swapped in.

What holds, wherever it is cancelled or killed:
- Live rows change in one transaction, under the domain's turn, or not at all. Until then only the
  side table is written; what a dead rebuild left of it, the next one removes.
- New events keep arriving: the side table catches up with them, at last while it holds the turn.
- It refuses if a page is missing or damaged, if the accounts do not add up, or if more rows would
  change than were agreed to. So nothing is swapped in that the log does not say.
- It emits nothing: no facts, no outbox entries. A row that changes gets the next `row_version`, by
  which the snapshot sweep finds it; an equal row is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import Cursor, fetch_one, open_engine, transaction
from onex_platform.errors import OnexError
from onex_platform.faults import effect
from onex_platform.pages.archive import PageArchive
from onex_platform.pages.store import PageStore
from onex_platform.projections import rebuilt
from onex_platform.projections.checks import accounting, other_outcomes
from onex_platform.projections.cursors import take_turn
from onex_platform.projections.history import THE_BEGINNING, StoredState
from onex_platform.projections.kernel import BucketFold
from onex_platform.projections.rebuilt import Comparison, require_side_table, side_table
from onex_platform.projections.replaying import (
    EVERYTHING,
    BucketWork,
    ReplayJob,
    Scope,
    bucket_chunks,
    by_bucket,
    folded_to,
    listed_nodes,
    plan_replay,
    replay_bucket,
    tasks_for,
)
from onex_platform.resilience import shared_breaker
from onex_platform.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each time there is less left to catch up with; then the turn is taken for the rest.
_CATCH_UPS = 3

_REPORT = pa.schema(
    [pa.field(outcome.value, pa.int64(), nullable=False) for outcome in EnumOutcome]
)


_SUMS = ", ".join(f"coalesce(sum({o.value}), 0)::bigint AS {o.value}" for o in EnumOutcome)
_RECORDED = f"SELECT {_SUMS} FROM batch_outcomes WHERE domain = %s AND end_position <= %s"  # noqa: S608


class RebuildRefusedError(OnexError):
    """A check forbids the swap; the live rows are as they were."""


@dataclass(frozen=True, slots=True)
class _SideJob:
    """What the tasks need to know; it travels to the workers."""

    settings: Settings
    rebuild_id: UUID
    replay: ReplayJob
    catches_up: bool


class Rebuild:
    """The side table of some nodes, folded up to `position`."""

    def __init__(
        self,
        spark: SparkSession,
        archive: PageArchive,
        rebuild_id: UUID,
        scope: Scope,
        base: StoredState,
    ) -> None:
        self.position = base.position
        self.outcomes: Counter[EnumOutcome] = Counter()
        self._spark = spark
        self._archive = archive
        self._id = rebuild_id
        self._scope = scope
        self._base = base
        with effect("rebuild.fold"):
            self._fold(folded_to(archive), base, catches_up=False)

    @property
    def events(self) -> int:
        """How many events were folded."""
        return self.outcomes.total()

    def catch_up(self) -> bool:
        """Fold what the live rows have got since; whether there was something."""
        end = folded_to(self._archive)
        if end == self.position:
            return False
        with effect("rebuild.catch_up"):
            self._fold(end, THE_BEGINNING, catches_up=True)
        return True

    def compare(self) -> Comparison:
        """The live rows beside the side table; rows that have moved on since are not judged."""
        with transaction(self._archive.engine, self._archive.breaker) as cursor:
            return self._compare(cursor)

    def swap(self, at_most: int | None = None) -> Comparison:
        """Put right every row that differs, in one transaction; what was compared.

        Refuses if a check fails, or if more than `at_most` rows would change.
        """
        archive = self._archive
        for _ in range(_CATCH_UPS):
            if not self.catch_up():
                break
        with (
            effect("rebuild.swap"),
            transaction(archive.engine, archive.breaker) as cursor,
        ):
            take_turn(cursor, archive.domain)
            with effect("rebuild.last_catch_up"):
                self.catch_up()
            comparison = self._compare(cursor)
            self._refuse_unless_sound(cursor, comparison, at_most)
            with effect("rebuild.write_rows"):
                changed = rebuilt.swap(cursor, self._id, archive.domain)
            if changed != comparison.changes:
                raise RebuildRefusedError(
                    f"{comparison.changes} rows were to change, but {changed} would have."
                )
        return comparison

    def recorded_outcomes(self, cursor: Cursor) -> Counter[EnumOutcome] | None:
        """What the batches made of the same events when they were live; None if not all are."""
        if self._scope != EVERYTHING or self._base != THE_BEGINNING:
            return None
        row = fetch_one(cursor, _RECORDED, [self._archive.domain, self.position])
        return Counter({outcome: getattr(row, outcome.value) for outcome in EnumOutcome})

    def _compare(self, cursor: Cursor) -> Comparison:
        require_side_table(cursor, self._id)
        domain = self._archive.domain
        return rebuilt.compare(cursor, self._id, domain, self._scope, self.position)

    def _refuse_unless_sound(
        self, cursor: Cursor, comparison: Comparison, at_most: int | None
    ) -> None:
        verdict = accounting(self._archive, whole=True)
        if not verdict.passed:
            raise RebuildRefusedError(
                f"The accounts of the log do not add up: {verdict.description}",
                hint="Nothing was changed. `onex pages verify` finds what the log has lost.",
            )
        recorded = self.recorded_outcomes(cursor)
        if recorded not in (None, self.outcomes):
            raise RebuildRefusedError(
                other_outcomes(self.outcomes, recorded),
                hint="Nothing was changed. Run it again; if it stays, the fold has changed.",
            )
        if at_most is not None and comparison.changes > at_most:
            raise RebuildRefusedError(
                f"{comparison.changes} rows would change; at most {at_most} were agreed to.",
                hint="Nothing was changed. Look at the differences with --dry-run.",
            )

    def _fold(self, end: int, base: StoredState, *, catches_up: bool) -> None:
        archive = self._archive
        replay = plan_replay(
            archive,
            self.position,
            end,
            base=base.files,
            scope=self._scope,
            spark=self._spark,
        )
        job = _SideJob(archive.settings, self._id, replay, catches_up)
        if replay.size or self._scope.is_listed:
            tasks = tasks_for(archive, replay.size)
            frame = by_bucket(self._spark, archive.buckets, tasks, _folder(job), _REPORT)
            for report in frame.collect():
                self.outcomes += Counter(
                    {outcome: report[outcome.value] for outcome in EnumOutcome}
                )
        self.position = end


@contextmanager
def open_rebuild(
    spark: SparkSession,
    archive: PageArchive,
    scope: Scope = EVERYTHING,
    base: StoredState = THE_BEGINNING,
) -> Iterator[Rebuild]:
    """Fold the log, or its part behind `base`, into a side table that lasts for the block."""
    with side_table(archive) as rebuild_id:
        yield Rebuild(spark, archive, rebuild_id, scope, base)


def _folder(job: _SideJob) -> BucketWork:
    def fold(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        engine = open_engine(job.settings)
        breaker = shared_breaker("PostgreSQL", job.settings.breaker)
        store = PageStore(job.replay.store_url)
        outcomes: Counter[EnumOutcome] = Counter()
        try:
            for bucket in buckets:
                with transaction(engine, breaker) as cursor:
                    require_side_table(cursor, job.rebuild_id)
                    outcomes += _fold_bucket(job, store, cursor, bucket)
        finally:
            engine.dispose()
        counts = {outcome.value: outcomes[outcome] for outcome in EnumOutcome}
        yield pa.RecordBatch.from_pylist([counts], _REPORT)

    return fold


def _fold_bucket(
    job: _SideJob, store: PageStore, cursor: Cursor, bucket: int
) -> Counter[EnumOutcome]:
    nodes = listed_nodes(job.replay, store, bucket)
    if not job.catches_up:
        fold = replay_bucket(job.replay, store, bucket, nodes)
        rebuilt.replace_bucket(cursor, job.rebuild_id, bucket, fold.rows(), nodes or ())
        return fold.outcomes
    outcomes: Counter[EnumOutcome] = Counter()
    for chunk in bucket_chunks(job.replay, store, bucket, nodes):
        touched = {node for table in chunk for node in table["entity_id"].unique().to_pylist()}
        fold = BucketFold(job.replay.domain, rebuilt.rows_of(cursor, job.rebuild_id, touched))
        fold.feed(*chunk)
        changed = [change.row for change in fold.changes()]
        rebuilt.replace_rows(cursor, job.rebuild_id, bucket, changed)
        outcomes += fold.outcomes
    return outcomes

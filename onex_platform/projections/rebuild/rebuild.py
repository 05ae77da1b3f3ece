"""Rebuild: the log folded anew into a side table, compared with the live rows, and swapped in.

What holds, wherever it is cancelled or killed:
- Live rows change in one transaction, under the domain's turn, or not at all. Until then only the
  side table is written; what a dead rebuild left of it, the next one removes.
- New events keep arriving: the side table catches up with them, at last while it holds the turn.
- It refuses if a page is missing or damaged, if the accounts do not add up, or if more rows would
  change than were agreed to. So nothing is swapped in that the log does not say.
- A node that raises keeps its row, and its mark if it has one; all others are swapped. One that was
  set aside and can be folded again gets its row, and its mark goes, in the same transaction.
- It emits nothing: no facts, no outbox entries. A row that changes gets the next `row_version`, by
  which the snapshot sweep finds it; an equal row is not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.database import Cursor, fetch_one, open_database
from onex_platform.ingest.registration_pages import LogChunk
from onex_platform.log.page_log import PageLog
from onex_platform.projections.checks import accounting, other_outcomes
from onex_platform.projections.fold.checkpoint import lock_checkpoint
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.containment import Fault, culprits_of, fault_of, fold_contained
from onex_platform.projections.fold.refold import (
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
    rows_of,
    tasks_for,
)
from onex_platform.projections.history.hourly_states import aside_in_hours, forget_hours_without
from onex_platform.projections.history.state_files import THE_BEGINNING, StoredState
from onex_platform.projections.rebuild import side_table
from onex_platform.projections.rebuild.side_table import Comparison, require_side_table
from onex_platform.projections.reconciliation import look
from onex_platform.projections.write.batch_counts import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Sequence[ModelRegistrationProjection]

# Each time there is less left to catch up with; then the turn is taken for the rest.
_CATCH_UPS = 3

_COUNTS = (*(outcome.value for outcome in EnumOutcome), "set_aside")
_REPORT = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in _COUNTS])
_SUMS = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in _COUNTS)
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
        log: PageLog,
        rebuild_id: UUID,
        scope: Scope,
        base: StoredState,
    ) -> None:
        self.position = base.position
        self.tally = Tally(Counter())
        self._spark = spark
        self._log = log
        self._id = rebuild_id
        self._scope = scope
        self._base = base
        with effect("rebuild.fold"):
            self._fold(folded_to(log.database, log.domain), base, catches_up=False)

    @property
    def events(self) -> int:
        """How many events were folded."""
        return self.tally.outcomes.total()

    def catch_up(self) -> bool:
        """Fold what the live rows have got since; whether there was something."""
        end = folded_to(self._log.database, self._log.domain)
        if end == self.position:
            return False
        with effect("rebuild.catch_up"):
            self._fold(end, THE_BEGINNING, catches_up=True)
        return True

    def compare(self) -> Comparison:
        """The live rows beside the side table; rows that have moved on since are not judged."""
        with self._log.database.transaction() as cursor:
            return self._compare(cursor)

    def swap(self, at_most: int | None = None) -> Comparison:
        """Put right every row that differs, in one transaction; what was compared.

        Refuses if a check fails, or if more than `at_most` rows would change.
        """
        log = self._log
        for _ in range(_CATCH_UPS):
            if not self.catch_up():
                break
        with (
            effect("rebuild.swap"),
            log.database.transaction() as cursor,
        ):
            lock_checkpoint(cursor, log.domain)
            with effect("rebuild.last_catch_up"):
                self.catch_up()
            comparison = self._compare(cursor)
            self._refuse_unless_sound(cursor, comparison, at_most)
            with effect("rebuild.write_rows"):
                changed = side_table.swap(cursor, self._id, log.domain)
            if changed != comparison.changes:
                raise RebuildRefusedError(
                    f"{comparison.changes} rows were to change, but {changed} would have."
                )
            self._forget_hours(cursor)
        return comparison

    def recorded_outcomes(self, cursor: Cursor) -> Tally | None:
        """What the batches made of the same events when they were live; None if not all are."""
        if self._scope != EVERYTHING or self._base != THE_BEGINNING:
            return None
        row = fetch_one(cursor, _RECORDED, [self._log.domain, self.position])
        outcomes = Counter({outcome: getattr(row, outcome.value) for outcome in EnumOutcome})
        return Tally(outcomes, row.set_aside)

    def _forget_hours(self, cursor: Cursor) -> None:
        """Let the hours be written anew that lack nodes which were folded here."""
        lacking = [node for node in aside_in_hours(cursor, self._log.domain) if self._has(node)]
        raising = side_table.raising_nodes(cursor, self._id)
        if folded := [node for node in lacking if node.bytes not in raising]:
            forget_hours_without(cursor, self._log.domain, folded)

    def _has(self, node: UUID) -> bool:
        """Whether a node is certainly one of the rebuild's."""
        scope = self._scope
        if scope.nodes is not None:
            return node in scope.nodes
        low, high = scope.ids or (node, node)
        return scope.window is None and low <= node <= high

    def _compare(self, cursor: Cursor) -> Comparison:
        require_side_table(cursor, self._id)
        domain = self._log.domain
        return side_table.compare(cursor, self._id, domain, self._scope, self.position)

    def _refuse_unless_sound(
        self, cursor: Cursor, comparison: Comparison, at_most: int | None
    ) -> None:
        verdict = accounting(look(self._log, whole=True))
        if not verdict.passed:
            raise RebuildRefusedError(
                f"The accounts of the log do not add up: {verdict.description}",
                hint="Nothing was changed. `onex pages verify` finds what the log has lost.",
            )
        recorded = self.recorded_outcomes(cursor)
        if recorded is not None and not self.tally.agrees_with(recorded):
            raise RebuildRefusedError(
                other_outcomes(self.tally, recorded),
                hint="Nothing was changed. Run it again; if it stays, the fold has changed.",
            )
        if at_most is not None and comparison.changes > at_most:
            raise RebuildRefusedError(
                f"{comparison.changes} rows would change; at most {at_most} were agreed to.",
                hint="Nothing was changed. Look at the differences with --dry-run.",
            )

    def _fold(self, end: int, base: StoredState, *, catches_up: bool) -> None:
        log = self._log
        replay = plan_replay(
            log,
            self.position,
            end,
            base=base,
            scope=self._scope,
            spark=self._spark,
        )
        job = _SideJob(log.settings, self._id, replay, catches_up)
        if replay.size or self._scope.is_listed:
            tasks = tasks_for(log, replay.size)
            frame = by_bucket(self._spark, log.buckets, tasks, _folder(job), _REPORT)
            for report in frame.collect():
                self.tally = Tally(
                    self.tally.outcomes + Counter({o: report[o.value] for o in EnumOutcome}),
                    self.tally.set_aside + report["set_aside"],
                )
        self.position = end


@contextmanager
def open_rebuild(
    spark: SparkSession,
    log: PageLog,
    scope: Scope = EVERYTHING,
    base: StoredState = THE_BEGINNING,
) -> Iterator[Rebuild]:
    """Fold the log, or its part behind `base`, into a side table that lasts for the block."""
    with side_table.side_table(log) as rebuild_id:
        yield Rebuild(spark, log, rebuild_id, scope, base)


def _folder(job: _SideJob) -> BucketWork:
    def fold(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        counts: Counter[str] = Counter()
        with open_database(job.settings) as database:
            for bucket in buckets:
                with database.transaction() as cursor:
                    require_side_table(cursor, job.rebuild_id)
                    for folded in _fold_bucket(job, cursor, bucket):
                        counts += Counter({o.value: n for o, n in folded.outcomes.items()})
                        counts["set_aside"] += folded.set_aside
        yield pa.RecordBatch.from_pylist([{name: counts[name] for name in _COUNTS}], _REPORT)

    return fold


def _fold_bucket(job: _SideJob, cursor: Cursor, bucket: int) -> Iterator[BucketFold]:
    """Put a bucket's part of the log into the side table."""
    nodes = listed_nodes(job.replay, bucket)
    if not job.catches_up:
        yield _begin_bucket(job, cursor, bucket, nodes)
        return
    for chunk in bucket_chunks(job.replay, bucket, nodes):
        yield _extend_bucket(job, cursor, bucket, chunk)


def _begin_bucket(
    job: _SideJob, cursor: Cursor, bucket: int, nodes: set[bytes] | None
) -> BucketFold:
    faults: dict[bytes, Fault] = {}

    def put(rows: Rows) -> None:
        side_table.replace_bucket(cursor, job.rebuild_id, bucket, rows, nodes or (), faults)

    while True:
        replayed = replay_bucket(job.replay, bucket, rows_of, nodes, faults)
        faults |= replayed.faults
        if found := _refused(cursor, replayed.rendered, put):
            faults |= found
        else:
            return replayed.fold


def _extend_bucket(job: _SideJob, cursor: Cursor, bucket: int, chunk: LogChunk) -> BucketFold:
    touched = {node for table in chunk for node in table["entity_id"].unique().to_pylist()}
    rows = list(side_table.rows_of(cursor, job.rebuild_id, touched))
    raising = side_table.raising_nodes(cursor, job.rebuild_id, touched)
    faults: dict[bytes, Fault] = {}

    def fold(excluded: frozenset[bytes]) -> BucketFold:
        folded = BucketFold(job.replay.domain, rows, excluded=excluded)
        folded.feed(*chunk)
        return folded

    def put(rows: Rows) -> None:
        side_table.replace_rows(cursor, job.rebuild_id, bucket, rows, faults)

    while True:
        folded, changed = fold_contained(fold, _changed_rows, raising, faults)
        if found := _refused(cursor, changed, put):
            faults |= found
        else:
            return folded


def _changed_rows(fold: BucketFold) -> list[ModelRegistrationProjection]:
    return [change.row for change in fold.changes()]


def _refused(cursor: Cursor, rows: Rows, put: Callable[[Rows], None]) -> dict[bytes, Fault]:
    """Put rows into the side table; whose can't be, and then none were."""
    try:
        with cursor.connection.transaction():
            put(rows)
        return {}
    except Exception as error:
        by_node = {row.entity_id.bytes: row for row in rows}

        def attempt(nodes: Sequence[bytes]) -> None:
            with cursor.connection.transaction(force_rollback=True):
                put([by_node[node] for node in nodes])

        found = culprits_of(error, list(by_node), attempt)
        return {node: fault_of(theirs) for node, theirs in found.items()}

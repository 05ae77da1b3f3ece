"""Replay on Spark: a part of the log folded again, without a decider, bucket by bucket.

Pages are bucketed by entity, so a task takes its buckets' row groups straight from the store, one
chunk after the other: memory is that of one bucket's nodes and one chunk, however long the history.
Whatever is about to be folded is verified first, against the checksums of the table. A node that
raises has no row in a replay; the others have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.base.errors import OnexError
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.engines.postgres.database import Database
from onex_platform.engines.spark.tasks import spark_type
from onex_platform.ingest.event_schema import bucket_of
from onex_platform.ingest.registration_pages import LogChunk, read_chunk
from onex_platform.log.page_layout import PageLayout
from onex_platform.log.page_log import PageLog
from onex_platform.log.replay import PageRef, worthwhile_chunks
from onex_platform.log.store import PageDamagedError, PageMissingError, PageStore, StoredPage
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.containment import Fault, fold_contained
from onex_platform.projections.fold.row_columns import to_rows
from onex_platform.projections.history.state_files import (
    THE_BEGINNING,
    StateFile,
    StoredState,
    read_state,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_BASE = Fault("It was set aside when the stored hour was written from which this began.")

# What a task does with its buckets: its own number and theirs, to the rows that it reports.
BucketWork = Callable[[int, list[int]], Iterator[pa.RecordBatch]]

_PROBLEMS = pa.schema([pa.field("key", pa.string()), pa.field("problem", pa.string())])
_SHOWN_PAGES = 5
T = TypeVar("T")


class DamagedLogError(OnexError):
    """Pages of the log are missing or not what was written; nothing was folded."""


class DamagedHistoryError(OnexError):
    """A stored state is missing or not what was written; nothing was folded."""


class Scope(NamedTuple):
    """Which nodes a replay is about: some, those touched at some positions, those with ids in a
    range (both ends included); by default all."""

    nodes: frozenset[UUID] | None = None
    window: tuple[int, int] | None = None
    ids: tuple[UUID, UUID] | None = None

    @property
    def is_listed(self) -> bool:
        """Whether each of its nodes is known by name, and not by where its id lies."""
        return self.nodes is not None or self.window is not None


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A part of the log, from `start` up to and without `end`; it travels to the workers.

    `base` is the state at `start`, unless that is the beginning or the caller has it elsewhere; it
    lacks the rows of nodes that are `unknown`, which therefore can't be folded onto it.
    `window_pages` are the pages that a scope's window needs, if it has one.
    """

    domain: str
    store: PageStore
    buckets: int
    start: int
    end: int
    pages: tuple[PageRef, ...]
    base: tuple[StateFile, ...] = ()
    unknown: frozenset[bytes] = frozenset()
    scope: Scope = EVERYTHING
    window_pages: tuple[PageRef, ...] = ()

    @property
    def size(self) -> int:
        """How many events and rows are read at most."""
        return sum(page.events for page in self.pages) + sum(file.nodes for file in self.base)


@dataclass(frozen=True, slots=True)
class Replayed(Generic[T]):
    """One bucket folded again, what was made of it, and why nodes are not in it."""

    fold: BucketFold
    rendered: T
    faults: dict[bytes, Fault]


class _Stored(NamedTuple):
    """An object that a replay reads, and the checksum that it was written with."""

    key: str
    checksum: str


def plan_replay(
    log: PageLog,
    start: int,
    end: int,
    *,
    base: StoredState = THE_BEGINNING,
    scope: Scope = EVERYTHING,
    spark: SparkSession | None = None,
) -> ReplayJob:
    """A part of the log, verified on Spark or, without it, in this process.

    Raises `DamagedLogError` or `DamagedHistoryError` if something is not as it was written.
    """
    pages = _needed(log, scope, start, end)
    window = [] if scope.window is None else _needed(log, scope, *scope.window)
    _verify(log, {page.key: page for page in (*pages, *window)}, base.files, spark)
    return ReplayJob(
        domain=log.domain,
        store=log.store,
        buckets=log.buckets,
        start=start,
        end=end,
        pages=tuple(map(PageRef.of, pages)),
        base=base.files,
        unknown=frozenset(node.bytes for node in base.set_aside),
        scope=scope,
        window_pages=tuple(map(PageRef.of, window)),
    )


def folded_to(database: Database, domain: str) -> int:
    """How far the log is complete: below this, whatever was to be decided has been."""
    with database.transaction() as cursor:
        return fold_position(cursor, domain)


def tasks_for(log: PageLog, amount: int) -> int:
    """How many tasks are worth their start for so many events or rows."""
    return 1 if amount <= log.settings.pages.small_cut_events else log.buckets


def replay_bucket(
    job: ReplayJob,
    bucket: int,
    render: Callable[[BucketFold], T],
    nodes: set[bytes] | None = None,
    faults: dict[bytes, Fault] | None = None,
) -> Replayed[T]:
    """Fold one bucket's part of the log onto its base; of these nodes, or of all in the scope.

    Without those of whom `faults` are known already, and without whoever raises.
    """

    def fold(excluded: frozenset[bytes]) -> BucketFold:
        base = _inside(read_state(job.store, job.base, bucket), nodes, job.scope.ids)
        folded = BucketFold(job.domain, to_rows(base), excluded=excluded)
        for chunk in bucket_chunks(job, bucket, nodes):
            folded.feed(*chunk)
        return folded

    known = _unknown(job, bucket, nodes) | (faults or {})
    return Replayed(*fold_contained(fold, render, frozenset(), known), known)


def rows_of(fold: BucketFold) -> list[ModelRegistrationProjection]:
    """What a replay is made into by those who want its rows."""
    return list(fold.rows())


def _unknown(job: ReplayJob, bucket: int, nodes: set[bytes] | None) -> dict[bytes, Fault]:
    """The nodes of a bucket, within the scope, that the base does not know."""
    ours = [node for node in job.unknown if bucket_of(node, job.buckets) == bucket]
    inside = _inside(pa.table({"entity_id": pa.array(ours, pa.binary())}), nodes, job.scope.ids)
    return dict.fromkeys(inside["entity_id"].to_pylist(), _NO_BASE)


def bucket_chunks(job: ReplayJob, bucket: int, nodes: set[bytes] | None) -> Iterator[LogChunk]:
    """One bucket's events, chunk by chunk in log order; of these nodes, or of all in the scope."""
    for pages in worthwhile_chunks(job.pages, bucket):
        chunk = read_chunk(job.store, pages, bucket, job.start, job.end)
        yield LogChunk(*(_inside(table, nodes, job.scope.ids) for table in chunk))


def listed_nodes(job: ReplayJob, bucket: int) -> set[bytes] | None:
    """The nodes of a bucket that the scope lists; None if it does not list its nodes."""
    scope = job.scope
    if scope.nodes is not None:
        return {n.bytes for n in scope.nodes if bucket_of(n.bytes, job.buckets) == bucket}
    if scope.window is None:
        return None
    touched: set[bytes] = set()
    for pages in worthwhile_chunks(job.window_pages, bucket):
        for table in read_chunk(job.store, pages, bucket, *scope.window):
            touched.update(table["entity_id"].unique().to_pylist())
    return touched


def by_bucket(
    spark: SparkSession, buckets: int, tasks: int, work: BucketWork, schema: pa.Schema
) -> DataFrame:
    """`work` on Spark for every bucket, several to a task if there are fewer tasks."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        context = TaskContext.get()
        if numbers:
            yield from work(0 if context is None else context.partitionId(), numbers)

    return spark.range(0, buckets, 1, tasks).mapInArrow(run, spark_type(schema))


def _find_problems(
    log: PageLog, stored: list[_Stored], tasks: int, spark: SparkSession | None
) -> dict[str, str]:
    """What is wrong with stored objects, by key; empty if all are as they were written."""
    if spark is None:
        found = [(item.key, _problem_of(log.store, item)) for item in stored]
        return {key: problem for key, problem in found if problem is not None}
    if not stored:
        return {}
    store = log.store

    def check(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
        found = [(stored[number].key, _problem_of(store, stored[number])) for number in numbers]
        rows = [{"key": key, "problem": problem} for key, problem in found if problem is not None]
        yield pa.RecordBatch.from_pylist(rows, _PROBLEMS)

    rows = by_bucket(spark, len(stored), min(tasks, len(stored)), check, _PROBLEMS).collect()
    return {row.key: row.problem for row in rows}


def _problem_of(store: PageStore, stored: _Stored) -> str | None:
    try:
        store.read_whole(*stored)
    except PageMissingError:
        return "is missing"
    except PageDamagedError:
        return "is damaged"
    return None


def _needed(log: PageLog, scope: Scope, start: int, end: int) -> list[StoredPage]:
    """The pages at these positions that may hold nodes of the scope."""
    if end <= start:
        return []
    pages = log.table.pages(start, end)
    if scope.nodes is None:
        return list(pages)
    buckets = {bucket_of(node.bytes, log.buckets) for node in scope.nodes}
    return [page for page in pages if buckets & set(page.metadata.bucket_numbers)]


def _verify(
    log: PageLog,
    pages: Mapping[str, StoredPage],
    base: tuple[StateFile, ...],
    spark: SparkSession | None,
) -> None:
    stored = [_Stored(page.key, page.checksum) for page in pages.values()]
    stored += [_Stored(file.key, file.checksum) for file in base]
    size = sum(page.metadata.event_count for page in pages.values())
    problems = _find_problems(log, stored, tasks_for(log, size), spark)
    for file in base:
        if file.key in problems:
            raise DamagedHistoryError(
                f"The stored state {file.key} {problems[file.key]}.",
                hint="Write its hour again with `onex registry history`.",
            )
    bad = [page for page in pages.values() if page.key in problems]
    if bad:
        shown = [
            f"{_described(log.layout, page)} {problems[page.key]}" for page in bad[:_SHOWN_PAGES]
        ]
        more = f"; and {len(bad) - len(shown)} more" if len(bad) > len(shown) else ""
        raise DamagedLogError(
            f"{len(bad)} of {len(pages)} pages of the log can't be read: {'; '.join(shown)}{more}.",
            hint="Nothing was changed. Restore them from a copy of the archive; "
            "`onex pages verify` checks all.",
        )


def _described(layout: PageLayout, page: StoredPage) -> str:
    about = page.metadata
    return f"{page.key} ({layout.describe(about.min_position, about.max_position)})"


def _inside(table: pa.Table, nodes: set[bytes] | None, ids: tuple[UUID, UUID] | None) -> pa.Table:
    """The rows of a table that are about nodes of the scope."""
    column = table["entity_id"]
    if nodes is not None:
        return table.filter(pc.is_in(column, value_set=pa.array(sorted(nodes), column.type)))
    if ids is not None:
        low, high = (pa.scalar(end.bytes, column.type) for end in ids)
        return table.filter(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
    return table

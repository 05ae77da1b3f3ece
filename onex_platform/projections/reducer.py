"""The reducer on Spark: the new part of the log, folded onto the current rows.

Pages are bucketed by entity, so a task takes its buckets' row groups straight from the store: the
history is never shuffled. Each task folds, decides, writes a page with what was decided, and hands
rows over through PostgreSQL; the driver then hands the batch to the projector, which commits it in
one transaction, and only there does anything of it become visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa

from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.order import moment_of, position_at
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres import lift_statement_limit, open_engine, transaction
from onex_platform.faults import effect
from onex_platform.pages.archive import PageArchive, durations
from onex_platform.pages.format import EnumPageReason, PageWriter
from onex_platform.pages.ingest import ArrowTask, spark_type
from onex_platform.pages.ledger import recall
from onex_platform.pages.replay import PageRef, read_chunk, worthwhile_chunks
from onex_platform.pages.reports import (
    PAGE_FIELDS,
    reported_pages,
    staged_fields,
    staged_rows,
    store_page,
)
from onex_platform.pages.schema import BEAT_COLUMNS, CAUSE_COLUMNS, bucket_of, to_table
from onex_platform.pages.store import PageStore
from onex_platform.projections import handover
from onex_platform.projections.cursors import fold_position
from onex_platform.projections.handover import Staged
from onex_platform.projections.kernel import BucketFold
from onex_platform.projections.projector import ProjectionBatch, ProjectorRegistration
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.replaying import folded_to
from onex_platform.projections.rows import Written
from onex_platform.resilience import shared_breaker
from onex_platform.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITER = "registry"

# What a task reports: its page of facts if it wrote one, and its account.
_REPORT = pa.schema(
    [
        *PAGE_FIELDS,
        *staged_fields(handover.TABLES),
        pa.field("facts", pa.int64(), nullable=False),
        *(pa.field(outcome.value, pa.int64(), nullable=False) for outcome in EnumOutcome),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """What the tasks of one batch need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store_url: str
    batch_id: UUID
    start: int
    end: int
    buckets: int
    pages: tuple[PageRef, ...]
    policy: RegistrationPolicy | None
    now: datetime


class FoldedBatch(NamedTuple):
    """A batch that was committed (or lost to a rival, and changed nothing)."""

    committed: bool
    start: int
    end: int
    outcomes: Counter[EnumOutcome]
    facts: int
    written: Written


def fold_log(
    spark: SparkSession,
    archive: PageArchive,
    now: datetime,
    policy: RegistrationPolicy | None,
) -> FoldedBatch | None:
    """Fold what the log has beyond the rows; None if there is nothing.

    A batch ends where a cut ends: with the first one that brings it to the settings' size. So the
    rows do not depend on that size, and a backlog becomes batches that can be committed.
    """
    with transaction(archive.engine, archive.breaker) as cursor:
        start = fold_position(cursor, archive.domain)
    end = archive.index.end_of_batch(start, archive.settings.pipeline.fold_events)
    if end <= start:
        return None
    pages = tuple(
        PageRef.of(page) for page in archive.index.pages(start, end, (EnumPageReason.INGEST,))
    )
    job = FoldJob(
        settings=archive.settings,
        domain=archive.domain,
        store_url=archive.store.url,
        batch_id=uuid4(),
        start=start,
        end=end,
        buckets=archive.buckets,
        pages=pages,
        policy=policy,
        now=now,
    )
    reports: list[Any] = []
    if pages:
        small = sum(page.events for page in pages) <= archive.settings.pages.small_cut_events
        tasks = 1 if small else archive.buckets
        with effect("reduce.hand_over"):
            reports = (
                spark.range(0, archive.buckets, 1, tasks)
                .mapInArrow(_folder(job), spark_type(_REPORT))
                .collect()
            )
    with effect("reduce.commit_batch"):
        return _commit(archive, job, reports)


def fold_to_head(
    spark: SparkSession, archive: PageArchive, policy: RegistrationPolicy | None
) -> list[FoldedBatch]:
    """Fold up to where the log's head stands now; the batches that were committed for that."""
    head = position_at(archive.index.head())
    batches = []
    while folded_to(archive) < head:
        batch = fold_log(spark, archive, datetime.now(UTC), policy)
        if batch is not None and batch.committed:  # else a rival was first: go on behind it
            batches.append(batch)
    return batches


def _commit(archive: PageArchive, job: FoldJob, reports: list[Any]) -> FoldedBatch:
    outcomes = Counter(
        {outcome: sum(report[outcome.value] for report in reports) for outcome in EnumOutcome}
    )
    facts = sum(report.facts for report in reports)
    projector = ProjectorRegistration(archive.engine, archive.settings, archive.breaker)
    result = projector.persist_batch(
        ProjectionBatch(
            domain=job.domain,
            start=job.start,
            end=job.end,
            read=outcomes.total(),
            outcomes=outcomes,
            content=Staged(job.batch_id, staged_rows(reports, handover.TABLES)),
            pages=reported_pages(reports),
        )
    )
    if not result.committed:
        return FoldedBatch(False, job.start, job.end, Counter(), 0, Written())
    return FoldedBatch(True, job.start, job.end, outcomes, facts, result.written)


def _folder(job: FoldJob) -> ArrowTask:
    def fold_buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        buckets = [bucket for batch in batches for bucket in batch.column(0).to_pylist()]
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        if buckets:
            yield pa.RecordBatch.from_pylist([_fold_task(job, task, buckets)], _REPORT)

    return fold_buckets


def _fold_task(job: FoldJob, task: int, buckets: list[int]) -> dict[str, Any]:
    """Fold the task's buckets and hand over what they came to."""
    engine = open_engine(job.settings)
    breaker = shared_breaker("PostgreSQL", job.settings.breaker)
    reader = ProjectionReaderRegistration(engine, breaker)
    store = PageStore(job.store_url)
    try:
        fold = _fold_bucket(job, store, reader, buckets[0] if len(buckets) == 1 else None)
        with transaction(engine, breaker) as cursor:
            lift_statement_limit(cursor)
            _drop_known_requests(fold, lambda ids: recall(cursor, job.domain, ids).known)
            staged = handover.hand_over(
                cursor,
                job.batch_id,
                task,
                job.domain,
                fold.changes(),
                [*fold.facts, *fold.announced],
                fold.refused,
            )
    finally:
        engine.dispose()
    outcomes = fold.outcomes
    return {
        "encoded_bytes": 0,
        **_write_facts(job, store, fold.facts),
        **staged,
        "facts": len(fold.facts),
        **{outcome.value: outcomes[outcome] for outcome in EnumOutcome},
    }


def _fold_bucket(
    job: FoldJob, store: PageStore, reader: ProjectionReaderRegistration, bucket: int | None
) -> BucketFold:
    """Fold one bucket's events, or all if None, chunk by chunk."""
    decider = None if job.policy is None else Decider(policy=job.policy, now=job.now)
    columns = BEAT_COLUMNS if decider is None else [*BEAT_COLUMNS, *CAUSE_COLUMNS]
    fold = BucketFold(job.domain, (), decider, live=True)
    for pages in worthwhile_chunks(job.pages, bucket):
        chunk = read_chunk(store, pages, bucket, job.start, job.end, beat_columns=columns)
        named = chain.from_iterable(table["entity_id"].unique().to_pylist() for table in chunk)
        unmet = (UUID(bytes=entity) for entity in fold.strangers(named))
        fold.meet(reader.get_many(unmet, job.domain).values())
        fold.feed(*chunk)
    return fold


def _drop_known_requests(fold: BucketFold, known: Callable[[list[UUID]], frozenset[UUID]]) -> None:
    """A request that an earlier batch made in the same interval is not made again."""
    asked = [f.event_id for f in fold.facts if f.kind is EnumEventKind.INTROSPECTION_REQUESTED]
    if asked:
        fold.withdraw(known(asked))


def _write_facts(job: FoldJob, store: PageStore, facts: list[LogEvent]) -> dict[str, Any]:
    """Archive what the task's buckets decided, as one page."""
    if not facts:
        return {}
    by_bucket: dict[int, list[LogEvent]] = {}
    for fact in facts:
        bucket = bucket_of(fact.entity.entity_id.bytes, job.buckets)
        by_bucket.setdefault(bucket, []).append(fact)
    writer = PageWriter()
    for bucket, part in sorted(by_bucket.items()):
        writer.add(bucket, to_table(part))
    last = moment_of(max(fact.position for fact in facts))
    page = writer.finish(
        page_id=uuid4(),
        domain=job.domain,
        writer_id=WRITER,
        reason=EnumPageReason.DECISION,
        buckets=job.buckets,
        period=last.replace(minute=0, second=0, microsecond=0),
    )
    return store_page(store, page)


def policy_of(settings: Settings) -> RegistrationPolicy | None:
    """The registry's policy, or None where another registry decides."""
    if not settings.registration.decider_enabled:
        return None
    return RegistrationPolicy(
        request_interval=timedelta(seconds=settings.registration.request_interval_seconds),
        durations=durations(settings),
    )

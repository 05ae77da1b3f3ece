"""The reducer on Spark: the new part of the log, folded onto the current rows.

Pages are bucketed by entity, so a task takes its buckets' row groups straight from the store: the
history is never shuffled. Each task folds, decides, writes a page with what was decided, and hands
rows over through PostgreSQL; the driver then hands the batch to the projector, which commits it in
one transaction, and only there does anything of it become visible. Nodes for which something raises
on the way are set aside in the same transaction; everybody else's part is committed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.order import moment_of, position_at
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    database_of,
    lift_statement_limit,
)
from onex_platform.engines.postgres.staging import RowCounts, clear_staging
from onex_platform.engines.spark.tasks import ArrowTask, run_here, spark_type
from onex_platform.ingest.admission.column_values import ID
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.event_schema import (
    BEAT_COLUMNS,
    CAUSE_COLUMNS,
    LOG_SCHEMA,
    buckets_of,
    by_bucket,
)
from onex_platform.ingest.inputs import durations
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason, read_chunk
from onex_platform.log.page_format import PageWriter
from onex_platform.log.page_log import PageLog
from onex_platform.log.replay import PageRef, worthwhile_chunks
from onex_platform.log.store import PageStore
from onex_platform.log.task_reports import (
    PAGE_FIELDS,
    reported_pages,
    staged_fields,
    staged_rows,
    store_page,
)
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.containment import (
    Fault,
    culprits_of,
    fold_contained,
    require_few,
)
from onex_platform.projections.fold.refold import folded_to
from onex_platform.projections.fold.set_aside import excluded_nodes
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.write import staged_batch
from onex_platform.projections.write.outbox import fact_table
from onex_platform.projections.write.projector import ProjectionBatch, ProjectorRegistration
from onex_platform.projections.write.staged_batch import Handed, Staged
from onex_platform.projections.write.upsert import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITER = "registry"
_INGEST = EnumPageReason.INGEST
# How far back a rehearsal looks for a page.
_RECENT = timedelta(minutes=1)

# What a task reports: its page of facts if it wrote one, and its account.
_REPORT = pa.schema(
    [
        *PAGE_FIELDS,
        *staged_fields(staged_batch.TABLES),
        pa.field("facts", pa.int64(), nullable=False),
        pa.field("set_aside", pa.int64(), nullable=False),
        *(pa.field(outcome.value, pa.int64(), nullable=False) for outcome in EnumOutcome),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """What the tasks of one batch need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store: PageStore
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
    log: PageLog,
    now: datetime,
    policy: RegistrationPolicy | None,
) -> FoldedBatch | None:
    """Fold what the log has beyond the rows; None if there is nothing.

    A batch ends where a cut ends: with the first one that brings it to the settings' size. So the
    rows do not depend on that size, and a backlog becomes batches that can be committed.
    """
    with log.database.transaction() as cursor:
        start = fold_position(cursor, log.domain)
    end = CommittedCuts(log).end_of_batch(start, log.settings.pipeline.fold_events)
    if end <= start:
        return None
    pages = tuple(PageRef.of(page) for page in log.table.pages(start, end, (_INGEST,)))
    job = _job(log, start, end, pages, policy, now)
    reports: list[Any] = []
    if pages:
        events, limits = sum(page.events for page in pages), log.settings.pages
        with effect("reduce.hand_over"):
            if events <= limits.events_at_hand:
                reports = _folded_here(job, log.database)
            else:
                tasks = 1 if events <= limits.small_cut_events else log.buckets
                reports = _folded(spark, job, tasks)
    with effect("reduce.commit_batch"):
        return _commit(log, job, reports)


def rehearse_fold(spark: SparkSession, log: PageLog) -> None:
    """Fold the newest page again, without a decider, and drop what comes of it."""
    head = CommittedCuts(log).head()
    recent = log.table.pages(position_at(head - _RECENT), position_at(head), (_INGEST,))
    pages = tuple(PageRef.of(page) for page in deque(recent, maxlen=1))
    if not pages:
        return
    job = _job(log, position_at(head - _RECENT), position_at(head), pages, None, head)
    _folded(spark, job, tasks=1)
    with log.database.transaction() as cursor:
        clear_staging(cursor, staged_batch.TABLES, job.batch_id)


def fold_to(
    spark: SparkSession,
    log: PageLog,
    policy: RegistrationPolicy | None,
    moment: datetime | None = None,
) -> list[FoldedBatch]:
    """Fold up to a moment; the batches that were committed for that.

    The end is where the log's head stands now, if no moment is given or the head is earlier.
    """
    head = CommittedCuts(log).head()
    end = position_at(head if moment is None else min(moment, head))
    batches = []
    while folded_to(log.database, log.domain) < end:
        batch = fold_log(spark, log, datetime.now(UTC), policy)
        if batch is not None and batch.committed:  # else a rival was first: go on behind it
            batches.append(batch)
    return batches


def _job(
    log: PageLog,
    start: int,
    end: int,
    pages: tuple[PageRef, ...],
    policy: RegistrationPolicy | None,
    now: datetime,
) -> FoldJob:
    return FoldJob(
        settings=log.settings,
        domain=log.domain,
        store=log.store,
        batch_id=uuid4(),
        start=start,
        end=end,
        buckets=log.buckets,
        pages=pages,
        policy=policy,
        now=now,
    )


def _folded(spark: SparkSession, job: FoldJob, tasks: int) -> list[Any]:
    """Let tasks fold and hand over; their reports."""
    buckets = spark.range(0, job.buckets, 1, tasks)
    return buckets.mapInArrow(_folder(job), spark_type(_REPORT)).collect()


def _folded_here(job: FoldJob, database: Database) -> list[Any]:
    """The same without Spark: to start its tasks takes longer than to fold a few events."""
    buckets = pa.record_batch({"id": list(range(job.buckets))})
    return run_here(_folder(job, database), [buckets])


def _commit(log: PageLog, job: FoldJob, reports: list[Any]) -> FoldedBatch:
    outcomes = Counter(
        {outcome: sum(report[outcome.value] for report in reports) for outcome in EnumOutcome}
    )
    facts = sum(report.facts for report in reports)
    projector = ProjectorRegistration(log.database, log.settings)
    result = projector.persist_batch(
        ProjectionBatch(
            domain=job.domain,
            start=job.start,
            end=job.end,
            read=outcomes.total(),
            outcomes=outcomes,
            set_aside=sum(report.set_aside for report in reports),
            content=Staged(job.batch_id, staged_rows(reports, staged_batch.TABLES)),
            pages=reported_pages(REGISTRATION_PAGES, reports),
        )
    )
    if not result.committed:
        return FoldedBatch(False, job.start, job.end, Counter(), 0, Written())
    return FoldedBatch(True, job.start, job.end, outcomes, facts, result.written)


def _folder(job: FoldJob, opened: Database | None = None) -> ArrowTask:
    def fold_buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        buckets = [bucket for batch in batches for bucket in batch.column(0).to_pylist()]
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        if buckets:
            yield pa.RecordBatch.from_pylist([_fold_task(job, task, buckets, opened)], _REPORT)

    return fold_buckets


def _fold_task(
    job: FoldJob, task: int, buckets: list[int], opened: Database | None
) -> dict[str, Any]:
    """Fold the task's buckets and hand over what they came to, without whoever raises."""
    bucket = buckets[0] if len(buckets) == 1 else None
    faults: dict[bytes, Fault] = {}
    with database_of(job.settings, opened) as database:
        reader = ProjectionReaderRegistration(database)
        with database.transaction() as cursor:
            aside = excluded_nodes(cursor, job.domain)
        staged: RowCounts | None = None
        while staged is None:
            fold, (changed, facts) = fold_contained(
                lambda without: _fold_bucket(job, reader, bucket, without),
                lambda fold: (fold.changed(), fold.fact_table()),
                aside,
                faults,
            )
            with database.transaction() as cursor:
                lift_statement_limit(cursor)
                known = _known_requests(job, cursor, facts)
                facts = facts.filter(pc.invert(pc.is_in(facts["event_id"], known)))
                published = pa.concat_tables([facts, fact_table(fold.announced)])
                handed = Handed(changed, published, fold.refused, fold.aside, faults)
                staged = _hand_over(job, cursor, task, handed, faults)
    # A request that an earlier batch made in the same interval is not made again.
    outcomes = fold.outcomes - Counter({EnumOutcome.APPLIED: len(known)})
    return {
        "encoded_bytes": 0,
        **_write_facts(job, facts.select(LOG_SCHEMA.names)),
        **staged,
        "facts": len(facts),
        "set_aside": fold.set_aside,
        **{outcome.value: outcomes[outcome] for outcome in EnumOutcome},
    }


def _hand_over(
    job: FoldJob, cursor: Cursor, task: int, handed: Handed, faults: dict[bytes, Fault]
) -> RowCounts | None:
    """Stage what the task came to; None: somebody's part can't be, and is among the faults now."""
    try:
        with cursor.connection.transaction():
            return staged_batch.hand_over(cursor, job.batch_id, task, job.domain, handed)
    except Exception as error:
        found = staged_batch.unstaged(cursor, error, job.batch_id, task, job.domain, handed)
        faults |= found
        require_few(faults, len(handed.nodes), next(iter(found.values())).error)
        return None


def _fold_bucket(
    job: FoldJob,
    reader: ProjectionReaderRegistration,
    bucket: int | None,
    excluded: frozenset[bytes],
) -> BucketFold:
    """Fold one bucket's events, or all if None, chunk by chunk."""
    decider = None if job.policy is None else Decider(policy=job.policy, now=job.now)
    columns = BEAT_COLUMNS if decider is None else [*BEAT_COLUMNS, *CAUSE_COLUMNS]
    fold = BucketFold(job.domain, (), decider, live=True, excluded=excluded)
    for pages in worthwhile_chunks(job.pages, bucket):
        chunk = read_chunk(job.store, pages, bucket, job.start, job.end, beat_columns=columns)
        named = chain.from_iterable(table["entity_id"].unique().to_pylist() for table in chunk)
        _meet(fold, reader, job.domain, list(fold.strangers(named)))
        fold.feed(*chunk)
    return fold


def _meet(
    fold: BucketFold, reader: ProjectionReaderRegistration, domain: str, nodes: list[bytes]
) -> None:
    """Let the fold know the rows of nodes; one that can't be read is its node's fault."""
    try:
        fold.meet_columns(reader.columns_of(nodes, domain))
    except Exception as error:
        found = culprits_of(error, nodes, lambda some: reader.columns_of(some, domain))
        for node, theirs in found.items():
            fold.blame(node, theirs)
        well = [node for node in nodes if node not in found]
        fold.meet_columns(reader.columns_of(well, domain))


def _known_requests(job: FoldJob, cursor: Cursor, facts: pa.Table) -> pa.Array:
    """The ids of requests among the facts that an earlier batch made in the same interval."""
    asked = facts.filter(pc.equal(facts["kind"], EnumEventKind.INTROSPECTION_REQUESTED.value))
    ids = [UUID(bytes=event_id) for event_id in asked["event_id"].to_pylist()]
    known = recall(cursor, job.domain, ids).known if ids else ()
    return pa.array([event_id.bytes for event_id in known], ID)


def _write_facts(job: FoldJob, facts: pa.Table) -> dict[str, Any]:
    """Archive what the task's buckets decided, as one page."""
    if not len(facts):
        return {}
    writer = PageWriter(REGISTRATION_PAGES)
    for bucket, part in by_bucket(
        facts, buckets_of(facts["entity_id"].combine_chunks(), job.buckets)
    ):
        writer.add(bucket, part)
    last = moment_of(pc.max(facts["position"]).as_py())
    page = writer.finish(
        page_id=uuid4(),
        domain=job.domain,
        writer_id=WRITER,
        reason=EnumPageReason.DECISION,
        buckets=job.buckets,
        period=last.replace(minute=0, second=0, microsecond=0),
    )
    return store_page(job.store, page)


def policy_of(settings: Settings) -> RegistrationPolicy | None:
    """The registry's policy, or None where another registry decides."""
    if not settings.registration.decider_enabled:
        return None
    return RegistrationPolicy(
        request_interval=timedelta(seconds=settings.registration.request_interval_seconds),
        durations=durations(settings),
    )

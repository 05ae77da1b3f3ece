"""Ingest on Spark: one cut of the input topics becomes pages of the log.

Tasks read exact offset ranges, admit or park every record, and meet by bucket; each then numbers
its events, writes its pages to the store and stages ids and parked records in PostgreSQL. Nothing
of that is part of the log until the driver commits the cut in one transaction: a crash before it
leaves orphan files and staged rows, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial, reduce
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa

from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import IntakeRules
from onex_platform.engines.postgres.database import Database, database_of, lift_statement_limit
from onex_platform.engines.spark.tasks import ArrowTask, run_here, spark_type
from onex_platform.engines.spark.worker import keep_large_arrays_apart
from onex_platform.ingest.admission.admit import Admitted, admit_records
from onex_platform.ingest.admission.echo import without_echo
from onex_platform.ingest.admission.fast_path import InputTopic
from onex_platform.ingest.admission.header_columns import Findings
from onex_platform.ingest.cuts import staged_rows as staging
from onex_platform.ingest.cuts.committed_cuts import CommittedCuts, CutAccount
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition
from onex_platform.ingest.cuts.kafka_source import records_on_spark
from onex_platform.ingest.cuts.shuffle import (
    PACK,
    echoes_of,
    findings_of,
    packs_of,
    told_besides,
    unpacked,
    warnings_of,
)
from onex_platform.ingest.cuts.sizing import OverloadError, gathered, sliced, watched
from onex_platform.ingest.deduplication import published, recall
from onex_platform.ingest.event_schema import PARKED_SCHEMA, buckets_of, by_bucket, to_table
from onex_platform.ingest.numbering import enter_log
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason
from onex_platform.log.page_format import EncodedPage, PageWriter
from onex_platform.log.store import PageStore, StoredPage
from onex_platform.log.task_reports import (
    PAGE_FIELDS,
    reported_pages,
    staged_fields,
    staged_rows,
    store_page,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITER = "ingest"
_TICK = timedelta(milliseconds=1)

# What a task reports: a page that it wrote, or the rest of its account.
_REPORT = pa.schema(
    [
        *PAGE_FIELDS,
        pa.field("duplicates", pa.int64(), nullable=False),
        *staged_fields(staging.TABLES),
        pa.field("findings", pa.string()),
        pa.field("echoes", pa.string()),
        # Bytes needed ÷ bytes allowed; above one the task wrote nothing.
        pa.field("load", pa.float64(), nullable=False),
    ]
)
# Admitted at once: little enough to stay in the processor's cache, enough to share a call's cost.
_ADMITTED_BYTES = 8 * 1024**2
# Packed at once: compressed in larger pieces, events take less space and time.
_PACKED_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """What the tasks of one cut need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store: PageStore
    batch_id: UUID
    cut: Cut
    topics: dict[str, InputTopic]
    rules: IntakeRules
    buckets: int
    read_at: datetime
    whole: bool = False  # can't be divided: tasks hold what they must

    @property
    def task_bytes(self) -> float:
        """How much one task may hold."""
        return inf if self.whole else self.settings.pages.task_bytes


class Ingested(NamedTuple):
    """What became of a cut's records; None: of nothing, because a task's load was above one."""

    account: CutAccount | None
    load: float


def ingest(
    spark: SparkSession,
    job: IngestJob,
    cuts: CommittedCuts,
    inbox: list[LogEvent],
    at_hand: list[pa.RecordBatch] | None = None,
) -> Ingested:
    """Take the cut into the log, unless it is too large for a task; without Spark if its records
    are at hand."""
    small = job.cut.records + len(inbox) <= job.settings.pages.small_cut_events
    at_once = small and not job.whole
    try:
        tasks = 1 if at_once else job.buckets
        return _ingest(spark, job, cuts, inbox, tasks=tasks, at_hand=at_hand)
    except staging.DuplicateAcrossTasksError:
        # One task sees every id, so it can tell which of two came first.
        return _ingest(spark, replace(job, batch_id=uuid4()), cuts, inbox, tasks=1)


def _ingest(
    spark: SparkSession,
    job: IngestJob,
    cuts: CommittedCuts,
    inbox: list[LogEvent],
    *,
    tasks: int,
    at_hand: list[pa.RecordBatch] | None = None,
) -> Ingested:
    reports = []
    if job.cut.ranges or inbox:
        with effect("ingest.write_pages"):
            if at_hand is not None:
                reports = run_here(_single_writer(job, inbox, cuts.database), at_hand)
            else:
                written = _written_at_once if tasks == 1 else _written_by_bucket
                reports = written(spark, job, inbox).collect()
    pages, staged = (
        reported_pages(REGISTRATION_PAGES, reports),
        staged_rows(reports, staging.TABLES),
    )
    load = max((report.load for report in reports), default=0.0)
    if load > 1:
        _drop(job, cuts, pages)
        return Ingested(None, load)
    findings = findings_of(report.findings for report in reports)
    echoes = echoes_of(report.echoes for report in reports)
    echoed = sum(run.end - run.start for run in echoes)
    account = CutAccount(
        archived=sum(page.metadata.event_count for page in pages),
        parked=staged["staged_parked"],
        duplicates=sum(report.duplicates for report in reports) + echoed,
        echoes=echoed,
    )
    facts, floor = [fact.event_id for fact in inbox], job.rules.ledger_floor
    try:
        with effect("ingest.commit_cut"):
            cuts.commit(
                job.cut, job.batch_id, pages, account, facts, staged, floor, findings, echoes
            )
    except staging.DuplicateAcrossTasksError:
        _drop(job, cuts, pages)
        raise
    return Ingested(account, load)


def rehearse(spark: SparkSession, job: IngestJob, cuts: CommittedCuts) -> None:
    """Do everything for a cut but commit it, and drop what came of it."""
    reports = _written_at_once(spark, job, []).collect()
    _drop(job, cuts, reported_pages(REGISTRATION_PAGES, reports))


def _drop(job: IngestJob, cuts: CommittedCuts, pages: Iterable[StoredPage]) -> None:
    """Remove what tasks wrote for a cut that is not to be committed."""
    with effect("ingest.drop_pages"):
        for page in pages:
            job.store.delete(page.key)
        cuts.drop_staged(job.batch_id)


def _written_at_once(spark: SparkSession, job: IngestJob, inbox: list[LogEvent]) -> DataFrame:
    """One task reads, admits, numbers and writes everything: less work than to hand it on."""
    found = records_on_spark(spark, job.settings, job.cut) if job.cut.ranges else _nothing(spark)
    return found.coalesce(1).mapInArrow(_single_writer(job, inbox), spark_type(_REPORT))


def _nothing(spark: SparkSession) -> DataFrame:
    """No records, for one task."""
    return spark.range(0, 1, 1, 1).where("id < 0")


def _written_by_bucket(spark: SparkSession, job: IngestJob, inbox: list[LogEvent]) -> DataFrame:
    """Tasks admit or park what they read; then each of others writes its buckets."""
    packs = []
    if job.cut.ranges:
        packs.append(
            records_on_spark(spark, job.settings, job.cut).mapInArrow(
                _admitter(job), spark_type(PACK)
            )
        )
    if inbox:
        facts = pa.Table.from_batches(packs_of(_facts(inbox), job.buckets))
        packs.append(spark.createDataFrame(facts, spark_type(PACK)))
    together = reduce(lambda one, other: one.union(other), packs)
    return together.repartition(job.buckets, "bucket").mapInArrow(
        _bucket_writer(job), spark_type(_REPORT)
    )


def _admitter(job: IngestJob) -> ArrowTask:
    def admit_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = watched(batches, job.task_bytes, lambda batch: _reading(job, batch))
        try:
            for parts in gathered(_admitted(job, records), _PACKED_BYTES, Admitted.size):
                yield from packs_of(_together(parts), job.buckets)
        except OverloadError as overload:
            yield from warnings_of(overload.load, job.buckets)

    return admit_all


def _reading(job: IngestJob, batch: pa.RecordBatch) -> tuple[float, int]:
    """How many bytes a task may read, and how many records it has to: those of one partition.

    It does not hold them. But if every task reads more than its share of what all writers hold, one
    of them will have too much; to find out only then would cost reading all of it.
    """
    start, end = job.cut.ranges[
        InputPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
    ]
    share = job.buckets * (end - start) / job.cut.records
    return job.task_bytes * max(1, share), end - start


def _together(parts: Iterable[Admitted]) -> Admitted:
    events, parked, findings, echoes = zip(*parts, strict=True)
    return Admitted(
        pa.concat_tables(events),
        pa.concat_tables(parked),
        sum(findings, start=Findings()),
        list(chain.from_iterable(echoes)),
    )


def _admitted(
    job: IngestJob, batches: Iterable[pa.RecordBatch], opened: Database | None = None
) -> Iterator[Admitted]:
    with database_of(job.settings, opened) as database:
        lookup = partial(published, database, job.domain)
        for some in gathered(_slices(batches), _ADMITTED_BYTES, lambda batch: batch.nbytes):
            records = pa.Table.from_batches(some)
            records, echoes = without_echo(records, job.topics, job.rules, lookup)
            admitted = admit_records(records, job.topics, job.rules, job.read_at)
            yield admitted._replace(echoes=echoes)


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.nbytes > _ADMITTED_BYTES:
            keep_large_arrays_apart()
        yield from sliced(batch, _ADMITTED_BYTES)


def _facts(inbox: list[LogEvent]) -> Admitted:
    return Admitted(to_table(inbox), PARKED_SCHEMA.empty_table(), Findings())


def _single_writer(
    job: IngestJob, inbox: list[LogEvent], opened: Database | None = None
) -> ArrowTask:
    """One task for everything; `opened` is for one that runs where the cut is taken."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = watched(batches, job.task_bytes, lambda _: (job.task_bytes, job.cut.records))
        try:
            admitted = _together([_facts(inbox), *_admitted(job, records, opened)])
            load = admitted.size() / job.task_bytes
        except OverloadError as overload:
            admitted, load = _facts([]), overload.load
        yield from _reported(job, admitted, load, one_page=not job.whole, opened=opened)

    return write


def _bucket_writer(job: IngestJob) -> ArrowTask:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        admitted, load = unpacked(batches, job.task_bytes)
        yield from _reported(job, admitted, load, one_page=False)

    return write


def _reported(
    job: IngestJob,
    admitted: Admitted,
    load: float,
    *,
    one_page: bool,
    opened: Database | None = None,
) -> Iterator[pa.RecordBatch]:
    """What a task did with what was admitted, or that it was too much."""
    from pyspark import TaskContext

    reports = []
    if load > 1:
        reports.append(_nothing_written())
    elif len(admitted.events) or len(admitted.parked):
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        reports += _write_task(job, task, admitted, one_page, opened)
    elif told_besides(admitted):
        reports.append(_nothing_written())
    if reports and load <= 1:
        reports[-1] |= told_besides(admitted)
    if reports:
        rows = [report | {"load": load} for report in reports]
        yield pa.RecordBatch.from_pylist(rows, _REPORT)


def _nothing_written() -> dict[str, Any]:
    return {"encoded_bytes": 0, "duplicates": 0, **dict.fromkeys(staging.TABLES, 0)}


def _write_task(
    job: IngestJob, task: int, admitted: Admitted, one_page: bool, opened: Database | None
) -> list[dict[str, Any]]:
    """Number, write and stage what was admitted for one task; what it did."""
    with database_of(job.settings, opened) as database, database.transaction() as cursor:
        lift_statement_limit(cursor)

        def known_ids(ids: list[bytes]) -> set[bytes]:
            known = recall(cursor, job.domain, [item.hex() for item in ids]).known
            return {item.bytes for item in known}

        events = enter_log(admitted.events, job.cut.closed_before, job.cut.instant, known_ids)
        staged = staging.stage(cursor, job.batch_id, task, events, admitted.parked)
    reports = [
        {**store_page(job.store, page), "duplicates": 0, **dict.fromkeys(staging.TABLES, 0)}
        for page in _pages(job, events, one_page)
    ]
    duplicates = pa.compute.sum(events["duplicate"]).as_py() or 0
    return [*reports, {"encoded_bytes": 0, "duplicates": duplicates, **staged}]


def _pages(job: IngestJob, events: pa.Table, one_page: bool) -> Iterator[EncodedPage]:
    """The task's events as pages: one for all its buckets, or one for each, or more if large."""
    numbers = buckets_of(events["entity_id"].combine_chunks(), job.buckets)
    writer = PageWriter(REGISTRATION_PAGES)
    for bucket, rows in by_bucket(events, numbers):
        for part in REGISTRATION_PAGES.stretches(rows, len(rows), job.settings.pages.task_bytes):
            writer.add(bucket, part)
            if not one_page:
                yield _finish(job, writer)
                writer = PageWriter(REGISTRATION_PAGES)
    if one_page and len(events):
        yield _finish(job, writer)


def _finish(job: IngestJob, writer: PageWriter) -> EncodedPage:
    return writer.finish(
        page_id=uuid4(),
        domain=job.domain,
        writer_id=WRITER,
        reason=EnumPageReason.INGEST,
        buckets=job.buckets,
        period=period_of(job.cut),
    )


def period_of(cut: Cut) -> datetime:
    """The hour that a cut belongs to; a cut never spans two."""
    return (cut.instant - _TICK).replace(minute=0, second=0, microsecond=0)

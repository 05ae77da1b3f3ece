"""Ingest on Spark: one cut of the input topics becomes pages of the log.

Tasks read exact offset ranges, admit or park every record, and meet by bucket; each then numbers
its events, writes its pages to the store and stages ids and parked records in PostgreSQL. Nothing
of that is part of the log until the driver commits the cut in one transaction: a crash before it
leaves orphan files and staged rows, which nobody reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import IntakeRules
from onex_platform.engines.postgres import open_engine, transaction
from onex_platform.engines.spark import kafka_options
from onex_platform.errors import InfraUnavailableError
from onex_platform.faults import effect
from onex_platform.pages.cuts import Cut
from onex_platform.pages.entry import (
    InputTopic,
    admit_batch,
    event_entries,
    events_of,
    parked_of,
)
from onex_platform.pages.format import EncodedPage, EnumPageReason, PageWriter
from onex_platform.pages.index import CutAccount, PageIndex
from onex_platform.pages.ledger import recall
from onex_platform.pages.numbering import enter_log
from onex_platform.pages.reports import PAGE_FIELDS, reported_pages, store_page
from onex_platform.pages.schema import ENTRY_SCHEMA, bucket_of
from onex_platform.pages.staging import DuplicateAcrossTasksError, stage
from onex_platform.pages.store import PageStore
from onex_platform.resilience import shared_breaker
from onex_platform.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

WRITER = "ingest"
_TICK = timedelta(milliseconds=1)

# What a task reports: a page that it wrote, or the rest of its account.
_REPORT = pa.schema(
    [
        *PAGE_FIELDS,
        pa.field("duplicates", pa.int64(), nullable=False),
        pa.field("parked", pa.int64(), nullable=False),
    ]
)
# Entries of one bucket on their way from task to task: as Arrow bytes, which Spark need not take
# apart into rows and put together again.
_PACK = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("entries", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """What the tasks of one cut need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store_url: str
    batch_id: UUID
    cut: Cut
    topics: dict[str, InputTopic]
    rules: IntakeRules
    buckets: int
    read_at: datetime


def ingest(
    spark: SparkSession, job: IngestJob, index: PageIndex, inbox: list[LogEvent]
) -> CutAccount:
    """Take the cut into the log; what became of its records."""
    small = job.cut.records + len(inbox) <= job.settings.pages.small_cut_events
    try:
        return _ingest(spark, job, index, inbox, tasks=1 if small else job.buckets)
    except DuplicateAcrossTasksError:
        # One task sees every id, so it can tell which of two came first.
        return _ingest(spark, replace(job, batch_id=uuid4()), index, inbox, tasks=1)


def _ingest(
    spark: SparkSession, job: IngestJob, index: PageIndex, inbox: list[LogEvent], *, tasks: int
) -> CutAccount:
    reports = []
    if job.cut.ranges or inbox:
        with effect("ingest.write_pages"):
            written = _written_at_once if tasks == 1 else _written_by_bucket
            reports = written(spark, job, inbox).collect()
    pages = reported_pages(reports)
    account = CutAccount(
        archived=sum(page.metadata.event_count for page in pages),
        parked=sum(report.parked for report in reports),
        duplicates=sum(report.duplicates for report in reports),
    )
    with effect("ingest.commit_cut"):
        index.commit_cut(job.cut, job.batch_id, pages, account, [fact.event_id for fact in inbox])
    return account


def _written_at_once(spark: SparkSession, job: IngestJob, inbox: list[LogEvent]) -> DataFrame:
    """One task reads, admits, numbers and writes everything: less work than to hand it on."""
    records = _records(spark, job).coalesce(1) if job.cut.ranges else _nothing(spark)
    return records.mapInArrow(_single_writer(job, inbox), spark_type(_REPORT))


def _nothing(spark: SparkSession) -> DataFrame:
    """No records, for one task."""
    return spark.range(0, 1, 1, 1).where("id < 0")


def _written_by_bucket(spark: SparkSession, job: IngestJob, inbox: list[LogEvent]) -> DataFrame:
    """Tasks admit or park what they read; then each of others writes its buckets."""
    packs = []
    if job.cut.ranges:
        packs.append(_records(spark, job).mapInArrow(_admitter(job), spark_type(_PACK)))
    if inbox:
        facts = pa.Table.from_batches([event_entries(inbox, job.buckets)])
        packs.append(spark.createDataFrame(pa.Table.from_batches(_packs(facts)), spark_type(_PACK)))
    together = reduce(lambda one, other: one.union(other), packs)
    return together.repartition(job.buckets, "bucket").mapInArrow(
        _bucket_writer(job), spark_type(_REPORT)
    )


def _records(spark: SparkSession, job: IngestJob) -> DataFrame:
    """The cut's records, as Spark's Kafka source shows them."""
    return spark.read.format("kafka").options(**_source_options(job)).load()


def _source_options(job: IngestJob) -> dict[str, str]:
    """Exact offset ranges; records that are gone by now fail the cut instead of shrinking it."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for place, span in job.cut.ranges.items():
        starts.setdefault(place.topic, {})[str(place.partition)] = span.start
        ends.setdefault(place.topic, {})[str(place.partition)] = span.end
    options = kafka_options(job.settings.kafka)
    return options | {
        "assign": json.dumps({topic: sorted(map(int, spans)) for topic, spans in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        # The ranges are there already. At the end of one the client would wait for more, half a
        # second for every partition.
        "kafka.fetch.max.wait.ms": "1",
        # Partitions are assigned, so the group has no members; its name lets the next cut use this
        # one's connections.
        "kafka.group.id": _group_of(tuple(options.items())),
    }


@lru_cache(maxsize=16)
def _group_of(options: tuple[tuple[str, str], ...]) -> str:
    """The name under which Spark keeps connections that were opened with these options, and no
    others: it refuses to use them with different ones."""
    return f"onex-platform-ingest-{uuid4()}"


def _admitter(job: IngestJob) -> ArrowTask:
    def admit_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for entries in _admitted(job, batches):
            yield from _packs(entries)

    return admit_all


def _packs(entries: pa.Table) -> Iterator[pa.RecordBatch]:
    for bucket, part in _by_bucket(entries, entries["bucket"].to_numpy()):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ENTRY_SCHEMA) as stream:
            stream.write_table(part)
        yield pa.RecordBatch.from_pydict(
            {"bucket": [bucket], "entries": [sink.getvalue().to_pybytes()]}, _PACK
        )


def _by_bucket(rows: pa.Table, numbers: NDArray[np.int32]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket; gathered once, because a filter for each would pass all of them."""
    if not len(numbers):  # a partition without records has an empty batch, at least on clusters
        return
    order = np.argsort(numbers, kind="stable")
    gathered = rows.take(pa.array(order)).combine_chunks()
    buckets, starts = np.unique(numbers[order], return_index=True)
    for bucket, start, end in zip(buckets, starts, [*starts[1:], len(order)], strict=True):
        yield int(bucket), gathered.slice(start, end - start)


def _unpacked(packs: Iterable[pa.RecordBatch]) -> pa.Table:
    tables = [
        pa.ipc.open_stream(entries.as_buffer()).read_all()
        for batch in packs
        for entries in batch.column("entries")
    ]
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *tables])


def _admitted(job: IngestJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        yield admit_batch(batch, job.topics, job.rules, job.read_at, job.buckets)


def _single_writer(job: IngestJob, inbox: list[LogEvent]) -> ArrowTask:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts = pa.Table.from_batches([event_entries(inbox, job.buckets)])
        entries = pa.concat_tables([*_admitted(job, batches), facts])
        yield from _reported(job, entries, one_page=True)

    return write


def _bucket_writer(job: IngestJob) -> ArrowTask:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _reported(job, _unpacked(batches), one_page=False)

    return write


def _reported(job: IngestJob, entries: pa.Table, *, one_page: bool) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    if len(entries):
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        yield pa.RecordBatch.from_pylist(_write_task(job, task, entries, one_page), _REPORT)


def _write_task(
    job: IngestJob, task: int, entries: pa.Table, one_page: bool
) -> list[dict[str, Any]]:
    """Number, write and stage the entries of one task; what it did."""
    parked = parked_of(entries)
    engine = open_engine(job.settings)
    breaker = shared_breaker("PostgreSQL", job.settings.breaker)
    try:
        with transaction(engine, breaker) as cursor:

            def known_ids(ids: list[bytes]) -> set[bytes]:
                answer = recall(cursor, job.domain, [UUID(bytes=item) for item in ids])
                if answer.floor != job.rules.ledger_floor:
                    raise InfraUnavailableError(
                        "The ledger was pruned while the cut was read.",
                        hint="Nothing was written; the next run takes the cut again.",
                    )
                return {item.bytes for item in answer.known}

            events = enter_log(events_of(entries), job.cut.closed_before, known_ids)
            stage(cursor, job.batch_id, task, events, parked)
    finally:
        engine.dispose()
    store = PageStore(job.store_url)
    reports = [
        {**store_page(store, page), "duplicates": 0, "parked": 0}
        for page in _pages(job, events, one_page)
    ]
    duplicates = pa.compute.sum(events["duplicate"]).as_py() or 0
    return [*reports, {"encoded_bytes": 0, "duplicates": duplicates, "parked": len(parked)}]


def _pages(job: IngestJob, events: pa.Table, one_page: bool) -> Iterator[EncodedPage]:
    """The task's events as pages: one for all its buckets, or one for each."""
    numbers = np.array(
        [bucket_of(item, job.buckets) for item in events["entity_id"].to_pylist()], np.int32
    )
    writer = PageWriter()
    for bucket, part in _by_bucket(events, numbers):
        writer.add(bucket, part)
        if not one_page:
            yield _finish(job, writer)
            writer = PageWriter()
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


def spark_type(schema: pa.Schema) -> Any:
    """The schema that Spark is told a task returns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)

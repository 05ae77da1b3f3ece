"""Compaction on Spark: many small pages become few, and not one event moves.

What holds, whatever happens and wherever it is killed:

- Only pages wholly below the fold's cursor are touched: nobody enters events there any more.
- Buckets, positions and every event stay. Pages are checked against their checksums before they are
  merged, so damage is reported and never copied.
- Each group of pages is replaced in one transaction of the index: readers see the old set or the
  new one. If a page of it was replaced meanwhile, by a rival or by hand, nothing is changed.
- Old files stay for the grace period, so a reader that began before keeps working; then `sweep`
  deletes them. A reader that takes longer fails with the page's name; it never misses events.
- A crash leaves at worst files that no index names; `onex pages verify` finds them.

A run is capped in groups, its memory by one group per task; `plan` is its dry run. Groups don't
depend on each other: what is done stays done when another one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.database import open_database
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.cut_job import ArrowTask, spark_type
from onex_platform.ingest.index import PageIndex
from onex_platform.log.compaction.merge import merge_group
from onex_platform.log.compaction.planning import CompactionGroup, plan_compaction
from onex_platform.log.store import PageStore, concurrently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS_PER_RUN = 100
PAGES_PER_SWEEP = 10_000

# What became of a group. No merged page and no failure: a rival was faster.
_REPORT = pa.schema(
    [
        pa.field("pages", pa.int64(), nullable=False),
        pa.field("merged_pages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("merged_bytes", pa.int64(), nullable=False),
        pa.field("events", pa.int64(), nullable=False),
        pa.field("failure", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What the tasks of a run need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store_url: str
    groups: tuple[CompactionGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionAccount:
    """What a run did; numbers for metadata, metrics and people."""

    groups: int = 0
    pages: int = 0
    merged_pages: int = 0
    bytes: int = 0
    merged_bytes: int = 0
    events: int = 0
    lost_to_rivals: int = 0
    failures: list[str] = field(default_factory=list)


class Swept(NamedTuple):
    """Files of replaced pages that are gone, or in a dry run could be."""

    pages: int
    bytes: int


def plan(archive: PageArchive, below: int, limit: int | None = None) -> list[CompactionGroup]:
    """What is worth merging now, oldest first; `below` is the fold's cursor, or before it."""
    pages = archive.settings.pages
    groups = plan_compaction(
        archive.index.entries(below),
        below=below,
        small_bytes=pages.compact_below_bytes,
        target_bytes=pages.compact_to_bytes,
    )
    return list(islice(groups, limit))


def compact(
    spark: SparkSession, archive: PageArchive, below: int, limit: int = GROUPS_PER_RUN
) -> CompactionAccount:
    """Merge small pages below the fold's cursor, at most so many groups of them."""
    job = CompactionJob(
        settings=archive.settings,
        domain=archive.domain,
        store_url=archive.store.url,
        groups=tuple(plan(archive, below, limit)),
    )
    if not job.groups:
        return CompactionAccount()
    tasks = len(job.groups)
    reports = spark.range(0, tasks, 1, tasks).mapInArrow(_merger(job), spark_type(_REPORT))
    return _account(reports.collect())


def sweep(archive: PageArchive, limit: int = PAGES_PER_SWEEP, *, dry_run: bool = False) -> Swept:
    """Delete the files of pages that were replaced longer ago than the grace period.

    Files first: their rows are what tells the next sweep what a crash has left to do.
    """
    pages = archive.index.replaced(archive.settings.pages.grace_seconds, limit)
    if not dry_run:
        with effect("sweep.delete_files"):
            for _ in concurrently(archive.store.delete, (page.key for page in pages)):
                pass
        with effect("sweep.forget_pages"):
            archive.index.forget([page.page_id for page in pages])
    return Swept(len(pages), sum(page.encoded_bytes for page in pages))


def _account(reports: list[Any]) -> CompactionAccount:
    done = [report for report in reports if report.merged_pages]
    failures = [report.failure for report in reports if report.failure is not None]
    return CompactionAccount(
        groups=len(done),
        pages=sum(report.pages for report in done),
        merged_pages=sum(report.merged_pages for report in done),
        bytes=sum(report.bytes for report in done),
        merged_bytes=sum(report.merged_bytes for report in done),
        events=sum(report.events for report in done),
        lost_to_rivals=len(reports) - len(done) - len(failures),
        failures=failures,
    )


def _merger(job: CompactionJob) -> ArrowTask:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_database(job.settings) as database:
            index, store = PageIndex(database, job.domain), PageStore(job.store_url)
            for batch in batches:
                reports = [
                    _merge(job, index, store, job.groups[number])
                    for number in batch.column(0).to_pylist()
                ]
                yield pa.RecordBatch.from_pylist(reports, _REPORT)

    return merge


def _merge(
    job: CompactionJob, index: PageIndex, store: PageStore, group: CompactionGroup
) -> dict[str, Any]:
    try:
        merged = merge_group(index, store, group, job.settings.pages.compact_to_bytes)
        failure = None
    except OnexError as error:  # one group's trouble is no reason to undo the others
        merged, failure = [], str(error)
    return {
        "pages": len(group.pages),
        "merged_pages": len(merged),
        "bytes": group.encoded_bytes,
        "merged_bytes": sum(page.encoded_bytes for page in merged),
        "events": group.events,
        "failure": failure,
    }

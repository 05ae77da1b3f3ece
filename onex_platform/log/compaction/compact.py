"""Compaction on Spark: many small pages become few, and not one event moves.

What holds, whatever happens and wherever it is killed:

- Only pages wholly below a position are touched that the caller vouches for: nobody enters events
  there any more.
- Buckets, positions and every event stay. Pages are checked against their checksums before they are
  merged, so damage is reported and never copied.
- Each group of pages is replaced in one transaction: readers see the old set or the new one.
  If a page of it was replaced meanwhile, by a rival or by hand, nothing is changed.
- Old files stay for the grace period, so a reader that began before keeps working; then `sweep`
  deletes them. A reader that takes longer fails with the page's name; it never misses events.
- A crash leaves at worst files that no table names; `onex pages verify` finds them.

A run is capped in groups, its memory by one group per task; `plan` is its dry run. Groups don't
depend on each other: what is done stays done when another one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.engines.spark.tasks import ArrowTask, spark_type
from onex_platform.log.compaction.merge import Merge, merge_group, merge_pages
from onex_platform.log.compaction.planning import CompactionGroup, plan_compaction
from onex_platform.log.page_log import PageLog
from onex_platform.log.store import concurrently

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


class Group(Protocol):
    """Pages that are merged by one task."""

    @property
    def pages(self) -> Sequence[Any]: ...
    @property
    def encoded_bytes(self) -> int: ...
    @property
    def events(self) -> int: ...


_Group = TypeVar("_Group", bound=Group)
Merger = Callable[[_Group], list[int]]
"""Replaces a group's pages; the sizes of those that took their place, none if a rival was faster.
An `OnexError` is that group's failure alone."""


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


def plan(log: PageLog, below: int, limit: int | None = None) -> list[CompactionGroup]:
    """What is worth merging now, oldest first; nothing is entered below `below` any more."""
    groups = plan_compaction(
        log.table.entries(below),
        below=below,
        today=log.layout.moment_of(below).date(),
        small_bytes=log.limits.small_bytes,
        target_bytes=log.limits.target_bytes,
    )
    return list(islice(groups, limit))


def compact(
    spark: SparkSession,
    log: PageLog,
    below: int,
    limit: int = GROUPS_PER_RUN,
    merge: Merge = merge_pages,
) -> CompactionAccount:
    """Merge small pages below a position, at most so many groups of them."""
    address = log.address

    @contextmanager
    def merger() -> Iterator[Merger[CompactionGroup]]:
        with address.open() as opened:
            yield lambda group: [page.encoded_bytes for page in merge_group(opened, group, merge)]

    return merge_on_spark(spark, plan(log, below, limit), merger)


def merge_on_spark(
    spark: SparkSession,
    groups: Sequence[_Group],
    merger: Callable[[], AbstractContextManager[Merger[_Group]]],
) -> CompactionAccount:
    """Merge groups, one task each; `merger` is opened in the worker, for all groups of a task."""
    if not groups:
        return CompactionAccount()
    tasks = len(groups)
    reports = spark.range(0, tasks, 1, tasks).mapInArrow(
        _task(tuple(groups), merger), spark_type(_REPORT)
    )
    return _account(reports.collect())


def sweep(log: PageLog, limit: int = PAGES_PER_SWEEP, *, dry_run: bool = False) -> Swept:
    """Delete the files of pages that were replaced longer ago than the grace period.

    Files first: their rows are what tells the next sweep what a crash has left to do.
    """
    pages = log.table.replaced(log.limits.grace_seconds, limit)
    if not dry_run:
        with effect("sweep.delete_files"):
            for _ in concurrently(log.store.delete, (page.key for page in pages)):
                pass
        with effect("sweep.forget_pages"):
            log.table.forget([page.page_id for page in pages])
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


def _task(
    groups: Sequence[_Group], merger: Callable[[], AbstractContextManager[Merger[_Group]]]
) -> ArrowTask:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with merger() as merge_one:
            for batch in batches:
                reports = [
                    _report(groups[number], merge_one) for number in batch.column(0).to_pylist()
                ]
                yield pa.RecordBatch.from_pylist(reports, _REPORT)

    return merge


def _report(group: _Group, merge: Merger[_Group]) -> dict[str, Any]:
    try:
        merged, failure = merge(group), None
    except OnexError as error:  # one group's trouble is no reason to undo the others
        merged, failure = [], str(error)
    return {
        "pages": len(group.pages),
        "merged_pages": len(merged),
        "bytes": group.encoded_bytes,
        "merged_bytes": sum(merged),
        "events": group.events,
        "failure": failure,
    }

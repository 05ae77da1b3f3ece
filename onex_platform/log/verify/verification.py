"""Proof that the log is whole: nothing missing, nothing twice, every byte as it was written.

`verify_log` asks the index alone: every offset of every input partition is accounted for once, and
every cut's events are in pages. `verify_pages` asks the store: every page lies there, and has the
bytes that it was written with.

Both cost what they look at. A recent stretch and a sample cost the same however long the log is;
the whole takes its time, and Spark reads the pages.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from onex_platform.base.settings import Settings
from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.database import fetch_one, lift_statement_limit, open_database
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.consistent_cut import InputPartition, OffsetRange
from onex_platform.ingest.cuts.cut_job import ArrowTask, spark_type
from onex_platform.ingest.index import BEGINNING, PageEntry, PageIndex, span_text
from onex_platform.log.replay import overlapping
from onex_platform.log.store import (
    PageDamagedError,
    PageMissingError,
    PageStore,
    concurrently,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EnumLogFault(StrEnum):
    """What can be wrong with a log."""

    GAP = "gap"  # offsets, or a cut's events, that are in no page
    OVERLAP = "overlap"  # offsets read twice, cuts across each other, more events than were read
    MISSING = "missing"  # a page that is not in the store
    DAMAGED = "damaged"  # a page with other bytes than were written


class LogFault(NamedTuple):
    """One thing that is wrong, named with its range."""

    fault: EnumLogFault
    sentence: str

    def __str__(self) -> str:
        return f"{self.fault}  {self.sentence}"


@dataclass(slots=True)
class LogAccount:
    """What the index says of cuts and offsets."""

    cuts: int = 0
    offsets: int = 0  # read, or accepted as lost
    lost_offsets: int = 0
    restarts: int = 0  # how often a partition's offsets began anew; what was lost, nobody knows
    events: int = 0
    faults: list[LogFault] = field(default_factory=list)


@dataclass(slots=True)
class PagesAccount:
    """What the store has of the pages that the index names, as far as they were read."""

    checked_pages: int = 0
    checked_bytes: int = 0
    faults: list[LogFault] = field(default_factory=list)


class _Part(NamedTuple):
    """A cut with the events that it archived, or a page with those of its events that entered."""

    first: int
    last: int
    archived: int
    entered: int


def verify_log(archive: PageArchive, since: datetime | None = None) -> LogAccount:
    """Whether every offset was read once, and every event that was read is in a page once.

    With `since`, only what cuts that ended later read.
    """
    account = LogAccount()
    account.faults += _cut_faults(archive, since)
    account.faults += _offset_faults(archive, since, account)
    account.faults += _event_faults(archive, since, account)
    return account


def verify_pages(
    archive: PageArchive, sample: int | None = None, spark: SparkSession | None = None
) -> PagesAccount:
    """Whether every page is in the store as it was written; with `sample`, so many by chance.

    All of them are read on Spark or, without it, by this process.
    """
    if sample is not None:
        found = _read_pages(archive.store, archive.index.sample(sample))
    elif spark is None:
        found = _read_pages(archive.store, archive.index.entries_by_id(0, 1))
    else:
        job = _PagesJob(archive.settings, archive.domain, archive.store.url, archive.buckets)
        tasks = spark.range(0, job.parts, 1, job.parts)
        readings = tasks.mapInArrow(_reader(job), spark_type(_READING))
        found = (_Reading(*row) for row in readings.collect())
    account = PagesAccount()
    suspects: dict[UUID, LogFault] = {}
    for reading in found:
        account.checked_pages += reading.pages
        account.checked_bytes += reading.bytes
        if reading.fault is not None:
            fault = EnumLogFault(reading.fault)
            suspects[UUID(reading.page_id)] = LogFault(fault, f"{reading.whereabouts} is {fault}.")
    # A page that was replaced and swept while this went on is no longer part of the log.
    live = archive.index.live(list(suspects))
    account.faults += [fault for page_id, fault in suspects.items() if page_id in live]
    return account


class _Reading(NamedTuple):
    """A page with a fault, or so many without."""

    pages: int
    bytes: int
    page_id: str | None = None
    whereabouts: str | None = None
    fault: str | None = None


_READING = pa.schema(
    [
        pa.field("pages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("page_id", pa.string()),
        pa.field("whereabouts", pa.string()),
        pa.field("fault", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _PagesJob:
    """What the tasks that read all pages need to know; it travels to the workers."""

    settings: Settings
    domain: str
    store_url: str
    parts: int


def _reader(job: _PagesJob) -> ArrowTask:
    """Each task asks the index for its part: the driver has none of the list."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_database(job.settings) as database:
            index, store = PageIndex(database, job.domain), PageStore(job.store_url)
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    readings = _read_pages(store, index.entries_by_id(part, job.parts))
                    rows = [reading._asdict() for reading in readings]
                    yield pa.RecordBatch.from_pylist(rows, _READING)

    return read


def _read_pages(store: PageStore, pages: Iterable[PageEntry]) -> Iterator[_Reading]:
    def read(page: PageEntry) -> _Reading:
        try:
            store.read_whole(page.key, page.checksum)
        except (PageMissingError, PageDamagedError) as error:
            missing = isinstance(error, PageMissingError)
            fault = EnumLogFault.MISSING if missing else EnumLogFault.DAMAGED
            return _Reading(1, page.encoded_bytes, str(page.page_id), page.whereabouts, fault)
        return _Reading(1, page.encoded_bytes)

    sound_pages = sound_bytes = 0
    for reading in concurrently(read, pages):
        if reading.fault is None:
            sound_pages += 1
            sound_bytes += reading.bytes
        else:
            yield reading
    yield _Reading(sound_pages, sound_bytes)


def _cut_faults(archive: PageArchive, since: datetime | None) -> Iterator[LogFault]:
    """A cut ends before the next one begins, the last one at the head or before it."""
    with archive.database.transaction() as cursor:
        if since is None:
            lift_statement_limit(cursor)
        broken = cursor.execute(
            "SELECT * FROM (SELECT instant, lead(closed_before, 1, head)"
            " OVER (ORDER BY closed_before) AS following FROM log_cuts JOIN logs USING (domain)"
            " WHERE domain = %s AND instant > %s) WHERE following < instant ORDER BY instant",
            (archive.domain, since or BEGINNING),
        ).fetchall()
    for row in broken:
        sentence = f"The cut up to {row.instant} reaches beyond {row.following}, where it must end."
        yield LogFault(EnumLogFault.OVERLAP, sentence)


def _offset_faults(
    archive: PageArchive, since: datetime | None, account: LogAccount
) -> Iterator[LogFault]:
    """The ranges that were read and those that are lost form one chain up to the cursor.

    Where offsets began anew, each generation has a chain of its own, up to where it ended.
    """
    scope = {"domain": archive.domain, "since": since or BEGINNING, "whole": since is None}
    with archive.database.transaction() as cursor:
        if since is None:
            lift_statement_limit(cursor)
        totals = fetch_one(
            cursor,
            "SELECT (SELECT count(*) FROM log_cuts WHERE domain = %(domain)s"
            " AND instant > %(since)s) AS cuts,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM cut_ranges"
            " WHERE domain = %(domain)s AND instant > %(since)s) AS read,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM lost_ranges"
            " WHERE domain = %(domain)s) AS lost,"
            " (SELECT count(*) FROM offset_restarts WHERE domain = %(domain)s) AS restarts",
            scope,
        )
        account.cuts, account.lost_offsets = totals.cuts, totals.lost
        account.restarts = totals.restarts
        account.offsets = totals.read + totals.lost
        broken = cursor.execute(
            # A loss that was accepted before the first of these cuts has its follower in another.
            "WITH taken AS (SELECT topic, partition, generation, start_offset, end_offset"
            " FROM cut_ranges WHERE domain = %(domain)s AND instant > %(since)s"
            "), began AS (SELECT topic, partition, generation, min(start_offset) AS first_offset"
            " FROM taken GROUP BY topic, partition, generation)"
            " SELECT * FROM (SELECT topic, partition, end_offset, lead(start_offset)"
            " OVER (PARTITION BY topic, partition, generation ORDER BY start_offset, end_offset)"
            " AS following"
            " FROM (SELECT topic, partition, generation, start_offset, end_offset FROM taken"
            " UNION ALL SELECT topic, partition, generation, start_offset, end_offset"
            " FROM lost_ranges LEFT JOIN began USING (topic, partition, generation)"
            " WHERE domain = %(domain)s AND (%(whole)s OR start_offset > first_offset)"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM consumer_cursors WHERE domain = %(domain)s"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM offset_restarts WHERE domain = %(domain)s))"
            " WHERE end_offset IS NOT NULL AND following IS DISTINCT FROM end_offset"
            " ORDER BY topic, partition, end_offset",
            scope,
        ).fetchall()
    for row in broken:
        place = InputPartition(row.topic, row.partition)
        if row.following is None:
            sentence = f"{place} was read up to offset {row.end_offset - 1}, but has no cursor."
            yield LogFault(EnumLogFault.GAP, sentence)
        elif row.following > row.end_offset:
            offsets = OffsetRange(row.end_offset, row.following)
            yield LogFault(EnumLogFault.GAP, f"{place} {offsets} are in no cut.")
        else:
            offsets = OffsetRange(row.following, row.end_offset)
            yield LogFault(EnumLogFault.OVERLAP, f"{place} {offsets} are in two cuts.")


def _event_faults(
    archive: PageArchive, since: datetime | None, account: LogAccount
) -> Iterator[LogFault]:
    """Wherever cuts and pages share positions, the cuts archived as many as entered the pages."""
    start = position_at(since or BEGINNING)
    # The head first: below it, neither cuts nor events are added any more.
    head = archive.index.head()
    cuts = archive.database.stream(
        "SELECT closed_before, instant, archived FROM log_cuts"
        " WHERE domain = %(domain)s AND instant <= %(head)s AND instant > %(since)s"
        " ORDER BY closed_before",
        {"domain": archive.domain, "head": head, "since": since or BEGINNING},
    )
    pages = archive.index.entries(position_at(head), start)
    parts = heapq.merge(_cut_parts(cuts), (_page_part(page, account) for page in pages))
    for group in overlapping(parts, lambda part: (part.first, part.last)):
        if group[0].first < start:  # what reaches across the start may share it with what is before
            continue
        archived = sum(part.archived for part in group)
        entered = sum(part.entered for part in group)
        if archived != entered:
            where = span_text(group[0].first, max(part.last for part in group))
            fault = EnumLogFault.GAP if entered < archived else EnumLogFault.OVERLAP
            sentence = f"{archived} events were archived at {where}, {entered} are in pages."
            yield LogFault(fault, sentence)


def _cut_parts(cuts: Iterable[Any]) -> Iterator[_Part]:
    for cut in cuts:
        last = position_at(cut.instant) - 1
        yield _Part(position_at(cut.closed_before), last, cut.archived, 0)


def _page_part(page: PageEntry, account: LogAccount) -> _Part:
    account.events += page.event_count
    return _Part(*page.span, 0, page.entered)

"""Proof that every page of a log lies in the store with the bytes that it was written with.

It costs what it looks at. A sample costs the same however long the log is; the whole takes its
time, and Spark reads the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import pyarrow as pa

from onex_platform.engines.spark.tasks import ArrowTask, spark_type
from onex_platform.log.page_log import LogAddress, PageLog
from onex_platform.log.page_table import PageEntry
from onex_platform.log.store import PageDamagedError, PageMissingError, concurrently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EnumLogFault(StrEnum):
    """What can be wrong with a log."""

    GAP = "gap"  # something that was read is in no page
    OVERLAP = "overlap"  # something was read twice, or is in two pages
    MISSING = "missing"  # a page that is not in the store
    DAMAGED = "damaged"  # a page with other bytes than were written


class LogFault(NamedTuple):
    """One thing that is wrong, named with its range."""

    fault: EnumLogFault
    sentence: str

    def __str__(self) -> str:
        return f"{self.fault}  {self.sentence}"


@dataclass(slots=True)
class PagesAccount:
    """What the store has of the pages that the table names, as far as they were read."""

    checked_pages: int = 0
    checked_bytes: int = 0
    faults: list[LogFault] = field(default_factory=list)


def verify_pages(
    log: PageLog, sample: int | None = None, spark: SparkSession | None = None
) -> PagesAccount:
    """Whether every page is in the store as it was written; with `sample`, so many by chance.

    All of them are read on Spark or, without it, by this process.
    """
    if sample is not None:
        found = _read_pages(log, log.table.sample(sample))
    elif spark is None:
        found = _read_pages(log, log.table.entries_by_id(0, 1))
    else:
        parts = log.address.buckets
        tasks = spark.range(0, parts, 1, parts)
        readings = tasks.mapInArrow(_reader(log.address, parts), spark_type(_READING))
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
    live = log.table.live(list(suspects))
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


def _reader(address: LogAddress, parts: int) -> ArrowTask:
    """Each task asks the table for its part: the driver has none of the list."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with address.open() as log:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    readings = _read_pages(log, log.table.entries_by_id(part, parts))
                    rows = [reading._asdict() for reading in readings]
                    yield pa.RecordBatch.from_pylist(rows, _READING)

    return read


def _read_pages(log: PageLog, pages: Iterable[PageEntry]) -> Iterator[_Reading]:
    def read(page: PageEntry) -> _Reading:
        try:
            log.store.read_whole(page.key, page.checksum)
        except (PageMissingError, PageDamagedError) as error:
            missing = isinstance(error, PageMissingError)
            fault = EnumLogFault.MISSING if missing else EnumLogFault.DAMAGED
            span = log.layout.describe(*page.span)
            whereabouts = f"{page.key} ({span}, {page.event_count} events)"
            return _Reading(1, page.encoded_bytes, str(page.page_id), whereabouts, fault)
        return _Reading(1, page.encoded_bytes)

    sound_pages = sound_bytes = 0
    for reading in concurrently(read, pages):
        if reading.fault is None:
            sound_pages += 1
            sound_bytes += reading.bytes
        else:
            yield reading
    yield _Reading(sound_pages, sound_bytes)

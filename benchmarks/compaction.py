"""What compaction costs beside bare reading and writing of the same bytes.

    python -m benchmarks.compaction --pages 10000 --events 100

Small pages of a fleet, written first, then in one run:

- bytes: every file read and its bytes written again, one file per group of pages
- Parquet: every file decoded and its rows encoded again, one file per group; no checksums, no
  buckets, no order, no index
- compaction: `compact` on a warm local Spark session, with all of these

All find the files in the page cache and have as many processes as Spark has cores. Wall seconds;
the ratios are what to compare between machines.
"""

from __future__ import annotations

import io
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from onex_platform import stack
from onex_platform.base.settings import PagesSettings, SparkSettings, load_settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.order import POSITIONS_PER_MILLISECOND, moment_of
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.ingest.event_schema import LOG_SCHEMA, bucket_of
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason
from onex_platform.log.compaction.compact import compact, plan
from onex_platform.log.compaction.planning import CompactionGroup
from onex_platform.log.page_format import PageWriter
from onex_platform.log.page_table import insert_pages
from onex_platform.log.store import PageStore, StoredPage, page_key
from onex_platform.topics.catalogue import load_catalogue

CORES = 2
NODES = 1000
JOINING_SHARE = 0.05
FIRST_MS = 1_767_225_600_000  # 2026-01-01
CUT_MS = 1000
BEAT = '{"node_id":"%s","uptime_seconds":%d,"memory_usage_mb":%d,"cpu_usage_percent":%d}'
JOIN = '{"node_id":"%s","node_type":"EFFECT","node_version":"1.%d.%d","capabilities":{"read":%d}}'

Copy = Callable[[str, Path, CompactionGroup], None]


@click.command()
@click.option("--pages", default=10_000, show_default=True)
@click.option("--events", default=100, show_default=True, help="Events per page.")
def main(pages: int, events: int) -> None:
    processes = ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"))
    with tempfile.TemporaryDirectory() as folder, processes as pool, _archive(folder) as archive:
        url = archive.log.store.url
        write = partial(write_page, url, archive.log.buckets, events)
        written = list(pool.map(write, range(pages), chunksize=50))
        with archive.database.transaction() as cursor:
            insert_pages(cursor, written)
        below = max(page.metadata.max_position for page in written) + 1
        groups = plan(archive.log, below)

        def run(copy: Copy) -> float:
            target = Path(tempfile.mkdtemp(dir=folder))
            return _seconds(lambda: list(pool.map(partial(copy, url, target), groups)))

        seconds = {"bytes": run(copy_bytes), "Parquet": run(copy_rows)}
        with open_session(archive.settings, []) as spark:
            spark.range(CORES).mapInArrow(lambda batches: batches, "id long").collect()
            seconds["compaction"] = _seconds(
                lambda: compact(spark, archive.log, below, len(groups))
            )
        left = list(archive.log.table.entries())
    megabytes = sum(page.encoded_bytes for page in written) / 1e6
    print(
        f"{pages} pages of {events} events, {megabytes:.0f} MB, became {len(left)} pages, "
        f"{sum(page.encoded_bytes for page in left) / 1e6:.0f} MB"
    )
    for name, taken in seconds.items():
        print(
            f"{name:<12} {taken:8.1f} s  {megabytes / taken:8.1f} MB/s  "
            f"compaction's rate is {taken / seconds['compaction']:.2f} of it"
        )


def write_page(url: str, buckets: int, events: int, number: int) -> StoredPage:
    """The page of one small cut, in the store."""
    table = _events(np.random.default_rng(number), number, events)
    of_bucket = np.array([bucket_of(item, buckets) for item in table["entity_id"].to_pylist()])
    writer = PageWriter(REGISTRATION_PAGES)
    for bucket in np.unique(of_bucket):
        writer.add(int(bucket), table.filter(pa.array(of_bucket == bucket)))
    page = writer.finish(
        page_id=uuid4(),
        domain=REGISTRATION_DOMAIN,
        writer_id="benchmark",
        reason=EnumPageReason.INGEST,
        buckets=buckets,
        period=_time(number * CUT_MS).replace(minute=0, second=0, microsecond=0),
    )
    key = page_key(page.metadata)
    PageStore(url).create(key, page.data)
    return StoredPage(page.metadata, key, len(page.data), page.checksum)


def copy_bytes(url: str, target: Path, group: CompactionGroup) -> None:
    with (target / str(uuid4())).open("wb") as copy:
        for page in group.pages:
            copy.write(PageStore(url).read(page.key))


def copy_rows(url: str, target: Path, group: CompactionGroup) -> None:
    store = PageStore(url)
    tables = [pq.read_table(io.BytesIO(store.read(page.key))) for page in group.pages]
    pq.write_table(pa.concat_tables(tables), target / str(uuid4()), compression="zstd")


def _events(chance: np.random.Generator, number: int, events: int) -> pa.Table:
    """Heartbeats, and now and then a node that joins, spread over one cut."""
    numbers = chance.integers(NODES, size=events)
    moments = np.sort(chance.integers(CUT_MS, size=events)) + number * CUT_MS
    rows: list[dict[str, Any]] = []
    for node, moment, joins in zip(
        numbers, moments, chance.random(events) < JOINING_SHARE, strict=True
    ):
        node_id = UUID(int=int(node) << 64)
        kind = EnumEventKind.NODE_INTROSPECTION if joins else EnumEventKind.NODE_HEARTBEAT
        values = tuple(chance.integers(100, size=3))
        rows.append(
            {
                "entity_id": node_id.bytes,
                "position": (FIRST_MS + int(moment)) * POSITIONS_PER_MILLISECOND,
                "kind": kind.value,
                "event_id": chance.bytes(16),
                "tenant": "omnibase",
                "node_id": str(node_id),
                "occurred_at": _time(int(moment)),
                "reported_at": _time(int(moment)),
                "correlation_id": chance.bytes(16),
                "topic": kind.event_type,
                "partition": int(node) % 3,
                "offset": number * events + len(rows),
                "duplicate": False,
                "payload": (JOIN if joins else BEAT) % (node_id, *values),
            }
        )
    return pa.Table.from_pylist(rows, schema=LOG_SCHEMA)


def _time(milliseconds: int) -> datetime:
    return moment_of((FIRST_MS + milliseconds) * POSITIONS_PER_MILLISECOND)


@contextmanager
def _archive(folder: str) -> Iterator[PageArchive]:
    """An archive and an embedded database of the benchmark's own."""
    user = load_settings()
    own = user.model_copy(
        update={
            "stack": user.stack.model_copy(update={"folder": Path(folder, "stack")}),
            "spark": SparkSettings(master=f"local[{CORES}]"),
            "pages": PagesSettings(url=str(Path(folder, "pages"))),
        }
    )
    with stack.running(own, services=["postgres"]) as settings:
        migrate(settings)
        with open_archive(settings, load_catalogue()) as archive:
            yield archive


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

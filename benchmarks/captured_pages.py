"""What reading and merging captured pages costs beside bare decoding and encoding.

    python -m benchmarks.captured_pages --pages 10000 --events 20

Small pages of 1 KiB events by 100 writers, written first, then in one run:

- decoding: every file read and decoded, in one process; no index, no checksum, no order
- replay: `replay` of everything into a sink that counts, in one process
- decoding and encoding: every file decoded and its events encoded again as Parquet, one file per
  group of pages, in as many processes as Spark has cores; no checksum, no comparison, no index
- compaction: `compact` on a warm local Spark session, with all of these

All find the files in the page cache. The first two are medians of interleaved rounds.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

import click
import pyarrow as pa

from onex_platform import stack
from onex_platform.base.settings import Settings, SparkSettings, load_settings
from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.captured_events import CapturedEvent, PageEntry
from onex_platform.capture.codecs import MERGED_FORMAT, page_codec, read_page
from onex_platform.capture.compaction.compacting import compact, plan
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.read.event_replay import replay
from onex_platform.capture.read.page_selection import Selection
from onex_platform.capture.slots import PageQuery
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform_tests.support.captured_archives import archive_address, store_pages
from onex_platform_tests.support.captured_pages import event

CORES = 2
WRITERS = 100
PAYLOAD = 1024


class Counting:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.events = 0

    def write(self, events: Sequence[CapturedEvent]) -> None:
        self.events += len(events)

    def position(self) -> int:
        return self.events

    def resume(self, position: int) -> None:
        self.events = position


@click.command()
@click.option("--pages", default=10_000, show_default=True)
@click.option("--events", default=20, show_default=True, help="Events per page.")
@click.option("--rounds", default=3, show_default=True)
def main(pages: int, events: int, rounds: int) -> None:
    processes = ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"))
    with (
        tempfile.TemporaryDirectory() as name,
        processes as pool,
        stack.running(_settings(Path(name)), services=["postgres"]) as settings,
    ):
        migrate(settings)
        folder = Path(name)
        with archive_address(folder, settings).open() as archive:
            store_pages(archive.storage, archive.index, _pages(pages, events))
            seconds = _read(archive, folder / "pages", rounds)
            groups = [
                [folder / "pages" / page.key for page in group.pages]
                for group in plan(archive, datetime.now(UTC))
            ]
            list(pool.map(_nothing, range(CORES)))  # the processes are there
            seconds["decoding and encoding"] = _seconds(
                lambda: list(pool.map(partial(_copy, folder), groups))
            )
            with open_session(settings, []) as spark:
                spark.range(0, CORES, 1, CORES).mapInArrow(_import, "id long").collect()
                seconds["compaction"] = _seconds(lambda: compact(spark, archive, len(groups)))
            left = list(archive.index.query(PageQuery(DEFAULT_TENANT)))
    _show(pages, events, left, seconds)


def _read(archive: CapturedArchive, folder: Path, rounds: int) -> dict[str, float]:
    """Decoding and replay, each once per round."""
    entries = list(archive.index.query(PageQuery(DEFAULT_TENANT)))
    taken: dict[str, list[float]] = {"decoding": [], "replay": []}
    for _ in range(rounds):
        taken["decoding"].append(_seconds(lambda: _decode(folder, entries)))
        taken["replay"].append(
            _seconds(
                lambda: replay(
                    archive.index, archive.storage, Selection(DEFAULT_TENANT), Counting()
                )
            )
        )
    return {name: statistics.median(some) for name, some in taken.items()}


def _decode(folder: Path, entries: Sequence[PageEntry]) -> int:
    return sum(len(read_page((folder / entry.key).read_bytes()).events) for entry in entries)


def _copy(folder: Path, group: Sequence[Path]) -> None:
    pages = [read_page(path.read_bytes()) for path in group]
    events = [event for page in pages for event in page.events]
    merged = page_codec(*MERGED_FORMAT).encode(pages[0].info, events)
    (folder / str(uuid4())).write_bytes(merged.data)


def _nothing(_: int) -> None:
    time.sleep(0.1)


def _import(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Let a worker of Spark have imported what the processes of the pool have at their start."""
    import onex_platform.capture.compaction.compacting  # noqa: F401

    time.sleep(0.1)
    yield from batches


def _pages(count: int, length: int) -> list[list[CapturedEvent]]:
    """Pages in the order of time, each of one writer; half of a payload can be compressed."""
    random = Random(count)
    found = []
    for number in range(count):
        writer, first = number % WRITERS, number // WRITERS * length + 1
        found.append(
            [
                event(
                    f"writer-{writer}",
                    sequence,
                    payload=random.randbytes(PAYLOAD // 2) + bytes(PAYLOAD // 2),
                    attributes={"type": "user.click"},
                    tenant=DEFAULT_TENANT,
                )
                for sequence in range(first, first + length)
            ]
        )
    return found


def _settings(folder: Path) -> Settings:
    """A database and a Spark of the benchmark's own."""
    user = load_settings()
    return user.model_copy(
        update={
            "stack": user.stack.model_copy(update={"folder": folder / "stack"}),
            "spark": SparkSettings(master=f"local[{CORES}]"),
        }
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _show(pages: int, events: int, left: Sequence[PageEntry], seconds: dict[str, float]) -> None:
    total = pages * events
    print(f"{pages} pages of {events} events became {len(left)} pages")
    for name, taken in seconds.items():
        print(f"{name:<22} {taken:8.1f} s {total / taken:10,.0f} events/s")
    for name, bare, goal in (
        ("replay", "decoding", 0.5),
        ("compaction", "decoding and encoding", 1.0),
    ):
        print(f"{name} / {bare}: {seconds[bare] / seconds[name]:.2f} (goal {goal})")


if __name__ == "__main__":
    main()

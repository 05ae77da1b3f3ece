"""The Spark reducer beside a plain fold, Polars, and Spark that only reads.

    python -m benchmarks.reducer --events 1000000 --events 5000000 --events 10000000

A simulated fleet's history per size, as pages of the log: a page per bucket and cut. Then, one
after the other, on the same pages, without a decider (the registry's words are in the history):

- read: Spark's own Parquet reader, all columns that the fold needs of a heartbeat, into nothing
- read by tasks: the reducer's tasks read what they fold, and do not fold it
- fold: from pages to the registry's rows, as an Arrow table that the tasks hand to Spark
- batch: `fold_log`, the real step: fold, rows handed over through PostgreSQL, one committing
  transaction; how long the last takes is shown apart
- Polars: from pages to the same columns in one frame, one process, all cores
- step by step: one process, a step of the state machine per event over columns
- reference: one process, `domain.batch.replay`, a model per event

Each size and each contestant without Spark has a process of its own. Cold is the first fold with
the start of its session, warm the median of the rounds after it. Computed are the seconds that the
process, its JVM and its Python workers spent on processors, which a busy machine distorts less than
the wall's; memory is the peak of what these hold (shared pages divided). PostgreSQL's are not in
either. All contestants' rows are compared, cell by cell.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import click
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.comparison import canonical, differing_cells
from benchmarks.histories import (
    Destination,
    enter,
    load_index,
    save_index,
    simulate,
    write_log,
)
from benchmarks.measuring import Figures
from onex_platform import stack
from onex_platform.base.settings import PagesSettings, Settings, SparkSettings, load_settings
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.ingest.event_schema import BEAT_COLUMNS, LOG_SCHEMA, to_events
from onex_platform.ingest.registration_pages import read_chunk
from onex_platform.log.replay import PageRef
from onex_platform.log.store import PageStore
from onex_platform.projections.fold import reducer
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.refold import ReplayJob, by_bucket, replay_bucket
from onex_platform.projections.fold.row_columns import STATE_SCHEMA, to_table
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.topics.catalogue import load_catalogue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
FAR = 2**63 - 1
_COUNT = pa.schema([pa.field("events", pa.int64(), nullable=False)])


class Place(NamedTuple):
    """Where one size's log lies, and where its results go."""

    settings: Settings
    domain: str
    folder: Path
    rounds: int

    def keep(self, name: str, rows: pa.Table) -> None:
        """Leave a contestant's rows for the comparison."""
        rows = rows.select(STATE_SCHEMA.names).sort_by("entity_id")
        pq.write_table(rows, self.rows(name))

    def rows(self, name: str) -> Path:
        return self.folder / f"{self.domain}-{name}.rows"


def with_spark(place: Place) -> Figures:
    """The contestants on Spark."""
    figures = Figures()
    with (
        open_archive(place.settings, load_catalogue(), place.domain) as archive,
        ExitStack() as session,
    ):
        job = _job(archive)

        def fold() -> Any:
            return by_bucket(spark, job.buckets, job.buckets, _rows_of(job), STATE_SCHEMA)

        started = time.perf_counter()
        spark = session.enter_context(open_session(place.settings, []))
        into_nothing(fold())
        figures.seconds["fold, cold"] = time.perf_counter() - started
        files = [f"{archive.log.store.url}/{page.key}" for page in job.pages]
        read = [*BEAT_COLUMNS, "kind"]
        figures.warm(
            "read",
            place.rounds,
            lambda: into_nothing(spark.read.parquet(*files).select(read)),
        )
        figures.warm(
            "read by tasks",
            place.rounds,
            lambda: by_bucket(spark, job.buckets, job.buckets, _count_of(job), _COUNT).collect(),
        )
        figures.warm("fold", place.rounds, lambda: into_nothing(fold()))
        place.keep("fold", fold().toArrow().cast(STATE_SCHEMA))
        _batches(place, archive, spark, figures)
        reader = ProjectionReaderRegistration(archive.database)
        place.keep("batch", to_table(reader.iter_all(place.domain, include_deregistered=True)))
    return figures


def _batches(place: Place, archive: PageArchive, spark: SparkSession, figures: Figures) -> None:
    commits = []
    commit = reducer._commit

    def timed_commit(*args: Any) -> Any:
        started = time.perf_counter()
        result = commit(*args)
        commits.append(time.perf_counter() - started)
        return result

    def batch() -> None:
        folded = reducer.fold_log(spark, archive.log, archive.cuts.head(), None)
        assert folded is not None
        assert folded.committed

    with mock.patch.object(reducer, "_commit", timed_commit):
        figures.warm("batch", place.rounds, batch, prepare=lambda: _forget_rows(archive))
    figures.seconds["of it the commit"] = statistics.median(commits)


def _forget_rows(archive: PageArchive) -> None:
    """Put the fold back to the beginning of the log."""
    with archive.database.transaction() as cursor:
        cursor.execute(
            "TRUNCATE registration_projections, registration_liveness, outbox, batch_outcomes,"
            " illegal_events, fold_cursors"
        )


def polars(place: Place) -> Figures:
    from benchmarks.polars_fold import fold_pages

    figures = Figures()
    with open_archive(place.settings, load_catalogue(), place.domain) as archive:
        files = [f"{archive.log.store.url}/{page.key}" for page in archive.log.table.pages()]
    fold_pages(files)
    figures.warm("Polars", place.rounds, lambda: fold_pages(files))
    place.keep("Polars", canonical(fold_pages(files).to_arrow(), place.domain))
    return figures


def step_by_step(place: Place) -> Figures:
    """No Spark, no collapsing: every event is a step."""

    def run(job: ReplayJob, store: PageStore, bucket: int) -> pa.Table:
        chunk = read_chunk(store, list(job.pages), bucket, 0, FAR, beat_columns=LOG_SCHEMA.names)
        fold = BucketFold(job.domain)
        fold.feed(pa.concat_tables(chunk), chunk.beats.slice(0, 0))
        return to_table(fold.rows())

    return _alone(place, "step by step", run)


def reference(place: Place) -> Figures:
    def run(job: ReplayJob, store: PageStore, bucket: int) -> pa.Table:
        chunk = read_chunk(store, list(job.pages), bucket, 0, FAR, beat_columns=LOG_SCHEMA.names)
        log = pa.concat_tables(chunk).sort_by("position")
        return to_table(replay(to_events(log, job.domain)).values())

    return _alone(place, "reference", run)


def _alone(
    place: Place, name: str, run: Callable[[ReplayJob, PageStore, int], pa.Table]
) -> Figures:
    """One process, bucket after bucket, so that memory holds one bucket; once, for it is slow."""
    figures = Figures()
    with open_archive(place.settings, load_catalogue(), place.domain) as archive:
        job = _job(archive)
        rows: list[pa.Table] = []
        figures.warm(
            name,
            1,
            lambda: rows.extend(
                run(job, archive.log.store, bucket) for bucket in range(job.buckets)
            ),
        )
        place.keep(name, pa.concat_tables(rows))
    return figures


def _job(archive: PageArchive) -> ReplayJob:
    return ReplayJob(
        domain=archive.domain,
        store=archive.log.store,
        buckets=archive.log.buckets,
        start=0,
        end=FAR,
        pages=tuple(PageRef.of(page) for page in archive.log.table.pages()),
    )


def _rows_of(job: ReplayJob) -> Any:
    def work(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        for bucket in buckets:
            yield from replay_bucket(job, bucket, BucketFold.table).rendered.to_batches()

    return work


def _count_of(job: ReplayJob) -> Any:
    def work(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        for bucket in buckets:
            for page in job.pages:
                chunk = read_chunk(job.store, [page], bucket, 0, FAR)
                yield pa.RecordBatch.from_pylist([{"events": sum(map(len, chunk))}], _COUNT)

    return work


def into_nothing(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


CONTESTANTS: dict[str, Callable[[Place], Figures]] = {
    "spark": with_spark,
    "polars": polars,
    "step by step": step_by_step,
    "reference": reference,
}


@click.command()
@click.option("--events", multiple=True, type=int, default=(1_000_000, 5_000_000, 10_000_000))
@click.option("--nodes", default=100_000, show_default=True)
@click.option("--cut-events", default=1_000_000, show_default=True, help="Events per cut.")
@click.option("--rounds", default=3, show_default=True, help="Warm rounds of the fast ones.")
@click.option("--only", multiple=True, type=click.Choice(list(CONTESTANTS)))
@click.option(
    "--histories", type=Path, help="Keep histories and their pages here, and use those there."
)
def main(
    events: tuple[int, ...],
    nodes: int,
    cut_events: int,
    rounds: int,
    only: tuple[str, ...],
    histories: Path | None,
) -> None:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        logs = histories or Path(scratch)
        with _database(scratch, logs) as settings:
            found: dict[int, Figures] = {}
            for size in events:
                place = Place(settings, f"fleet-{nodes}-{size}", Path(scratch), rounds)
                with ProcessPoolExecutor(CORES, spawn) as pool:
                    _make_log(pool, place, logs, nodes, size, cut_events)
                found[size] = Figures()
                for name in only or CONTESTANTS:
                    with ProcessPoolExecutor(1, spawn) as alone:
                        figures = alone.submit(CONTESTANTS[name], place).result()
                    found[size].take(figures)
                report(place, size, found[size])
            if len(found) > 1:
                report_growth(found)


def _make_log(
    pool: ProcessPoolExecutor, place: Place, folder: Path, nodes: int, events: int, cut_events: int
) -> None:
    history = folder / f"history-{nodes}-{events}.parquet"
    index = folder / f"index-{nodes}-{events}-{cut_events}.json"
    if not history.exists():
        pool.submit(simulate, history, nodes, events).result()
    with open_archive(place.settings, load_catalogue(), place.domain) as archive:
        if not index.exists():
            to = Destination(
                archive.settings, archive.domain, archive.log.store.url, archive.log.buckets
            )
            save_index(write_log(pool, to, history, cut_events), index)
        pages = load_index(index)
        enter(archive, pages)
    megabytes = sum(page.encoded_bytes for page in pages) / 1e6
    print(f"\n{events} events of {nodes} nodes: {len(pages)} pages, {megabytes:.0f} MB")


def report(place: Place, events: int, figures: Figures) -> None:
    for name, seconds in figures.seconds.items():
        line = f"  {name:<18} {seconds:8.2f} s {events / seconds:12,.0f} events/s"
        if name in figures.megabytes:
            line += f" {figures.computed[name]:8.2f} s computed {figures.megabytes[name]:7.0f} MB"
        print(line)
    for name in ("reference", "step by step", "Polars", "read by tasks", "read"):
        if {name, "fold"} <= figures.computed.keys():
            wall, computed = (
                taken[name] / taken["fold"] for taken in (figures.seconds, figures.computed)
            )
            print(f"  the fold's rate by that of {name!r}: {wall:.2f} (computed: {computed:.2f})")
    kept = [
        name
        for name in ("fold", "batch", "Polars", "step by step", "reference")
        if place.rows(name).exists()
    ]
    for name in kept[1:]:
        cells = differing_cells(place.rows(kept[0]), place.rows(name))
        print(f"  {name!r} differs from {kept[0]!r} in {cells} cells")
    print(end="", flush=True)


def report_growth(found: dict[int, Figures]) -> None:
    small, large = sorted(found)[-2:]
    print(f"\nfrom {small} to {large} events")
    for name in found[large].computed:
        wall, computed, memory = (
            one[name] / other[name]
            for one, other in (
                (found[large].seconds, found[small].seconds),
                (found[large].computed, found[small].computed),
                (found[large].megabytes, found[small].megabytes),
            )
        )
        print(
            f"  {name:<18} {wall:.2f} times the seconds (computed: {computed:.2f}), "
            f"{memory:.2f} times the memory"
        )


@contextmanager
def _database(folder: str, logs: Path) -> Iterator[Settings]:
    """An embedded database of the benchmark's own, beside the pages."""
    user = load_settings()
    own = user.model_copy(
        update={
            "stack": user.stack.model_copy(update={"folder": Path(folder, "stack")}),
            "spark": SparkSettings(master=f"local[{CORES}]"),
            "pages": PagesSettings(url=str(logs / "pages")),
        }
    )
    with stack.running(own, services=["postgres"]) as settings:
        migrate(settings)
        yield settings


if __name__ == "__main__":
    main()

"""How long a small cut takes, from records in Kafka to rows: what steady traffic waits for.

    python -m benchmarks.small_cuts --records 100 --cuts 20

Each round sends a few records of a simulated fleet, lets the settling time pass, and then takes one
cut and folds it, in a warm session on the embedded servers, with the decider. Medians and the
slowest round, in milliseconds, by what they were spent on; the first rounds warm up and do not
count.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import click

from onex_platform import stack
from onex_platform.base.settings import Settings, SparkSettings, load_settings
from onex_platform.engines.kafka.clients import KafkaRecord, open_producer, produce_all
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.engines.spark.session import open_session
from onex_platform.ingest import archive as cutting
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.ingest.cuts import cut_job
from onex_platform.projections.fold import reducer
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.plan import plan_for
from onex_platform.simulate.routes import routes_of
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics

CORES = 2
WARM_UP = 3

Phases = dict[str, list[float]]


@click.command()
@click.option("--records", default=100, show_default=True, help="Records per cut.")
@click.option("--cuts", default=20, show_default=True)
@click.option("--nodes", default=1000, show_default=True)
def main(records: int, cuts: int, nodes: int) -> None:
    with ExitStack() as resources:
        settings = resources.enter_context(servers())
        jars = [str(jar) for jar in stack.spark_jars(settings)]
        spark = resources.enter_context(open_session(settings, jars))
        archive = resources.enter_context(open_archive(settings, load_catalogue()))
        producer = resources.enter_context(open_producer(settings))
        total = records * (WARM_UP + cuts)
        plan = plan_for(settings, nodes=nodes, max_events=total, registry=False)
        fleet = iter(Fleet(plan, routes_of(load_catalogue())))
        phases: Phases = {}
        sizes = []
        with _timed_phases(phases):
            for number in range(WARM_UP + cuts):
                if number == WARM_UP:
                    phases.clear()
                sent = islice(fleet, records)
                produce_all(
                    producer,
                    (KafkaRecord(r.topic, r.value, r.key, r.headers) for r in sent),
                )
                time.sleep(settings.pages.settle_seconds + 0.1)
                with timed(phases, "in all"):
                    _take_and_fold(spark, archive)
                sizes.append(max(page.encoded_bytes for page in archive.log.table.entries()))
    print(f"{records} records a cut, {cuts} cuts, pages of at most {max(sizes) / 1e3:.0f} kB")
    for name, taken in phases.items():
        print(f"{name:<22} median {statistics.median(taken):7.0f} ms  slowest {max(taken):7.0f} ms")


def _take_and_fold(spark: Any, archive: PageArchive) -> None:
    now = datetime.now(UTC)
    taken = archive.take_cut(spark, now)
    assert taken is not None
    assert taken.account.archived
    batch = reducer.fold_log(spark, archive.log, now, reducer.policy_of(archive.settings))
    assert batch is not None
    assert batch.committed


@contextmanager
def _timed_phases(phases: Phases) -> Iterator[None]:
    """Time what the cut and the fold are made of, as they call it."""

    @contextmanager
    def effect(name: str) -> Iterator[None]:
        with timed(phases, name):
            yield

    with ExitStack() as patches:
        for module in (cut_job, reducer):
            patches.enter_context(mock.patch.object(module, "effect", effect))
        for module, name in ((cutting, "plan_cut"), (cutting, "ingest"), (reducer, "fold_log")):
            function = _timed_function(phases, name, getattr(module, name))
            patches.enter_context(mock.patch.object(module, name, function))
        yield


def _timed_function(phases: Phases, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with timed(phases, name):
            return function(*args)

    return call


@contextmanager
def timed(phases: Phases, name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    phases.setdefault(name, []).append((time.perf_counter() - started) * 1e3)


@contextmanager
def servers() -> Iterator[Settings]:
    """Embedded servers of the benchmark's own, with the topics."""
    user = load_settings()
    with tempfile.TemporaryDirectory() as folder:
        own = user.model_copy(
            update={
                "stack": user.stack.model_copy(update={"folder": Path(folder)}),
                "spark": SparkSettings(master=f"local[{CORES}]"),
            }
        )
        with stack.running(own, services=["postgres", "kafka"]) as settings:
            migrate(settings)
            create_topics(settings, load_catalogue())
            yield settings


if __name__ == "__main__":
    main()

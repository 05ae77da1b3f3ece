"""Ingest from Kafka to pages, beside Spark that only reads the same records.

    python -m benchmarks.ingest --records 1000000

A simulated fleet is sent to the embedded broker. Then, in one warm session and in turns:

- read: Spark's Kafka source reads the offset ranges of the cut, all columns, into nothing
- hand over: it reads, and hands the records to Python workers that do nothing with them
- parse: it reads, and parses the documents with `from_json`, into nothing; no Python at all
- Spark alone: it parses, shuffles by node, sorts, and writes Parquet; it checks nothing, numbers
  nothing, finds no duplicate and keeps no account
- ingest: `take_cut`, the real step: read, validate, number, write pages, one transaction
- no header policy: the same, by contracts that ignore headers and keys

With `--headers`, records carry all headers of specification 004, and the contracts ask for them.

Each turn of ingest begins anew: its log is forgotten before. Medians of wall seconds; the ratios
are what to compare between machines.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from unittest import mock
from uuid import uuid4

import click
import pyarrow as pa
from pyspark.sql import DataFrame, functions

from benchmarks.small_cuts import servers, timed
from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform.domain.headers import MINIMUM, EnumOnRead
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.spark.session import open_session
from onex_platform.engines.spark.tasks import spark_type
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform.ingest.cuts import cut_job
from onex_platform.ingest.cuts.consistent_cut import Cut, plan_cut
from onex_platform.ingest.cuts.kafka_source import records_on_spark
from onex_platform.ingest.inputs import input_topics, intake_rules
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.plan import plan_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.records import Record
from onex_platform.simulate.routes import routes_of
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.contract import HeaderPolicy

_DOCUMENT = (
    "event_id string, event_type string, source string, correlation_id string,"
    " timestamp timestamp, schema_version int, tenant string,"
    " payload struct<node_id: string, epoch: bigint>"
)


_HEADERS = {
    "x-correlation-id": "550e8400-e29b-41d4-a716-446655440000",
    "x-trace-id": "550e8400e29b41d4a716446655440000",
    "x-tenant": "omnibase",
}


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--headers", is_flag=True, help="Records with all headers of specification 004.")
@click.option("--only", multiple=True, help="Only these contestants, by their names above.")
def main(records: int, nodes: int, rounds: int, headers: bool, only: tuple[str, ...]) -> None:
    with ExitStack() as resources:
        settings = resources.enter_context(servers())
        jars = [str(jar) for jar in stack.spark_jars(settings)]
        spark = resources.enter_context(open_session(settings, jars))
        asked = HeaderPolicy(required=MINIMUM if headers else ())
        archive = resources.enter_context(open_archive(settings, _catalogue(asked)))
        ignoring = resources.enter_context(
            open_archive(settings, _catalogue(HeaderPolicy(on_read=EnumOnRead.IGNORE)))
        )
        with open_producer(settings) as producer:
            sent = map(_on_its_way, _fleet(settings, nodes, records))
            produce_all(producer, map(_with_headers, sent) if headers else sent)
        time.sleep(settings.pages.settle_seconds + 0.1)
        now = datetime.now(UTC)
        job = _job(archive, _cut(archive, now), now)
        assert job.cut.records == records

        def read() -> None:
            records_on_spark(spark, settings, job.cut).write.format("noop").mode("overwrite").save()

        def hand_over() -> None:
            records = records_on_spark(spark, settings, job.cut)
            records.mapInArrow(_ignore, spark_type(cut_job._REPORT)).collect()

        def parse() -> None:
            _parsed(records_on_spark(spark, settings, job.cut)).write.format("noop").mode(
                "overwrite"
            ).save()

        def spark_alone() -> None:
            with tempfile.TemporaryDirectory() as folder:
                (
                    _parsed(records_on_spark(spark, settings, job.cut))
                    .repartition(job.buckets, "node_id")
                    .sortWithinPartitions("node_id", "timestamp")
                    .write.option("compression", "zstd")
                    .parquet(f"{folder}/pages")
                )

        phases: dict[str, list[float]] = {}

        def take() -> None:
            with mock.patch.object(cut_job, "effect", lambda name: timed(phases, name)):
                _taken(archive)

        def _taken(chosen: PageArchive) -> None:
            taken = chosen.take_cut(spark, now)
            assert taken is not None
            assert taken.account.archived + taken.account.parked == records

        contestants = {
            "read": read,
            "hand over": hand_over,
            "parse": parse,
            "Spark alone": spark_alone,
            "ingest": take,
            "no header policy": lambda: _taken(ignoring),
        }
        contestants = {n: work for n, work in contestants.items() if not only or n in only}
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(1 + rounds):
            for name, work in contestants.items():
                _forget(archive)
                seconds[name].append(_seconds(work))
        pages = list(archive.log.table.entries())
    print(f"{records} records of {nodes} nodes became {len(pages)} pages")
    medians = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}
    for name, median in medians.items():
        cold = seconds[name][0]
        print(
            f"{name:<16} {median:7.2f} s {records / median:12,.0f} records/s (first {cold:.2f} s)"
        )
    for name, taken in phases.items():
        print(f"of ingest, {name}: {statistics.median(taken[1:]) / 1e3:.2f} s")
    for baseline in ("read", "Spark alone", "no header policy"):
        if baseline in medians and "ingest" in medians:
            ratio = medians[baseline] / medians["ingest"]
            print(f"ingest's rate by that of {baseline}: {ratio:.2f}")


def _ignore(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def _parsed(records: DataFrame) -> DataFrame:
    # A column of its own: selected from directly, each field would parse the document again.
    text = records["value"].cast("string")
    documents = records.withColumn("document", functions.from_json(text, _DOCUMENT))
    return documents.select(
        *("topic", "partition", "offset", "timestamp", "value"),
        *("document.event_id", "document.event_type", "document.correlation_id"),
        functions.col("document.timestamp").alias("reported_at"),
        *("document.tenant", "document.payload.node_id", "document.payload.epoch"),
    )


def _fleet(settings: Settings, nodes: int, records: int) -> Iterator[Record]:
    # Malformed records are left out: some are too large for a topic.
    profile = PROFILES["default"].changed(rates={"malformed": 0.0})
    plan = plan_for(settings, nodes=nodes, max_events=records, registry=False, profile=profile)
    return islice(Fleet(plan, routes_of(load_catalogue())), records)


def _catalogue(headers: HeaderPolicy) -> Catalogue:
    """The platform's topics, with this policy of headers for all."""
    change = {"headers": headers}
    return Catalogue(contract.model_copy(update=change) for contract in load_catalogue())


def _with_headers(record: KafkaRecord) -> KafkaRecord:
    """A record whose sender names itself and the rest that 004 asks for."""
    given = dict(record.headers)
    more = ((name, _HEADERS.get(name, "1")) for name in MINIMUM if name not in given)
    assert isinstance(record.value, bytes)
    source = json.loads(record.value)["source"]
    return record._replace(headers=[*record.headers, *more, ("x-actor", source)])


def _on_its_way(record: Record) -> KafkaRecord:
    return KafkaRecord(record.topic, record.value, record.key, record.headers)


def _cut(archive: PageArchive, now: datetime) -> Cut:
    with open_consumer(archive.settings) as consumer:
        cut = plan_cut(
            consumer, input_topics(archive.platform.catalogue), {}, archive.cuts.head(), now, 10**9
        )
    assert cut is not None
    return cut


def _job(archive: PageArchive, cut: Cut, now: datetime) -> cut_job.IngestJob:
    return cut_job.IngestJob(
        settings=archive.settings,
        domain=archive.domain,
        store=archive.log.store,
        batch_id=uuid4(),
        cut=cut,
        topics=input_topics(archive.platform.catalogue),
        rules=intake_rules(archive.settings, None),
        buckets=archive.log.buckets,
        read_at=now,
    )


def _forget(archive: PageArchive) -> None:
    """Let the log begin anew."""
    with archive.database.transaction() as cursor:
        cursor.execute(
            "TRUNCATE logs, log_heads, pages, log_cuts, cut_ranges, consumer_cursors, event_ledger,"
            " parked_records, header_findings CASCADE"
        )
    archive.log.begin()
    archive.cuts.begin()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

"""Producers with transactions: what they take back never happened, what is open has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaProducer, KafkaRecord, open_producer
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.closing import close_before
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import DrainAccount, drain
from onex_platform.projections.backlog import measure_backlog
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import require_live_equals_replay, rows_of
from onex_platform_tests.support.waiting import let_clock_pass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

_LIMIT_SECONDS = 20


def introspection(node: str) -> KafkaRecord:
    """All under one key, so that they stand in one partition."""
    return sent(EnumEventKind.NODE_INTROSPECTION, node)._replace(key="one partition")


@contextmanager
def begun(settings: Settings, *records: KafkaRecord) -> Iterator[KafkaProducer]:
    """A transaction that has sent the records and is open."""
    named = {"transactional.id": uuid4().hex, "delivery.timeout.ms": _LIMIT_SECONDS * 1000}
    with open_producer(settings, **named) as producer:
        producer.init_transactions(_LIMIT_SECONDS)
        producer.begin_transaction()
        for record in records:
            producer.produce(record.topic, record.value, record.key)
        assert producer.flush(_LIMIT_SECONDS) == 0
        yield producer


def drained(spark: SparkSession, archive: PageArchive) -> DrainAccount:
    account = drain(spark, archive, linger_seconds=0.2)
    assert account.caught_up
    assert not measure_backlog(archive.platform)
    assert verify_log(archive.log).faults == []
    return account


def names(archive: PageArchive) -> set[str | None]:
    return {row.node_name for row in rows_of(archive).values()}


@pytest.mark.parametrize("small_cut_events", [0, 50_000], ids=["page per bucket", "one page"])
def test_aborted_records_are_passed_and_leave_nothing(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    pages = pipeline_settings.pages.model_copy(update={"small_cut_events": small_cut_events})
    settings = pipeline_settings.model_copy(update={"pages": pages})
    with begun(settings, introspection("never")) as producer:
        producer.abort_transaction(_LIMIT_SECONDS)
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.read, list(archive.log.table.pages())) == (0, [])
        send(settings, [introspection("real")])
        assert drained(spark, archive).read == 1
        assert names(archive) == {"real"}


def test_records_wait_for_the_transaction_before_them(
    spark: SparkSession, pipeline_settings: Settings
) -> None:
    send(pipeline_settings, [introspection("before")])
    with (
        open_archive(pipeline_settings) as archive,
        begun(pipeline_settings, introspection("taken back")) as aborted,
        begun(pipeline_settings, introspection("open")) as open_one,
    ):
        send(pipeline_settings, [introspection("behind")])
        assert drained(spark, archive).read == 1
        aborted.abort_transaction(_LIMIT_SECONDS)
        assert drained(spark, archive).read == 0
        assert names(archive) == {"before"}
        open_one.commit_transaction(_LIMIT_SECONDS)
        assert drained(spark, archive).read == 2
        assert names(archive) == {"before", "open", "behind"}
        require_live_equals_replay(archive)


def test_a_marker_alone_is_passed(spark: SparkSession, pipeline_settings: Settings) -> None:
    with begun(pipeline_settings, introspection("slow")) as producer:
        between = datetime.now(UTC) + timedelta(milliseconds=100)
        let_clock_pass(between + timedelta(milliseconds=100))
        producer.commit_transaction(_LIMIT_SECONDS)
    with open_archive(pipeline_settings) as archive:
        close_before(spark, archive, between)
        assert measure_backlog(archive.platform).records == 1
        assert drained(spark, archive).read == 0
        assert names(archive) == {"slow"}

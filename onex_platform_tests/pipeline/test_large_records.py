"""More bytes than a task may hold, on real servers: smaller cuts, everything once, small pages."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.registration_pages import EnumPageReason
from onex_platform.ingest.verification import verify_log
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay
from onex_platform_tests.support.pipeline_runs import drained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind

TASK_BYTES = 256 * 1024
LARGE = 50_000
ONE_TASK, BY_BUCKET = 50_000, 0


def limited(settings: Settings, small_cut_events: int, **registration: Any) -> Settings:
    """Little memory: every task soon has too much."""
    pages = settings.pages.model_copy(
        update={"task_bytes": TASK_BYTES, "small_cut_events": small_cut_events}
    )
    rules = settings.registration.model_copy(update=registration)
    return settings.model_copy(update={"pages": pages, "registration": rules})


def described(node: str, size: int, event_id: UUID | None = None) -> KafkaRecord:
    """An introspection of this size, which no compression makes smaller than half of it."""
    noise = random.Random(node).randbytes(size // 2).hex()
    return sent(
        Kind.NODE_INTROSPECTION, node, event_id=event_id or uuid4(), metadata={"noise": noise}
    )


def ids_of(archive: PageArchive) -> list[UUID]:
    """The ids of everything that entered from Kafka, as often as it did."""
    return [event.event_id for event in log_of(archive) if event.provenance is not None]


def require_order(archive: PageArchive, cuts: int) -> None:
    """The log is what it is for small records: pages within their bounds, nothing besides it."""
    pages = list(archive.log.table.pages(reasons=(EnumPageReason.INGEST,)))
    assert len(pages) >= cuts
    assert all(page.metadata.payload_bytes > 0 for page in pages)
    assert {item.key for item in archive.log.store.objects()} == {
        page.key for page in archive.log.table.pages()
    }
    assert not verify_log(archive.log).faults
    require_live_equals_replay(archive)
    with archive.database.transaction() as cursor:
        assert not cursor.execute("SELECT FROM staged_ids").fetchall()
        assert not cursor.execute("SELECT FROM staged_parked").fetchall()


def largest_payloads(archive: PageArchive) -> int:
    return max(
        page.metadata.payload_bytes
        for page in archive.log.table.pages(reasons=(EnumPageReason.INGEST,))
    )


@pytest.mark.parametrize("small_cut_events", [ONE_TASK, BY_BUCKET], ids=["one task", "by bucket"])
@pytest.mark.parametrize("nodes", [40, 1], ids=["many nodes", "one node"])
def test_more_than_a_task_holds_is_taken_in_smaller_cuts(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int, nodes: int
) -> None:
    settings = limited(pipeline_settings, small_cut_events)
    ids = [uuid4() for _ in range(48)]
    for start in range(0, 48, 8):  # a moment for each, so that the instants differ
        some = enumerate(ids[start : start + 8], start)
        send(settings, [described(f"node-{n % nodes}", LARGE, event_id) for n, event_id in some])
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.read, account.parked, account.duplicates) == (48, 0, 0)
        assert sorted(ids_of(archive)) == sorted(ids)
        assert largest_payloads(archive) <= TASK_BYTES
        assert account.cuts > 1
        slow = archive.cut_sizer.most_records
        assert slow < 48
        require_order(archive, account.cuts)
        # Small records let the cuts grow again.
        send(settings, [sent(Kind.NODE_HEARTBEAT, f"node-{n % nodes}") for n in range(200)])
        assert drained(spark, archive).read == 200
        assert archive.cut_sizer.most_records > slow


@pytest.mark.parametrize("small_cut_events", [ONE_TASK, BY_BUCKET], ids=["one task", "by bucket"])
def test_large_records_that_are_parked_are_parked_once(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    settings = limited(pipeline_settings, small_cut_events)
    values = [random.Random(n).randbytes(LARGE) for n in range(20)]
    for value in values:
        send(settings, [sent(Kind.NODE_HEARTBEAT, "odd", value=value)])
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.read, account.parked) == (20, 20)
        assert account.cuts > 1
        with archive.database.transaction() as cursor:
            parked = cursor.execute("SELECT value FROM parked_records").fetchall()
        assert sorted(row.value for row in parked) == sorted(values)


@pytest.mark.parametrize("small_cut_events", [ONE_TASK, BY_BUCKET], ids=["one task", "by bucket"])
def test_a_record_larger_than_a_task_holds_enters_or_is_parked_with_its_reason(
    spark: SparkSession, pipeline_settings: Settings, small_cut_events: int
) -> None:
    settings = limited(pipeline_settings, small_cut_events, max_event_bytes=3 * TASK_BYTES)
    for size in (2 * TASK_BYTES, 7 * TASK_BYTES // 2):
        send(settings, [described(f"small-{size}-{n}", 100) for n in range(5)])
        send(settings, [described(f"large-{size}", size)])
    send(settings, [described("last", 100)])
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.read, account.archived, account.parked) == (13, 12, 1)
        assert len(set(ids_of(archive))) == 12
        require_live_equals_replay(archive)
        with archive.database.transaction() as cursor:
            [parked] = cursor.execute("SELECT reason, detail FROM parked_records").fetchall()
        assert parked.reason == "too_large"
        assert "at most 786432 are allowed" in parked.detail


@pytest.mark.parametrize("small_cut_events", [ONE_TASK, BY_BUCKET], ids=["one task", "by bucket"])
def test_a_millisecond_with_more_than_a_task_holds_is_taken_whole_in_several_pages(
    spark: SparkSession, quiet_broker: Settings, small_cut_events: int
) -> None:
    settings = limited(quiet_broker, small_cut_events)
    moment = int(time.time() * 1000) - 60_000
    shared = uuid4()  # one id under several nodes, which only one task can judge
    records = [described(f"node-{n % 12}", LARGE, shared if n < 12 else None) for n in range(40)]
    records += [described("before", 100), described("after", 100)]
    times = [moment] * 40 + [moment - 1, moment + 1]
    timed = [
        record._replace(timestamp_ms=then) for record, then in zip(records, times, strict=True)
    ]
    send(settings, timed)
    with open_archive(settings) as archive:
        account = drained(spark, archive)
        assert (account.read, account.duplicates) == (42, 11)
        entered = [event for event in log_of(archive) if event.provenance is not None]
        occurred = [event.occurred_at.timestamp() * 1000 for event in entered]
        assert sorted(map(round, occurred)) == sorted(times)
        assert largest_payloads(archive) <= TASK_BYTES
        require_order(archive, account.cuts)

"""The log carries events that it knows nothing of: opaque bytes with attributes, numbered by their
writers. They are appended, replayed, merged, verified and swept as registration's are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.database import Cursor
from onex_platform.log.compaction.compact import compact, plan, sweep
from onex_platform.log.compaction.merge import UnequalMergeError, merge_group, merge_pages
from onex_platform.log.page_format import EncodedPage, PageWriter
from onex_platform.log.page_layout import PageLayout, PageMetadata, SequenceColumns, SequenceRange
from onex_platform.log.page_log import LogAddress, PageLimits, PageLog
from onex_platform.log.pins import pinned
from onex_platform.log.replay import PageRef, read_lanes, worthwhile_chunks
from onex_platform.log.stats import log_stats
from onex_platform.log.store import PageStore
from onex_platform.log.verify.orphans import delete_orphans, find_orphans
from onex_platform.log.verify.page_check import EnumLogFault, verify_pages
from onex_platform_tests.support.events import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

BUCKETS = 2
SCHEMA = pa.schema(
    [
        pa.field("writer", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("captured_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)


def moment_of(place: int) -> datetime:
    """Places are milliseconds since the tests' beginning."""
    return START + timedelta(milliseconds=place)


def _counters(rows: pa.Table) -> Mapping[str, int]:
    return {"empty": pc.sum(pc.equal(pc.binary_length(rows["body"]), 0)).as_py()}


CAPTURES = PageLayout(
    schema=SCHEMA,
    sort_by=("writer", "number"),
    moment_of=moment_of,
    merge_reason="merged",
    position="place",
    time="captured_at",
    payload="body",
    sequence=SequenceColumns("writer", "number"),
    counters=_counters,
    dictionary_columns=("writer",),
    statistics_columns=("writer", "number", "place"),
)


class Capture(NamedTuple):
    """An event of the second log."""

    writer: str
    number: int
    place: int
    captured_at: datetime
    attributes: list[tuple[str, str]]
    body: bytes


@pytest.fixture
def captures(store_settings: Settings, tmp_path: Path) -> Iterator[PageLog]:
    """A log of its own, beside registration's in the same database."""
    address = LogAddress(
        settings=store_settings,
        domain="captures",
        buckets=BUCKETS,
        store=PageStore(str(tmp_path / "captures")),
        layout=CAPTURES,
        limits=PageLimits(small_bytes=10**6, target_bytes=10**7, grace_seconds=3600),
    )
    with address.open() as log:
        log.begin()
        yield log


def bucket_of(writer: str) -> int:
    return ord(writer[-1]) % BUCKETS


def capture(writer: str, number: int, place: int) -> Capture:
    body = bytes(range(number % 7))  # every seventh is empty, and none of them is text
    return Capture(writer, number, place, moment_of(place), [("trace", f"{number}")], body)


def page_of(writer_id: str, events: Iterable[Capture], reason: str = "full") -> EncodedPage:
    by_bucket: dict[int, list[dict[str, object]]] = {}
    for event in events:
        by_bucket.setdefault(bucket_of(event.writer), []).append(event._asdict())
    writer = PageWriter(CAPTURES)
    for bucket, rows in by_bucket.items():
        writer.add(bucket, pa.Table.from_pylist(rows, SCHEMA))
    return writer.finish(
        page_id=uuid4(),
        domain="captures",
        writer_id=writer_id,
        reason=reason,
        buckets=BUCKETS,
        period=START,
    )


def fill(log: PageLog, pages: int = 6) -> list[Capture]:
    """Pages of three writers, each with the next ten events of its own; their events."""
    events = []
    for turn in range(pages):
        writer = f"writer-{turn % 3}"
        first = turn // 3 * 10
        part = [capture(writer, first + n, 100 * turn + n) for n in range(10)]
        log.append([log.store.create_page(page_of(writer, reversed(part)))])
        events += part
    return events


def replayed(log: PageLog) -> list[Capture]:
    """The log bucket by bucket, each in the order in which it is read."""
    pages = [PageRef.of(page) for page in log.table.pages()]
    events: list[Capture] = []
    for bucket in range(BUCKETS):
        for chunk in worthwhile_chunks(pages, bucket):
            [rows] = read_lanes(CAPTURES, log.store, chunk, bucket, 0, 2**63 - 1)
            events += [Capture(**row) for row in rows.to_pylist()]
    return events


def let_grace_pass(log: PageLog) -> None:
    with log.database.transaction() as cursor:
        cursor.execute("UPDATE pages SET replaced_at = replaced_at - interval '2 hours'")


def test_every_writers_events_are_read_back_in_its_sequence(captures: PageLog) -> None:
    events = fill(captures)
    found = replayed(captures)
    assert sorted(found) == sorted(events)
    for writer in ("writer-0", "writer-1", "writer-2"):
        numbers = [event.number for event in found if event.writer == writer]
        assert numbers == list(range(20))
    assert log_stats(captures).newest == moment_of(509)


def test_a_page_knows_its_writers_sequence_its_reason_and_its_counters(captures: PageLog) -> None:
    fill(captures)
    pages = list(captures.table.pages(reasons=["full"]))
    assert pages[3].metadata.sequences == {"writer-0": SequenceRange(10, 19)}
    assert [page.metadata.counters for page in pages[:4]] == [{"empty": 2}] * 3 + [{"empty": 1}]
    assert list(captures.table.pages(reasons=["idle"])) == []
    assert [page.metadata.writer_id for page in pages] == [f"writer-{n % 3}" for n in range(6)]


def test_a_part_of_the_log_is_read_by_position(captures: PageLog) -> None:
    fill(captures)
    pages = [PageRef.of(page) for page in captures.table.pages(105, 203)]
    [rows] = read_lanes(CAPTURES, captures.store, pages, None, 105, 203, [["place"]])
    assert sorted(rows["place"].to_pylist()) == [*range(105, 110), *range(200, 203)]


def test_pages_and_the_callers_rows_are_appended_together_or_not_at_all(captures: PageLog) -> None:
    def checkpoint(cursor: Cursor) -> None:
        cursor.execute("CREATE TABLE checkpoints AS SELECT 9 AS number")

    def refuse(cursor: Cursor) -> None:
        checkpoint(cursor)
        raise LookupError("a rival was first")

    page = captures.store.create_page(page_of("writer-0", [capture("writer-0", 9, 9)]))
    with pytest.raises(LookupError):
        captures.append([page], within=refuse)
    assert list(captures.table.pages()) == []
    captures.append([page], within=checkpoint)  # the table is not there yet
    assert list(captures.table.pages()) == [page]


def test_many_small_pages_become_one_and_the_old_ones_are_swept(
    spark: SparkSession, captures: PageLog
) -> None:
    events = fill(captures)
    account = compact(spark, captures, below=1000)
    assert (account.pages, account.merged_pages, account.events) == (6, 1, 60)
    assert account.failures == []
    [page] = captures.table.pages()
    assert page.metadata.reason == "merged"
    assert page.metadata.sequences == {f"writer-{n}": SequenceRange(0, 19) for n in range(3)}
    assert page.metadata.counters == {"empty": 9}
    assert sorted(replayed(captures)) == sorted(events)
    assert sweep(captures).pages == 0
    let_grace_pass(captures)
    assert sweep(captures).pages == 6
    assert [item.key for item in captures.store.objects()] == [page.key]
    assert verify_pages(captures, spark=spark).faults == []


def test_a_merge_that_loses_an_event_replaces_nothing(captures: PageLog) -> None:
    events = fill(captures)

    def careless(
        layout: PageLayout, sources: Sequence[bytes], target_bytes: int
    ) -> Iterator[EncodedPage]:
        return merge_pages(layout, sources[1:], target_bytes)

    [group] = plan(captures, below=1000)
    with pytest.raises(UnequalMergeError, match="6 pages"):
        merge_group(captures, group, careless)
    assert sorted(replayed(captures)) == sorted(events)


def test_what_a_reader_pins_is_kept_until_it_is_done(captures: PageLog) -> None:
    fill(captures)
    [group] = plan(captures, below=1000)
    with pinned(captures.database, "captures"), pinned(captures.database, "another log"):
        assert merge_group(captures, group)
        with captures.database.transaction() as cursor:
            cursor.execute("UPDATE pages SET replaced_at = replaced_at - interval '1 day'")
            cursor.execute("UPDATE log_pins SET pinned_at = pinned_at - interval '1 day'")
        assert sweep(captures, dry_run=True).pages == 0
    assert sweep(captures).pages == 6


def test_missing_pages_are_named_with_their_place(captures: PageLog) -> None:
    fill(captures)
    page = next(captures.table.pages())
    captures.store.delete(page.key)
    [fault] = verify_pages(captures).faults
    assert fault.fault is EnumLogFault.MISSING
    assert f"{page.key} (positions 0 to 9, {START.isoformat(timespec='milliseconds')}" in str(fault)


def test_an_orphan_dies_when_its_writers_say_so(captures: PageLog) -> None:
    fill(captures)
    later = datetime.now(UTC) + timedelta(hours=2)
    left = captures.store.create_page(page_of("writer-1", [capture("writer-1", 5, 900)]))

    def is_confirmed(page: PageMetadata) -> bool:
        """The writer went on behind the page: it would not be appended any more."""
        return page.sequences["writer-1"].last < confirmed

    confirmed = 5
    assert [o.dead for o in find_orphans(captures, is_confirmed, later)] == [False]
    confirmed = 20
    found = list(find_orphans(captures, is_confirmed, later))
    assert [(o.key, o.dead) for o in found] == [(left.key, True)]
    assert delete_orphans(captures, found) == 1
    assert list(find_orphans(captures, is_confirmed, later)) == []


def test_two_logs_in_one_database_do_not_meet(captures: PageLog) -> None:
    fill(captures)
    beside = PageLog(replace(captures.address, domain="beside"), captures.database)
    beside.begin()
    assert list(beside.table.pages()) == plan(beside, below=1000) == []
    assert log_stats(beside).pages == 0
    narrower = PageLog(replace(captures.address, buckets=1), captures.database)
    with pytest.raises(ConfigurationError, match="has 2"):
        narrower.begin()

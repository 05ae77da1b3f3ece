"""A page keeps its events, its buckets apart, and knows what is in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from unittest import mock
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.ingest import event_schema
from onex_platform.ingest.event_schema import BEAT_COLUMNS, bucket_of, to_events
from onex_platform.ingest.registration_pages import (
    BEATS,
    CHANGES,
    REGISTRATION_PAGES,
)
from onex_platform.log import page_format, page_layout
from onex_platform.log.page_format import (
    checksum_of,
    open_page,
    read_buckets,
    read_metadata,
    read_page,
)
from onex_platform_tests.support.encoded_pages import BUCKETS, page_of
from onex_platform_tests.support.events import START, event
from onex_platform_tests.support.histories import records, run_in_cuts


@pytest.fixture(params=[8192, 0, 3], ids=["packed", "apart", "too many to pack"])
def packed_rows(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many events a page may have to be packed."""
    with mock.patch.object(page_format, "_PACKED_ROWS", request.param):
        yield request.param


@given(history=records())
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_page_gives_back_what_was_put_in(packed_rows: int, history: list[RawRecord]) -> None:
    log = run_in_cuts(history, [], RegistrationPolicy(), START).log
    page = page_of(log)
    assert page.metadata.packed == (len(log) <= packed_rows)
    source = open_page(io.BytesIO(page.data))
    assert read_metadata(REGISTRATION_PAGES, source) == page.metadata
    tables = [
        read_page(REGISTRATION_PAGES, source, page.metadata, lane=lane) for lane in (CHANGES, BEATS)
    ]
    events = list(to_events(pa.concat_tables(tables), "registration"))
    assert sorted(events, key=str) == sorted(log, key=str)
    assert page.metadata.event_count == len(log)
    assert page.metadata.min_position == min(e.position for e in log)
    assert page.metadata.max_position == max(e.position for e in log)
    assert page.checksum == checksum_of(page.data)


@pytest.mark.usefixtures("packed_rows")
def test_a_bucket_is_read_without_the_others_and_without_payloads() -> None:
    log = [
        event(kind, 8 * n + 8 * m, n, node=UUID(int=n))
        for n in range(20)
        for m, kind in enumerate((EnumEventKind.NODE_INTROSPECTION, EnumEventKind.NODE_HEARTBEAT))
    ]
    page = page_of(log)
    file = open_page(io.BytesIO(page.data))
    for bucket in page.metadata.bucket_numbers:
        beats = read_page(
            REGISTRATION_PAGES, file, page.metadata, bucket=bucket, lane=BEATS, columns=BEAT_COLUMNS
        )
        assert beats.column_names == BEAT_COLUMNS
        assert {bucket_of(e, BUCKETS) for e in beats["entity_id"].to_pylist()} <= {bucket}
        groups = {g.lane: g.events for g in page.metadata.row_groups if g.bucket == bucket}
        assert len(beats) == groups[BEATS]
        parts = [part for number, part in read_buckets(file, page.metadata, {bucket})]
        assert [len(part) for part in parts] == [groups[CHANGES], groups[BEATS]]
        assert parts[1].select(BEAT_COLUMNS) == beats
    everywhere = read_page(REGISTRATION_PAGES, file, page.metadata, lane=BEATS)
    assert len(everywhere) == 20
    assert len(read_page(REGISTRATION_PAGES, file, page.metadata, bucket=99, lane=BEATS)) == 0
    assert list(read_buckets(file, page.metadata, {99})) == []


def test_the_page_of_a_small_cut_is_small() -> None:
    page = page_of([event(EnumEventKind.NODE_HEARTBEAT, 8 * n, n, node=uuid4()) for n in range(64)])
    assert page.metadata.bucket_numbers == list(range(BUCKETS))
    file = open_page(io.BytesIO(page.data))
    assert file.num_row_groups == 1
    # What is packed is found where the lanes before it are empty.
    lanes = [read_page(REGISTRATION_PAGES, file, page.metadata, lane=n) for n in (CHANGES, BEATS)]
    assert [len(lane) for lane in lanes] == [0, 64]


def test_large_payloads_are_divided_into_groups_of_few_bytes_and_never_packed() -> None:
    log = [
        event(EnumEventKind.NODE_INTROSPECTION, 8 * n, n, node=uuid4(), metadata={"x": "y" * 500})
        for n in range(40)
    ]
    with (
        mock.patch.object(page_format, "_ROW_GROUP_BYTES", 2000),
        mock.patch.object(page_layout, "_WIDE_BYTES", 1000),
    ):
        page = page_of(log)
    file = open_page(io.BytesIO(page.data))
    assert not page.metadata.packed
    assert 15 <= file.num_row_groups == len(page.metadata.row_groups)
    table = read_page(REGISTRATION_PAGES, file, page.metadata, lane=CHANGES)
    assert table.schema.equals(event_schema.LOG_SCHEMA)
    assert sorted(to_events(table, "registration"), key=str) == sorted(log, key=str)
    assert page.metadata.payload_bytes == sum(map(len, table["payload"].to_pylist()))

"""A page keeps its events, its buckets apart, and knows what is in it."""

from __future__ import annotations

import io
from uuid import uuid4

import pyarrow as pa
from hypothesis import given, settings

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.pages.format import (
    EncodedPage,
    EnumPageReason,
    PageWriter,
    checksum_of,
    open_page,
    read_metadata,
    read_page,
)
from onex_platform.pages.schema import BEAT_COLUMNS, bucket_of, to_events, to_table
from onex_platform_tests.domain.builders import START, event
from onex_platform_tests.domain.histories import records, run_in_cuts

BUCKETS = 4


def page_of(log: list) -> EncodedPage:
    writer = PageWriter()
    for bucket in range(BUCKETS):
        part = [e for e in log if bucket_of(e.entity.entity_id.bytes, BUCKETS) == bucket]
        if part:
            writer.add(bucket, to_table(part))
    return writer.finish(
        page_id=uuid4(),
        domain="registration",
        writer_id="ingest",
        reason=EnumPageReason.INGEST,
        buckets=BUCKETS,
        period=START,
    )


@given(history=records())
@settings(max_examples=50, deadline=None)
def test_a_page_gives_back_what_was_put_in(history: list[RawRecord]) -> None:
    log = run_in_cuts(history, [], RegistrationPolicy(), START).log
    page = page_of(log)
    source = open_page(io.BytesIO(page.data))
    assert read_metadata(source) == page.metadata
    tables = [read_page(source, page.metadata, beats=beats) for beats in (False, True)]
    events = list(to_events(pa.concat_tables(tables), "registration"))
    assert sorted(events, key=str) == sorted(log, key=str)
    assert page.metadata.event_count == len(log)
    assert page.metadata.min_position == min(e.position for e in log)
    assert page.metadata.max_position == max(e.position for e in log)
    assert page.checksum == checksum_of(page.data)


def test_a_bucket_is_read_without_the_others_and_without_payloads() -> None:
    log = [
        event(kind, 8 * n + 8 * m, n, node=uuid4())
        for n in range(20)
        for m, kind in enumerate((EnumEventKind.NODE_INTROSPECTION, EnumEventKind.NODE_HEARTBEAT))
    ]
    page = page_of(log)
    file = open_page(io.BytesIO(page.data))
    for bucket in page.metadata.bucket_numbers:
        beats = read_page(file, page.metadata, bucket=bucket, beats=True, columns=BEAT_COLUMNS)
        assert beats.column_names == BEAT_COLUMNS
        assert {bucket_of(e, BUCKETS) for e in beats["entity_id"].to_pylist()} <= {bucket}
    everywhere = read_page(file, page.metadata, beats=True)
    assert len(everywhere) == 20
    assert len(read_page(file, page.metadata, bucket=99, beats=True)) == 0

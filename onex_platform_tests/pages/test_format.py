"""A page keeps its events, its buckets apart, and knows what is in it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.errors import ConfigurationError, OnexError
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
from onex_platform.pages.store import PageMissingError, PageStore
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


def test_the_store_never_overwrites(tmp_path: Path) -> None:
    store = PageStore(str(tmp_path / "pages"))
    store.create("a/b.parquet", b"first")
    with pytest.raises(OnexError, match=r"a/b\.parquet exists"):
        store.create("a/b.parquet", b"second")
    assert store.read("a/b.parquet") == b"first"
    assert [(item.key, item.encoded_bytes) for item in store.objects()] == [("a/b.parquet", 5)]
    store.delete("a/b.parquet")
    store.delete("a/b.parquet")
    assert list(store.objects()) == []


def test_a_local_page_is_on_the_disk_before_the_index_can_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    PageStore(str(tmp_path)).create("a/b/c.parquet", b"page")
    places = (tmp_path / name for name in ("a/b/c.parquet", "a/b", "a", ""))
    assert synced == [place.stat().st_ino for place in places]


def test_a_missing_page_and_a_wrong_address_are_named(tmp_path: Path) -> None:
    with pytest.raises(PageMissingError, match="gone"):
        PageStore(str(tmp_path)).read("gone")
    with pytest.raises(PageMissingError, match="gone"):
        PageStore(str(tmp_path)).open("gone")
    with pytest.raises(ConfigurationError, match="ftp://nowhere"):
        PageStore("ftp://nowhere")

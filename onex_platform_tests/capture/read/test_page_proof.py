"""A proof reads pages, compares them with the index, and follows every writer's sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.captured_events import EventColumns, PageEntry
from onex_platform.capture.codecs.parquet import event_table
from onex_platform.capture.compaction.page_merging import merged_page
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.flush.retrying import IndexQueue
from onex_platform.capture.read.page_proof import PageProof, Waiting, prove_pages
from onex_platform_tests.support.captured_archives import (
    archive_address,
    some_pages,
    store_pages,
)
from onex_platform_tests.support.captured_pages import entry_of, events_of, page_of


@pytest.fixture
def archive(tmp_path: Path) -> CapturedArchive:
    with archive_address(tmp_path).open() as opened:
        return opened


def proved(archive: CapturedArchive, waiting: Waiting | None = None) -> PageProof:
    return prove_pages(archive.index, archive.storage, archive.tenants, waiting)


def of_a(*numbers: int) -> list[PageEntry]:
    return [entry_of(page_of(events_of("a", numbers, tenant=DEFAULT_TENANT)))]


def test_whole_pages_have_no_faults(archive: CapturedArchive) -> None:
    pages = some_pages(20)
    store_pages(archive.storage, archive.index, pages)
    assert proved(archive) == PageProof(pages=21, read=21, events=sum(map(len, pages)))


def test_a_sample_reads_so_many_pages(archive: CapturedArchive) -> None:
    entries = store_pages(archive.storage, archive.index, some_pages(20))
    for entry in entries:
        archive.storage.delete(entry.key)
    proof = prove_pages(archive.index, archive.storage, archive.tenants, sample=3, seed=1)
    assert (proof.read, len(proof.faults)) == (3, 3)


def _missing(archive: CapturedArchive, entry: PageEntry) -> None:
    archive.storage.delete(entry.key)


def _rewritten(data: Callable[[bytes], bytes]) -> Callable[[CapturedArchive, PageEntry], None]:
    def harm(archive: CapturedArchive, entry: PageEntry) -> None:
        before = archive.storage.get(entry.key)
        archive.storage.delete(entry.key)
        archive.storage.put(entry.key, data(before), content_type="x/y", attributes={})

    return harm


def _index_says(**what: object) -> Callable[[CapturedArchive, PageEntry], None]:
    def harm(archive: CapturedArchive, entry: PageEntry) -> None:
        archive.index.forget([entry.info.page_id])
        archive.index.publish([replace(entry, info=replace(entry.info, **what))])  # type: ignore[arg-type]

    return harm


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_missing, "it is missing"),
        (_rewritten(lambda data: data[:-1]), "the index says"),
        (_rewritten(lambda data: data[:-1] + bytes([data[-1] ^ 1])), "its checksum is not"),
        (_index_says(event_count=7), "than its own header"),
        (_index_says(tags={"x": "y"}), "than its own header"),
    ],
)
def test_a_fault_is_named_with_its_page(
    archive: CapturedArchive, harm: Callable[[CapturedArchive, PageEntry], None], says: str
) -> None:
    entry, _ = store_pages(
        archive.storage,
        archive.index,
        [events_of("a", [n], tenant=DEFAULT_TENANT) for n in (1, 2)],
    )
    harm(archive, entry)
    [fault] = proved(archive).faults
    assert fault.startswith(entry.key)
    assert says in fault


def test_a_page_that_leaves_out_sequences_that_it_claims_is_a_fault(
    archive: CapturedArchive,
) -> None:
    pages = [events_of("a", [n], tenant=DEFAULT_TENANT) for n in (1, 3)]
    entries = store_pages(archive.storage, archive.index, pages)
    events = EventColumns.of(event for one in pages for event in one)
    page = merged_page(entries, event_table(events))
    entry = entry_of(page)
    archive.storage.put(entry.key, page.data, content_type="x/y", attributes={})
    archive.index.replace(entry)
    [fault] = proved(archive).faults
    assert "sequences are missing in it" in fault


def test_sequences_in_no_page_are_a_fault_unless_they_wait_somewhere(
    archive: CapturedArchive, tmp_path: Path
) -> None:
    pages = [events_of("a", [n], tenant=DEFAULT_TENANT) for n in (1, 3, 5)]
    store_pages(archive.storage, archive.index, pages)
    [first, second] = proved(archive).faults
    assert first == "sequences in no page: default 'a': 2 to 2"
    assert "4 to 4" in second
    folder = tmp_path / "folder"
    assert proved(archive, Waiting(folder)).faults == [first, second]
    assert not folder.exists(), "a question writes nothing"
    [letter], [queued] = of_a(2), of_a(4)
    DeadLetters(folder / "dead_letters").add(letter, b"", "x/y", "refused")
    IndexQueue(folder / "index_queue").add(queued)
    assert proved(archive, Waiting(folder)).faults == []

"""One group of pages merged: read and checked, written anew, and put into the page table.

Nothing of it is part of the log until the table says so, in one transaction: a crash before it
leaves new files that nobody reads, a crash after it old files, which `sweep` removes in time.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.log.compaction.planning import CompactionGroup
from onex_platform.log.page_format import (
    EncodedPage,
    PageWriter,
    open_page,
    read_buckets,
    read_metadata,
)
from onex_platform.log.page_layout import PageLayout, PageMetadata
from onex_platform.log.page_log import PageLog
from onex_platform.log.store import StoredPage, concurrently

# Turns the bytes of some pages into pages of about so many bytes that hold the same events.
Merge = Callable[[PageLayout, Sequence[bytes], int], Iterator[EncodedPage]]

WRITER = "compaction"
# What is decoded at once, some 200 MB; a larger group is taken in several goes, bucket by bucket.
_EVENTS_IN_MEMORY = 500_000
_BYTES_IN_MEMORY = 512 * 1024**2  # of payloads


class UnequalMergeError(OnexError):
    """Merged pages would not hold what the pages before them hold."""


def merge_pages(
    layout: PageLayout, sources: Sequence[bytes], target_bytes: int
) -> Iterator[EncodedPage]:
    """The events of some pages as one; beyond the target size as several, bucket by bucket."""
    about = [read_metadata(layout, open_page(io.BytesIO(source))) for source in sources]
    writer = None
    for bucket, events in _by_bucket(sources, about):
        writer = writer or PageWriter(layout)
        writer.add(bucket, events)
        if writer.encoded_bytes >= target_bytes:
            yield _finish(layout, writer, about)
            writer = None
    if writer is not None:
        yield _finish(layout, writer, about)


def merge_group(
    log: PageLog, group: CompactionGroup, merge: Merge = merge_pages
) -> list[StoredPage]:
    """Replace the group's pages by others with the same events; none if a rival was faster."""
    sources = list(
        concurrently(lambda page: log.store.read_whole(page.key, page.checksum), group.pages)
    )
    with effect("compact.write_pages"):
        pages = merge(log.layout, sources, log.limits.target_bytes)
        merged = [log.store.create_page(page) for page in pages]
    _require_equal(log.layout, group, merged)
    with effect("compact.replace_pages"):
        replaced = log.table.replace([page.page_id for page in group.pages], merged)
    if not replaced:
        for loser in merged:
            log.store.delete(loser.key)
        merged.clear()
    return merged


def _finish(layout: PageLayout, writer: PageWriter, merged: list[PageMetadata]) -> EncodedPage:
    return writer.finish(
        page_id=uuid4(),
        domain=merged[0].domain,
        writer_id=WRITER,
        reason=layout.merge_reason,
        buckets=merged[0].buckets,
        period=min(page.period for page in merged),
        merged_from=merged[0].page_id,
    )


def _by_bucket(
    sources: Sequence[bytes], about: list[PageMetadata]
) -> Iterator[tuple[int, pa.Table]]:
    """Each bucket's events of all pages; as many buckets are decoded at once as memory allows."""
    buckets = sorted({bucket for page in about for bucket in page.bucket_numbers})
    goes = 1 + max(
        sum(page.event_count for page in about) // _EVENTS_IN_MEMORY,
        sum(page.payload_bytes for page in about) // _BYTES_IN_MEMORY,
    )
    at_once = -(-len(buckets) // goes)
    for start in range(0, len(buckets), at_once):
        chosen = buckets[start : start + at_once]
        parts: dict[int, list[pa.Table]] = {bucket: [] for bucket in chosen}
        for source, page in zip(sources, about, strict=True):
            file = open_page(io.BytesIO(source))
            for bucket, part in read_buckets(file, page, parts.keys()):
                parts[bucket].append(part)
        for bucket in chosen:
            yield bucket, pa.concat_tables(parts.pop(bucket))


def _require_equal(layout: PageLayout, group: CompactionGroup, merged: list[StoredPage]) -> None:
    before = (group.events, _total(page.counters for page in group.pages), *group.span)
    after = (
        sum(page.metadata.event_count for page in merged),
        _total(page.metadata.counters for page in merged),
        min(page.metadata.min_position for page in merged),
        max(page.metadata.max_position for page in merged),
    )
    if before != after:
        raise UnequalMergeError(
            f"Merging {group}, {layout.describe(*group.span)}, would turn its number of events, its"
            f" counters, its first and its last position from {before} into {after}.",
            hint="Nothing was replaced; `onex pages verify` tells which page differs.",
        )


def _total(counters: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counters:
        total.update(one)
    return {name: count for name, count in total.items() if count}

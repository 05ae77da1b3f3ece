"""One group of pages merged: read and checked, written anew, and put into the index.

Nothing of it is part of the log until the index says so, in one transaction: a crash before it
leaves new files that nobody reads, a crash after it old files, which `sweep` removes in time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.ingest.index import PageIndex, StoredPage
from onex_platform.log.compaction.planning import CompactionGroup
from onex_platform.log.page_format import (
    EncodedPage,
    EnumPageReason,
    PageMetadata,
    PageWriter,
    open_page,
    read_buckets,
    read_metadata,
)
from onex_platform.log.store import PageStore, concurrently, page_key

WRITER = "compaction"
# What is decoded at once, some 200 MB; a larger group is taken in several goes, bucket by bucket.
_EVENTS_IN_MEMORY = 500_000
_BYTES_IN_MEMORY = 512 * 1024**2  # of payloads


class UnequalMergeError(OnexError):
    """Merged pages would not hold what the pages before them hold."""


def merge_group(
    index: PageIndex, store: PageStore, group: CompactionGroup, target_bytes: int
) -> list[StoredPage]:
    """Replace the group's pages by others with the same events; none if a rival was faster."""
    sources = list(
        concurrently(lambda page: store.read_whole(page.key, page.checksum), group.pages)
    )
    merged = []
    with effect("compact.write_pages"):
        for page in merge_pages(sources, target_bytes):
            key = page_key(page.metadata)
            store.create(key, page.data, page.attributes)
            merged.append(StoredPage(page.metadata, key, len(page.data), page.checksum))
    _require_equal(group, merged)
    with effect("compact.replace_pages"):
        replaced = index.replace([page.page_id for page in group.pages], merged)
    if not replaced:
        for loser in merged:
            store.delete(loser.key)
        merged.clear()
    return merged


def merge_pages(sources: Sequence[bytes], target_bytes: int) -> Iterator[EncodedPage]:
    """The events of some pages as one; beyond the target size as several, bucket by bucket."""
    about = [read_metadata(open_page(io.BytesIO(source))) for source in sources]
    writer = None
    for bucket, events in _by_bucket(sources, about):
        writer = writer or PageWriter()
        writer.add(bucket, events)
        if writer.encoded_bytes >= target_bytes:
            yield _finish(writer, about)
            writer = None
    if writer is not None:
        yield _finish(writer, about)


def _finish(writer: PageWriter, merged: list[PageMetadata]) -> EncodedPage:
    return writer.finish(
        page_id=uuid4(),
        domain=merged[0].domain,
        writer_id=WRITER,
        reason=EnumPageReason.COMPACTION,
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


def _require_equal(group: CompactionGroup, merged: list[StoredPage]) -> None:
    before = (
        group.events,
        sum(page.entered for page in group.pages),
        *group.span,
    )
    after = (
        sum(page.metadata.event_count for page in merged),
        sum(page.metadata.event_count - page.metadata.decided for page in merged),
        min(page.metadata.min_position for page in merged),
        max(page.metadata.max_position for page in merged),
    )
    if before != after:
        raise UnequalMergeError(
            f"Merging {group} would turn its numbers of events and of those that entered, its "
            f"first and its last position from {before} into {after}.",
            hint="Nothing was replaced; `onex pages verify` tells which page differs.",
        )

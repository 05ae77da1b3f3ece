"""Compaction of captured pages on Spark: many small ones become few, and no event is lost or moved.

What holds, whatever happens and wherever it is killed:

- Only pages are touched that readers find, that are small, and whose events are older than
  `compaction.settle_seconds`.
- Pages are checked against their checksums before they are merged: damage is reported, never
  copied. Every event stays, with its writer's sequence.
- Readers find the old pages or the new one. Old ones stay for the grace period; then `sweep`
  deletes them. A replay that is under way by then looks its pages up again and goes on.
- Two runs at once are harmless: the same group gives the same page, and events that then lie in two
  pages are read once.

A run is capped in groups, its memory by one group per task; `plan` is its dry run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_archive import ArchiveAddress, CapturedArchive
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.codecs import MERGED_FORMAT, page_codec
from onex_platform.capture.compaction.merge_groups import MergeGroup, plan_merges
from onex_platform.capture.compaction.page_merging import merge_group
from onex_platform.capture.errors import ObjectMissingError
from onex_platform.capture.read.reconcile import removable, remove_pages
from onex_platform.capture.slots import ObjectHead, PageQuery
from onex_platform.log.compaction.compact import CompactionAccount, Merger, Swept, merge_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS_PER_RUN = 100
PAGES_PER_SWEEP = 10_000


def plan(archive: CapturedArchive, now: datetime, limit: int | None = None) -> list[MergeGroup]:
    """What is worth merging now, tenant by tenant, oldest first."""
    compaction = archive.config.compaction
    now_us = int(now.timestamp() * 1_000_000)
    settled_us = now_us - int(compaction.settle_seconds * 1_000_000)
    groups = (
        group
        for tenant in archive.tenants
        for group in plan_merges(
            archive.index.query(PageQuery(tenant)),
            compaction.merge_limits(),
            settled_us=settled_us,
            now_us=now_us,
        )
    )
    return list(islice(groups, limit))


def compact(
    spark: SparkSession, archive: CapturedArchive, limit: int = GROUPS_PER_RUN
) -> CompactionAccount:
    """Merge small pages, at most so many groups of them."""
    address = archive.address
    if address.config.index.backend == "memstore":
        raise ConfigurationError(
            "index.backend is memstore, which only the snapshotter's own process can change.",
            hint="Compaction needs an index that others reach, such as postgres.",
        )
    groups = plan(archive, datetime.now(UTC), limit)
    return merge_on_spark(spark, groups, lambda: _merger(address))


@contextmanager
def _merger(address: ArchiveAddress) -> Iterator[Merger[MergeGroup]]:
    keys = address.config.keys().with_extension(page_codec(*MERGED_FORMAT).extension)
    with address.open() as opened:
        yield lambda group: [
            entry.storage_size_bytes
            for entry in merge_group(opened.index, opened.storage, keys, group)
        ]


def sweep(
    archive: CapturedArchive,
    now: datetime,
    limit: int = PAGES_PER_SWEEP,
    *,
    dry_run: bool = False,
) -> Swept:
    """Delete replaced pages whose successor is sound and has been there for the grace period."""
    before = now - timedelta(seconds=archive.config.compaction.grace_seconds)
    chosen: list[PageEntry] = []
    for tenant in archive.tenants:
        replaced = list(archive.index.replaced(tenant))
        if replaced:
            visible = list(archive.index.query(PageQuery(tenant)))
            chosen += removable(replaced, visible, lambda key: _head(archive, key), before)
    chosen = chosen[:limit]
    if not dry_run:
        remove_pages(archive.index, archive.storage, chosen)
    return Swept(len(chosen), sum(page.storage_size_bytes for page in chosen))


def _head(archive: CapturedArchive, key: str) -> ObjectHead | None:
    try:
        return archive.storage.head(key)
    except ObjectMissingError:
        return None

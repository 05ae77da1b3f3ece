"""Retention of captured pages: old ones go, where `retention.days` is set and nowhere else.

What holds:
- A page goes when its youngest event is old enough, and only behind all earlier pages of its
  writers: what stays has no gap that was not there before.
- A merged page stays while pages that it replaced are still remembered: they would come back.
- Pages go a few at a time, objects first. A killed run leaves entries without objects, which the
  next one forgets.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from onex_platform.capture.captured_archive import CapturedArchive
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.read.page_selection import Selection, in_reading_order
from onex_platform.capture.read.reconcile import remove_pages
from onex_platform.capture.slots import PageQuery
from onex_platform.log.compaction.compact import Swept

_AT_ONCE = 100


def expire(archive: CapturedArchive, now: datetime, limit: int, *, dry_run: bool = False) -> Swept:
    """Delete pages that are older than the configuration wants, at most so many."""
    days = archive.config.retention.days
    if days is None:
        return Swept(0, 0)
    before_us = int((now - timedelta(days=days)).timestamp() * 1_000_000)
    chosen: list[PageEntry] = []
    for tenant in archive.tenants:
        remembered = {entry.info.page_id for entry in archive.index.replaced(tenant)}
        pages = archive.index.query(PageQuery(tenant))
        old = expired(pages, before_us, remembered)
        for together in in_reading_order(old, Selection(tenant)):
            if len(chosen) + len(together) > limit:
                break
            chosen += together
    if not dry_run:
        for start in range(0, len(chosen), _AT_ONCE):
            remove_pages(archive.index, archive.storage, chosen[start : start + _AT_ONCE])
    return Swept(len(chosen), sum(page.storage_size_bytes for page in chosen))


def expired(
    pages: Iterable[PageEntry], before_us: int, remembered: Iterable[str] = ()
) -> list[PageEntry]:
    """The pages of a tenant whose events are all older, as far as none has to stay for a reason
    above; `remembered` are the ids of replaced pages that still exist."""
    remembered = set(remembered)
    going: list[PageEntry] = []
    staying: list[PageEntry] = []
    for page in pages:
        is_old = page.info.end_time_us < before_us and remembered.isdisjoint(page.info.replaces)
        (going if is_old else staying).append(page)
    kept_from: dict[str, int] = {}
    while staying:
        for page in staying:
            for span in page.info.writers:
                first = kept_from.get(span.writer_id, span.first_sequence)
                kept_from[span.writer_id] = min(first, span.first_sequence)
        staying = [page for page in going if _is_behind(page, kept_from)]
        held = {page.info.page_id for page in staying}
        going = [page for page in going if page.info.page_id not in held]
    return going


def _is_behind(page: PageEntry, kept_from: dict[str, int]) -> bool:
    """Whether something of a writer's stays that comes before the end of the page."""
    return any(
        span.writer_id in kept_from and span.last_sequence >= kept_from[span.writer_id]
        for span in page.info.writers
    )

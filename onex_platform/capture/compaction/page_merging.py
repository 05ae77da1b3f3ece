"""One group of captured pages merged: read and checked, written anew, and put into the index.

A merged page's id follows from the pages that it replaces: a task that is tried again, or a rival
with the same group, writes the same page. Readers find the old pages or the new one, because the
index takes the replacement as one change. A crash before it leaves a page that the index does not
know; it holds nothing but what the others hold, so `onex pages reconcile` may publish it at any
time. A crash after it leaves old pages, which the sweep removes in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID, uuid5

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.capture.captured_events import (
    CapturedEvent,
    CutReason,
    EncodedPage,
    PageEntry,
    PageInfo,
    ranges_of,
)
from onex_platform.capture.codecs import MERGED_FORMAT, page_codec, read_page
from onex_platform.capture.compaction.merge_groups import MergeGroup
from onex_platform.capture.errors import ObjectExistsError
from onex_platform.capture.flush.keys import KeyTemplate
from onex_platform.capture.flush.page_json import info_to_attributes
from onex_platform.capture.read.event_replay import Done, read_entry
from onex_platform.capture.slots import ObjectStorage, PageIndex, PageQuery
from onex_platform.log.page_format import checksum_of

_IDS = UUID("5b1f0a4e-3c1d-5d2b-9d0e-6a8f3f0c7b11")


class UnequalEventsError(OnexError):
    """Pages don't hold what their entries say, or contradict each other."""


def merge_group(
    index: PageIndex, storage: ObjectStorage, keys: KeyTemplate, group: MergeGroup
) -> list[PageEntry]:
    """Replace the group's pages by one with the same events; none if a rival was faster."""
    if not _are_found(index, group.pages):
        return []
    page = merged_page(group.pages, _events(storage, group.pages))
    _require_equal(group, page.info)
    entry = PageEntry(page.info, keys.key(page.info), len(page.data), checksum_of(page.data))
    with effect("capture.write_merged"):
        entry = _stored(storage, entry, page)
    with effect("capture.replace_pages"):
        index.replace(entry)
    return [entry]


def merged_page(pages: Sequence[PageEntry], events: Sequence[CapturedEvent]) -> EncodedPage:
    """A page of these events, which are sorted by writer and sequence, instead of those pages."""
    infos = [page.info for page in pages]
    ids = sorted(info.page_id for info in infos)
    common = set.intersection(*(set(info.tags.items()) for info in infos))
    info = PageInfo(
        page_id=uuid5(_IDS, "\n".join(ids)).hex,
        tenant=infos[0].tenant,
        writers=ranges_of(events),
        page_sequence=max(info.page_sequence for info in infos),
        start_time_us=min(info.start_time_us for info in infos),
        end_time_us=max(info.end_time_us for info in infos),
        event_count=len(events),
        format=MERGED_FORMAT[0],
        compression=MERGED_FORMAT[1],
        reason=CutReason.COMPACTION.value,
        tags=dict(common),
        replaces=tuple(ids),
    )
    return page_codec(*MERGED_FORMAT).encode(info, events)


def _are_found(index: PageIndex, pages: Sequence[PageEntry]) -> bool:
    infos = [page.info for page in pages]
    query = PageQuery(
        infos[0].tenant,
        from_us=min(info.start_time_us for info in infos),
        until_us=max(info.end_time_us for info in infos) + 1,
    )
    found = {entry.info.page_id for entry in index.query(query)}
    return found.issuperset(info.page_id for info in infos)


def _events(storage: ObjectStorage, pages: Sequence[PageEntry]) -> list[CapturedEvent]:
    """What the pages hold, each event once, sorted by writer and sequence."""
    events: dict[tuple[str, int, str], CapturedEvent] = {}
    for page in pages:
        for event in read_entry(storage, page):
            identity = (event.writer_id, event.sequence, event.event_id)
            if events.setdefault(identity, event) != event:
                raise UnequalEventsError(
                    f"Event {event.event_id!r} of writer {event.writer_id!r}, sequence"
                    f" {event.sequence}, has other bytes in {page.key} than in another page.",
                    hint="Nothing was replaced; compare the pages with `onex pages replay`.",
                )
    return [events[identity] for identity in sorted(events)]


def _require_equal(group: MergeGroup, merged: PageInfo) -> None:
    before = _sequences(page.info for page in group.pages)
    after = _sequences([merged])
    if before != after or merged.event_count > group.events:
        raise UnequalEventsError(
            f"Merging {group} would turn the writers' sequences from {before} into {after}.",
            hint="Nothing was replaced; `onex snapshotter verify` tells which page differs.",
        )


def _sequences(infos: Iterable[PageInfo]) -> dict[str, list[tuple[int, int]]]:
    done = Done()
    for info in infos:
        for span in info.writers:
            done.add(span.writer_id, span.first_sequence, span.last_sequence)
    return dict(sorted(done.ranges.items()))


def _stored(storage: ObjectStorage, entry: PageEntry, page: EncodedPage) -> PageEntry:
    """The page, or the one that an earlier attempt stored: another release of the library may
    encode the same events otherwise."""
    codec = page_codec(*MERGED_FORMAT)
    attributes = info_to_attributes(entry.info, entry.checksum)
    try:
        storage.put(entry.key, page.data, content_type=codec.content_type, attributes=attributes)
        return entry
    except ObjectExistsError:
        data = storage.get(entry.key)
        there = read_page(data)
        if there.events != read_page(page.data).events:
            raise
        return PageEntry(there.info, entry.key, len(data), checksum_of(data))

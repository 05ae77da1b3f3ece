"""One group of captured pages merged: read and checked, written anew, and put into the index.

A merged page's id follows from the pages that it replaces: a task that is tried again, or a rival
with the same group, writes the same page. Readers find the old pages or the new one, because the
index takes the replacement as one change. A crash before it leaves a page that the index does not
know; it holds nothing but what the others hold, so `onex pages reconcile` may publish it at any
time. A crash after it leaves old pages, which the sweep removes in time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.capture.captured_events import (
    CutReason,
    EncodedPage,
    EventColumns,
    PageEntry,
    PageInfo,
    ranges_in,
)
from onex_platform.capture.codecs import MERGED_FORMAT, read_page
from onex_platform.capture.codecs.parquet import ParquetCodec, event_table
from onex_platform.capture.compaction.merge_groups import MergeGroup
from onex_platform.capture.errors import ObjectExistsError
from onex_platform.capture.flush.keys import KeyTemplate
from onex_platform.capture.flush.page_json import info_to_attributes
from onex_platform.capture.read.event_replay import Done, read_entry
from onex_platform.capture.slots import ObjectStorage, PageIndex, PageQuery
from onex_platform.log.page_format import checksum_of

_IDS = UUID("5b1f0a4e-3c1d-5d2b-9d0e-6a8f3f0c7b11")
_IDENTITY = ("writer_id", "sequence", "event_id")


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


def merged_page(pages: Sequence[PageEntry], events: pa.Table) -> EncodedPage:
    """A page of these events, which are sorted by writer and sequence, instead of those pages."""
    times = events["timestamp"].cast(pa.int64())
    places = (column.to_pylist() for column in (events["writer_id"], events["sequence"], times))
    infos = [page.info for page in pages]
    ids = sorted(info.page_id for info in infos)
    common = set.intersection(*(set(info.tags.items()) for info in infos))
    info = PageInfo(
        page_id=uuid5(_IDS, "\n".join(ids)).hex,
        tenant=infos[0].tenant,
        writers=ranges_in(zip(*places, strict=True)),
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
    return ParquetCodec(MERGED_FORMAT[1]).encode_table(info, events)


def _are_found(index: PageIndex, pages: Sequence[PageEntry]) -> bool:
    infos = [page.info for page in pages]
    query = PageQuery(
        infos[0].tenant,
        from_us=min(info.start_time_us for info in infos),
        until_us=max(info.end_time_us for info in infos) + 1,
    )
    found = {entry.info.page_id for entry in index.query(query)}
    return found.issuperset(info.page_id for info in infos)


def _events(storage: ObjectStorage, pages: Sequence[PageEntry]) -> pa.Table:
    """What the pages hold, each event once, sorted by writer and sequence."""
    together = EventColumns.of(())
    ends = []
    for page in pages:
        together.extend(read_entry(storage, page))
        ends.append(len(together.sequences))
    events = event_table(together)
    order = pc.sort_indices(events, sort_keys=[(name, "ascending") for name in _IDENTITY])
    events = events.take(order)
    repeated = _repeated(events)
    if not len(repeated):
        return events
    for row in repeated.tolist():
        if not events.slice(row, 1).equals(events.slice(row - 1, 1)):
            raise _contradiction(events, row, pages[bisect_right(ends, order[row].as_py())])
    return events.take(pa.array(np.setdiff1d(np.arange(len(events)), repeated)))


def _repeated(events: pa.Table) -> NDArray[np.int64]:
    """Where events, sorted by identity, have that of the one before."""
    same = np.ones(max(0, len(events) - 1), dtype=bool)
    for name in _IDENTITY:
        column = events[name].combine_chunks()
        same &= np.asarray(pc.equal(column[1:], column[:-1]))
    return np.flatnonzero(same) + 1


def _contradiction(events: pa.Table, row: int, page: PageEntry) -> UnequalEventsError:
    writer, sequence, event_id = (events[name][row].as_py() for name in _IDENTITY)
    return UnequalEventsError(
        f"Event {event_id!r} of writer {writer!r}, sequence {sequence}, has other bytes in"
        f" {page.key} than in another page.",
        hint="Nothing was replaced; compare the pages with `onex pages replay`.",
    )


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
    kind = ParquetCodec.content_type
    attributes = info_to_attributes(entry.info, entry.checksum)
    try:
        storage.put(entry.key, page.data, content_type=kind, attributes=attributes)
        return entry
    except ObjectExistsError:
        data = storage.get(entry.key)
        there = read_page(data)
        if there.events != read_page(page.data).events:
            raise
        return PageEntry(there.info, entry.key, len(data), checksum_of(data))

"""Capture archives of many small pages, and what a reader gets of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.capture.captured_archive import ArchiveAddress, CapturedArchive
from onex_platform.capture.captured_events import CapturedEvent, PageEntry
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.flush.page_json import info_to_attributes
from onex_platform.capture.read.event_replay import replay
from onex_platform.capture.read.page_selection import Selection
from onex_platform.capture.slots import ObjectStorage, PageIndex
from onex_platform_tests.support.captured_pages import entry_of, events_of, page_of
from onex_platform_tests.support.snapshotters import config_for


class Collected:
    """A sink that keeps what it is given, or breaks after some batches."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.events: list[CapturedEvent] = []
        self._left = breaks_after

    def write(self, events: Sequence[CapturedEvent]) -> None:
        if self._left == 0:
            raise OSError("the sink broke")
        self._left = None if self._left is None else self._left - 1
        self.events += events

    def position(self) -> int:
        return len(self.events)

    def resume(self, position: int) -> None:
        del self.events[position:]


def archive_address(
    folder: Path, database: Settings | None = None, **sections: Any
) -> ArchiveAddress:
    """An archive in a folder, with its index in a database; pages are merged however young."""
    young = {"settle_seconds": 0, "grace_seconds": 3600}
    compaction = {"compaction": young | sections.pop("compaction", {})}
    if database is not None:
        assert database.postgres.url is not None
        connection = database.postgres.url.get_secret_value()
        sections["index"] = {"backend": "postgres", "config": {"connection": connection}}
    return ArchiveAddress(config_for(folder, **sections, **compaction), Settings())


def store_pages(
    storage: ObjectStorage, index: PageIndex, pages: Sequence[Sequence[CapturedEvent]]
) -> list[PageEntry]:
    """Write pages as the service would."""
    entries = []
    for events in pages:
        page = page_of(events)
        entry = entry_of(page)
        attributes = info_to_attributes(page.info, entry.checksum)
        storage.put(entry.key, page.data, content_type="x/y", attributes=attributes)
        entries.append(entry)
    index.publish(entries)
    return entries


def some_pages(count: int, tenant: str = DEFAULT_TENANT) -> list[list[CapturedEvent]]:
    """Pages of three writers: some of one writer, some shared, two with an event in common."""
    random = Random(count)
    upcoming = dict.fromkeys("abc", 1)
    pages = []
    for _ in range(count):
        events: list[CapturedEvent] = []
        for writer in sorted(random.sample("abc", random.choice([1, 1, 2, 3]))):
            length = random.randint(1, 4)
            first = upcoming[writer]
            events += events_of(writer, range(first, first + length), tenant=tenant)
            upcoming[writer] += length
        pages.append(events)
    return [*pages, pages[-1][:1]]


def events_in(
    archive: CapturedArchive, tenant: str = DEFAULT_TENANT
) -> dict[str, list[CapturedEvent]]:
    """What a replay gives, by writer, in its order."""
    sink = Collected()
    replay(archive.index, archive.storage, Selection(tenant), sink)
    found: dict[str, list[CapturedEvent]] = {}
    for event in sink.events:
        found.setdefault(event.writer_id, []).append(event)
    return found


def events_by_writer(pages: Sequence[Sequence[CapturedEvent]]) -> dict[str, list[CapturedEvent]]:
    """What a replay must give: each event once, in its writer's order."""
    known = {(one.writer_id, one.sequence): one for page in pages for one in page}
    found: dict[str, list[CapturedEvent]] = {}
    for identity in sorted(known):
        found.setdefault(identity[0], []).append(known[identity])
    return found

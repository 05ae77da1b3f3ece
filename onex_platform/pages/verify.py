"""Proof that the log is whole: nothing missing, nothing twice, every byte as it was written.

`verify_log` asks the index alone: every offset of every input partition is accounted for once, and
every cut's events are in pages. `verify_pages` asks the store: every page lies there, and has the
bytes that it was written with.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.domain.order import position_at
from onex_platform.engines.postgres import fetch_one, stream, transaction
from onex_platform.pages.archive import PageArchive
from onex_platform.pages.cuts import OffsetRange, Place
from onex_platform.pages.index import PageEntry, span_text
from onex_platform.pages.replay import overlapping
from onex_platform.pages.store import PageDamagedError, PageMissingError, concurrently


class EnumLogFault(StrEnum):
    """What can be wrong with a log."""

    GAP = "gap"  # offsets, or a cut's events, that are in no page
    OVERLAP = "overlap"  # offsets read twice, cuts across each other, more events than were read
    MISSING = "missing"  # a page that is not in the store
    DAMAGED = "damaged"  # a page with other bytes than were written


class LogFault(NamedTuple):
    """One thing that is wrong, named with its range."""

    fault: EnumLogFault
    sentence: str

    def __str__(self) -> str:
        return f"{self.fault}  {self.sentence}"


@dataclass(slots=True)
class LogAccount:
    """What the index says of cuts and offsets."""

    cuts: int = 0
    offsets: int = 0  # read, or accepted as lost
    lost_offsets: int = 0
    restarts: int = 0  # how often a partition's offsets began anew; what was lost, nobody knows
    events: int = 0
    faults: list[LogFault] = field(default_factory=list)


@dataclass(slots=True)
class PagesAccount:
    """What the store has of the pages that the index names."""

    pages: int = 0
    checked_pages: int = 0
    checked_bytes: int = 0
    faults: list[LogFault] = field(default_factory=list)


class _Part(NamedTuple):
    """A cut with the events that it archived, or a page with those of its events that entered."""

    first: int
    last: int
    archived: int
    entered: int


def verify_log(archive: PageArchive) -> LogAccount:
    """Whether every offset was read once, and every event that was read is in a page once."""
    account = LogAccount()
    account.faults += _cut_faults(archive)
    account.faults += _offset_faults(archive, account)
    account.faults += _event_faults(archive, account)
    return account


def verify_pages(archive: PageArchive, sample: int | None = None) -> PagesAccount:
    """Whether every page is in the store as it was written; with `sample`, so many are read.

    Those that are not read are compared with the store's own list: they exist, in their size.
    """
    account = PagesAccount()
    suspects: dict[UUID, LogFault] = {}

    def check(page: PageEntry) -> tuple[PageEntry, LogFault | None]:
        try:
            archive.store.read_whole(page.key, page.checksum)
        except (PageMissingError, PageDamagedError) as error:
            missing = isinstance(error, PageMissingError)
            fault = EnumLogFault.MISSING if missing else EnumLogFault.DAMAGED
            return page, LogFault(fault, f"{page.whereabouts} is {fault}.")
        return page, None

    for page, fault in concurrently(check, _to_read(archive, sample, account)):
        account.checked_pages += 1
        account.checked_bytes += page.encoded_bytes
        if fault is not None:
            suspects[page.page_id] = fault
    # A page that was replaced and swept while this went on is no longer part of the log.
    live = archive.index.live(list(suspects))
    account.faults += [fault for page_id, fault in suspects.items() if page_id in live]
    return account


def _to_read(
    archive: PageArchive, sample: int | None, account: PagesAccount
) -> Iterator[PageEntry]:
    """All pages, or a sample and those that the store's list has not, or in another size."""
    chosen = set()
    if sample is not None:
        for page in archive.index.entries(sample=sample):
            chosen.add(page.page_id)
            yield page
    objects = archive.store.objects(archive.domain) if sample is not None else ()
    listed = {item.key: item.encoded_bytes for item in objects}
    for page in archive.index.entries():
        account.pages += 1
        as_listed = sample is not None and listed.get(page.key) == page.encoded_bytes
        if not as_listed and page.page_id not in chosen:
            yield page


def _cut_faults(archive: PageArchive) -> Iterator[LogFault]:
    """A cut ends before the next one begins, the last one at the head or before it."""
    with transaction(archive.engine, archive.breaker) as cursor:
        broken = cursor.execute(
            "SELECT * FROM (SELECT instant, lead(closed_before, 1, head)"
            " OVER (ORDER BY closed_before) AS following FROM log_cuts JOIN logs USING (domain)"
            " WHERE domain = %s) WHERE following < instant ORDER BY instant",
            (archive.domain,),
        ).fetchall()
    for row in broken:
        sentence = f"The cut up to {row.instant} reaches beyond {row.following}, where it must end."
        yield LogFault(EnumLogFault.OVERLAP, sentence)


def _offset_faults(archive: PageArchive, account: LogAccount) -> Iterator[LogFault]:
    """The ranges that were read and those that are lost form one chain up to the cursor.

    Where offsets began anew, each generation has a chain of its own, up to where it ended.
    """
    scope = {"domain": archive.domain}
    with transaction(archive.engine, archive.breaker) as cursor:
        totals = fetch_one(
            cursor,
            "SELECT (SELECT count(*) FROM log_cuts WHERE domain = %(domain)s) AS cuts,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM cut_ranges"
            " WHERE domain = %(domain)s) AS read,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM lost_ranges"
            " WHERE domain = %(domain)s) AS lost,"
            " (SELECT count(*) FROM offset_restarts WHERE domain = %(domain)s) AS restarts",
            scope,
        )
        account.cuts, account.lost_offsets = totals.cuts, totals.lost
        account.restarts = totals.restarts
        account.offsets = totals.read + totals.lost
        broken = cursor.execute(
            "SELECT * FROM (SELECT topic, partition, end_offset, lead(start_offset)"
            " OVER (PARTITION BY topic, partition, generation ORDER BY start_offset, end_offset)"
            " AS following"
            " FROM (SELECT topic, partition, generation, start_offset, end_offset FROM cut_ranges"
            " WHERE domain = %(domain)s"
            " UNION ALL SELECT topic, partition, generation, start_offset, end_offset"
            " FROM lost_ranges WHERE domain = %(domain)s"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM consumer_cursors WHERE domain = %(domain)s"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM offset_restarts WHERE domain = %(domain)s))"
            " WHERE end_offset IS NOT NULL AND following IS DISTINCT FROM end_offset"
            " ORDER BY topic, partition, end_offset",
            scope,
        ).fetchall()
    for row in broken:
        place = Place(row.topic, row.partition)
        if row.following is None:
            sentence = f"{place} was read up to offset {row.end_offset - 1}, but has no cursor."
            yield LogFault(EnumLogFault.GAP, sentence)
        elif row.following > row.end_offset:
            offsets = OffsetRange(row.end_offset, row.following)
            yield LogFault(EnumLogFault.GAP, f"{place} {offsets} are in no cut.")
        else:
            offsets = OffsetRange(row.following, row.end_offset)
            yield LogFault(EnumLogFault.OVERLAP, f"{place} {offsets} are in two cuts.")


def _event_faults(archive: PageArchive, account: LogAccount) -> Iterator[LogFault]:
    """Wherever cuts and pages share positions, the cuts archived as many as entered the pages."""
    # The head first: below it, neither cuts nor events are added any more.
    head = archive.index.head()
    cuts = stream(
        archive.engine,
        archive.breaker,
        "SELECT closed_before, instant, archived FROM log_cuts"
        " WHERE domain = %(domain)s AND instant <= %(head)s ORDER BY closed_before",
        {"domain": archive.domain, "head": head},
    )
    pages = archive.index.entries(position_at(head))
    parts = heapq.merge(_cut_parts(cuts), (_page_part(page, account) for page in pages))
    for group in overlapping(parts, lambda part: (part.first, part.last)):
        archived = sum(part.archived for part in group)
        entered = sum(part.entered for part in group)
        if archived != entered:
            where = span_text(group[0].first, max(part.last for part in group))
            fault = EnumLogFault.GAP if entered < archived else EnumLogFault.OVERLAP
            sentence = f"{archived} events were archived at {where}, {entered} are in pages."
            yield LogFault(fault, sentence)


def _cut_parts(cuts: Iterable[Any]) -> Iterator[_Part]:
    for cut in cuts:
        last = position_at(cut.instant) - 1
        yield _Part(position_at(cut.closed_before), last, cut.archived, 0)


def _page_part(page: PageEntry, account: LogAccount) -> _Part:
    account.events += page.event_count
    return _Part(*page.span, 0, page.entered)

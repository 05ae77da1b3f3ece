"""What a query means, for every index alike: servers may find more, never less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onex_platform.capture.captured_events import PageEntry, PageInfo
from onex_platform.capture.slots import PageQuery

_AT_ONCE = 1000  # entries that are asked of a server together


def pieces(page_ids: Sequence[str]) -> Iterator[list[str]]:
    """Ids in portions for one request each."""
    for start in range(0, len(page_ids), _AT_ONCE):
        yield list(page_ids[start : start + _AT_ONCE])


def matches(query: PageQuery, info: PageInfo) -> bool:
    """Whether some event of the page, of that writer where one is named, may lie in the range."""
    if info.tenant != query.tenant:
        return False
    if query.writer_id is None:
        return _overlaps(query, info.start_time_us, info.end_time_us)
    return any(
        _overlaps(query, span.first_time_us, span.last_time_us)
        for span in info.writers
        if span.writer_id == query.writer_id
    )


def in_order(entries: Iterable[PageEntry]) -> list[PageEntry]:
    """By start time, then id."""
    return sorted(entries, key=lambda entry: (entry.info.start_time_us, entry.info.page_id))


def found(query: PageQuery, entries: Iterable[PageEntry], gone: set[str]) -> Iterator[PageEntry]:
    """The entries that match and are not among those gone, in order."""
    return iter(
        in_order(
            entry
            for entry in entries
            if entry.info.page_id not in gone and matches(query, entry.info)
        )
    )


def unreplaced(rows: Sequence[tuple[PageEntry, bool]]) -> list[PageEntry]:
    """Of entries that may be marked as forgotten, those that readers see: no other one names them
    as replaced, be it forgotten or not."""
    gone = _gone(rows)
    return [entry for entry, forgotten in rows if not forgotten and entry.info.page_id not in gone]


def replaced_ones(rows: Sequence[tuple[PageEntry, bool]]) -> list[PageEntry]:
    """Of the same, those that are replaced and not forgotten yet."""
    gone = _gone(rows)
    return [entry for entry, forgotten in rows if not forgotten and entry.info.page_id in gone]


def _gone(rows: Sequence[tuple[PageEntry, bool]]) -> set[str]:
    return {page_id for entry, _ in rows for page_id in entry.info.replaces}


def _overlaps(query: PageQuery, first: int, last: int) -> bool:
    return (query.until_us is None or first < query.until_us) and (
        query.from_us is None or last >= query.from_us
    )

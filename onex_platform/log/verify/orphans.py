"""Files in the store that no index names: what a run that crashed or lost has left behind.

A file may also belong to a run that is still at work. So nothing is taken for an orphan before the
grace period has passed, and none is deleted unless it can't become part of the log any more:

- a cut commits only while the head is where the cut began, so its pages are dead once it is past;
- likewise a batch of decided facts, with the fold's cursor;
- a merge commits only while the pages that it replaces are live: one that is not kills it.

Each of these holds for ever once it holds. A file that is not in the index by then never will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from onex_platform.base.errors import OnexError
from onex_platform.domain.order import position_at
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.page_format import EnumPageReason, PageMetadata, open_page, read_metadata
from onex_platform.log.store import StoredObject, concurrently

_FILES_PER_QUERY = 1000


class Orphan(NamedTuple):
    """A file that lies where a page would, but is in no index."""

    key: str
    encoded_bytes: int
    modified_at: datetime
    dead: bool  # proven: it can't become part of the log any more

    def __str__(self) -> str:
        proof = "left over" if self.dead else "may be in flight"
        return f"orphan  {self.key} of {self.modified_at:%Y-%m-%d %H:%M:%S}: {proof}"


def find_orphans(archive: PageArchive, folded: int, now: datetime) -> Iterator[Orphan]:
    """Every orphan of the store; `folded` is the fold's cursor."""
    head = position_at(archive.index.head())
    old = now - timedelta(seconds=archive.settings.pages.grace_seconds)
    files = (
        item
        for item in archive.store.objects(archive.domain)
        if item.is_page and item.modified_at < old
    )
    while some := list(islice(files, _FILES_PER_QUERY)):
        strangers = _strangers(archive, some)
        judged = list(zip(strangers, _are_dead(archive, strangers, head, folded), strict=True))
        # Asked again after the verdicts: what was committed meanwhile is no orphan.
        remaining = set(_strangers(archive, strangers))
        yield from (Orphan(*item, dead) for item, dead in judged if item in remaining)


def delete_orphans(archive: PageArchive, orphans: Iterable[Orphan]) -> int:
    """Delete those that are proven dead; how many they were."""
    dead = [orphan.key for orphan in orphans if orphan.dead]
    return sum(1 for _ in concurrently(archive.store.delete, dead))


def _strangers(archive: PageArchive, files: list[StoredObject]) -> list[StoredObject]:
    known = archive.index.known([item.key for item in files])
    return [item for item in files if item.key not in known]


def _are_dead(
    archive: PageArchive, files: list[StoredObject], head: int, folded: int
) -> Iterator[bool]:
    pages = list(concurrently(lambda item: _metadata(archive, item.key), files))
    live = archive.index.live(
        [page.merged_from for page in pages if page is not None and page.merged_from is not None]
    )
    passed = {EnumPageReason.INGEST: head, EnumPageReason.DECISION: folded}
    for page in pages:
        if page is None:
            yield False
        elif page.reason in passed:
            yield page.max_position < passed[page.reason]
        else:
            yield page.merged_from is not None and page.merged_from not in live


def _metadata(archive: PageArchive, key: str) -> PageMetadata | None:
    """What a file says of itself; None if it is no page that we can read."""
    try:
        with archive.store.open(key) as file:
            return read_metadata(open_page(file))
    except (OnexError, ValueError, OSError, LookupError, TypeError):
        return None

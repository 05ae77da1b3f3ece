"""Files in the store that no table names: what a run that crashed or lost has left behind.

A file may also belong to a run that is still at work. So nothing is taken for an orphan before the
grace period has passed, and none is deleted unless it can't become part of the log any more:

- of pages that were to be appended, the log's writers prove it;
- a merge commits only while the pages that it replaces are live: one that is not kills it.

What is proven once must hold for ever. A file that is not in the table by then never will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from onex_platform.base.errors import OnexError
from onex_platform.log.page_format import open_page, read_metadata
from onex_platform.log.page_layout import PageMetadata
from onex_platform.log.page_log import PageLog
from onex_platform.log.store import StoredObject, concurrently

# Whether a page that was to be appended can't become part of the log any more.
ProofOfDeath = Callable[[PageMetadata], bool]

_FILES_PER_QUERY = 1000


class Orphan(NamedTuple):
    """A file that lies where a page would, but is in no table."""

    key: str
    encoded_bytes: int
    modified_at: datetime
    dead: bool  # proven: it can't become part of the log any more

    def __str__(self) -> str:
        proof = "left over" if self.dead else "may be in flight"
        return f"orphan  {self.key} of {self.modified_at:%Y-%m-%d %H:%M:%S}: {proof}"


def find_orphans(log: PageLog, is_dead: ProofOfDeath, now: datetime) -> Iterator[Orphan]:
    """Every orphan of the store."""
    old = now - timedelta(seconds=log.limits.grace_seconds)
    files = (
        item for item in log.store.objects(log.domain) if item.is_page and item.modified_at < old
    )
    while some := list(islice(files, _FILES_PER_QUERY)):
        strangers = _strangers(log, some)
        judged = list(zip(strangers, _are_dead(log, strangers, is_dead), strict=True))
        # Asked again after the verdicts: what was committed meanwhile is no orphan.
        remaining = set(_strangers(log, strangers))
        yield from (Orphan(*item, dead) for item, dead in judged if item in remaining)


def delete_orphans(log: PageLog, orphans: Iterable[Orphan]) -> int:
    """Delete those that are proven dead; how many they were."""
    dead = [orphan.key for orphan in orphans if orphan.dead]
    return sum(1 for _ in concurrently(log.store.delete, dead))


def _strangers(log: PageLog, files: list[StoredObject]) -> list[StoredObject]:
    known = log.table.known([item.key for item in files])
    return [item for item in files if item.key not in known]


def _are_dead(log: PageLog, files: list[StoredObject], is_dead: ProofOfDeath) -> Iterator[bool]:
    pages = list(concurrently(lambda item: _metadata(log, item.key), files))
    live = log.table.live(
        [page.merged_from for page in pages if page is not None and page.merged_from is not None]
    )
    for page in pages:
        if page is None:
            yield False
        elif page.merged_from is not None:
            yield page.merged_from not in live
        else:
            yield is_dead(page)


def _metadata(log: PageLog, key: str) -> PageMetadata | None:
    """What a file says of itself; None if it is no page that we can read."""
    try:
        with log.store.open(key) as file:
            return read_metadata(log.layout, open_page(file))
    except (OnexError, ValueError, OSError, LookupError, TypeError):
        return None

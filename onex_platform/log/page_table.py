"""The page table in PostgreSQL: which pages are a log.

A file in the store is part of the log if, and only if, its row stands here and is not replaced. A
page is only ever replaced, by others that hold the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from onex_platform.base.errors import ConfigurationError
from onex_platform.engines.postgres.database import Cursor, Database, fetch_one
from onex_platform.log.page_layout import PageMetadata
from onex_platform.log.pins import pinned_since
from onex_platform.log.store import StoredPage

_ID_SPACE = 2**128

_COUNT_EVENTS = """
    SELECT coalesce(sum(event_count), 0)::bigint AS events FROM pages
    WHERE domain = %(domain)s AND replaced_at IS NULL
        AND min_position >= %(above)s AND min_position < %(below)s AND max_position < %(end)s"""


class PageEntry(NamedTuple):
    """A page of the log as its row has it, without the list of its row groups."""

    page_id: UUID
    key: str
    period: datetime
    min_position: int
    max_position: int
    event_count: int
    counters: dict[str, int]
    encoded_bytes: int
    checksum: str

    @property
    def span(self) -> tuple[int, int]:
        return self.min_position, self.max_position


class ReplacedPage(NamedTuple):
    """A page that is not part of the log any more."""

    page_id: UUID
    key: str
    encoded_bytes: int


class PageCount(NamedTuple):
    """How many pages there are somewhere, and their size."""

    pages: int
    bytes: int


class PageTable:
    """The pages of one log."""

    def __init__(self, database: Database, domain: str, metadata: type[PageMetadata]) -> None:
        self.domain = domain
        self._database = database
        self._metadata = metadata

    def begin(self, buckets: int) -> None:
        """Make sure that the log exists, with this number of buckets, which may not change."""
        existing = self._buckets()
        if existing is None:  # only then: whoever merely looks must not write
            with self._database.transaction() as cursor:
                cursor.execute(
                    "INSERT INTO logs (domain, buckets) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (self.domain, buckets),
                )
            existing = self._buckets()
        if existing != buckets:
            raise ConfigurationError(
                f"ONEX_PAGES_BUCKETS={buckets}, but the log of {self.domain!r} has {existing}.",
                hint=f"Set ONEX_PAGES_BUCKETS={existing}; the number is fixed when a log begins.",
            )

    def _buckets(self) -> int | None:
        with self._database.transaction() as cursor:
            cursor.execute("SELECT buckets FROM logs WHERE domain = %s", (self.domain,))
            row = cursor.fetchone()
        return None if row is None else int(row.buckets)

    def pages(
        self, start: int = 0, end: int = 2**63 - 1, reasons: Iterable[str] | None = None
    ) -> Iterator[StoredPage]:
        """The pages with positions from `start` on and below `end`, in order of position.

        Only those that were written for one of the `reasons`, if given.
        """
        rows = self._database.stream(
            "SELECT metadata, key, encoded_bytes, checksum FROM pages"
            " WHERE domain = %(domain)s AND replaced_at IS NULL"
            " AND max_position >= %(start)s AND min_position < %(end)s"
            " AND (%(reasons)s::text[] IS NULL OR reason = ANY(%(reasons)s))"
            " ORDER BY min_position, page_id",
            {
                "domain": self.domain,
                "start": start,
                "end": end,
                "reasons": None if reasons is None else list(map(str, reasons)),
            },
        )
        for row in rows:
            yield StoredPage(
                self._metadata.model_validate(row.metadata),
                row.key,
                row.encoded_bytes,
                row.checksum,
            )

    def entries(self, end: int = 2**63 - 1, start: int = 0) -> Iterator[PageEntry]:
        """The pages with positions from `start` on that begin below `end`, in order of position."""
        return self._entries(
            "max_position >= %(start)s AND min_position < %(end)s ORDER BY min_position, page_id",
            {"start": start, "end": end},
        )

    def entries_by_id(self, part: int, parts: int) -> Iterator[PageEntry]:
        """One of as many parts of all pages; their ids are random, so parts are of equal size."""
        return self._entries(
            "page_id BETWEEN %(first)s AND %(last)s ORDER BY page_id",
            {
                "first": UUID(int=part * _ID_SPACE // parts),
                "last": UUID(int=(part + 1) * _ID_SPACE // parts - 1),
            },
        )

    def sample(self, size: int) -> list[PageEntry]:
        """So many pages chosen by chance: neighbours by their random ids, from a random id on."""
        chosen: dict[UUID, PageEntry] = {}
        for first in (uuid4(), UUID(int=0)):
            rows = self._entries(
                "page_id >= %(first)s ORDER BY page_id LIMIT %(most)s",
                {"first": first, "most": size - len(chosen)},
            )
            chosen |= {page.page_id: page for page in rows}
        return list(chosen.values())

    def _entries(self, which: str, values: dict[str, Any]) -> Iterator[PageEntry]:
        rows = self._database.stream(
            "SELECT page_id, key, period, min_position, max_position, event_count,"  # noqa: S608
            " metadata -> 'counters' AS counters, encoded_bytes, checksum"
            f" FROM pages WHERE domain = %(domain)s AND replaced_at IS NULL AND {which}",
            {"domain": self.domain, **values},
        )
        return (PageEntry(*row) for row in rows)

    def counts(self, start: int, width: int, parts: int) -> dict[int, PageCount]:
        """The pages that reach into each of so many stretches of the log, `width` positions each.

        A page that reaches into several counts in each; stretches without pages are left out.
        """
        with self._database.transaction() as cursor:
            cursor.execute(
                "SELECT part, count(*) AS pages, sum(encoded_bytes)::bigint AS bytes"
                " FROM pages, LATERAL generate_series("
                "  greatest(0, (min_position - %(start)s) / %(width)s),"
                "  least(%(parts)s - 1, (max_position - %(start)s) / %(width)s)) AS part"
                " WHERE domain = %(domain)s AND replaced_at IS NULL"
                "  AND min_position < %(end)s AND max_position >= %(start)s GROUP BY part",
                {
                    "domain": self.domain,
                    "start": start,
                    "width": width,
                    "parts": parts,
                    "end": start + width * parts,
                },
            )
            return {row.part: PageCount(row.pages, row.bytes) for row in cursor}

    def known(self, keys: list[str]) -> set[str]:
        """Of keys, those that a page has, part of the log or replaced."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT key FROM pages WHERE key = ANY(%s)", (keys,))
            return {row.key for row in cursor}

    def live(self, page_ids: list[UUID]) -> set[UUID]:
        """Of pages, those that are part of the log now."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "SELECT page_id FROM pages WHERE page_id = ANY(%s) AND replaced_at IS NULL",
                (page_ids,),
            )
            return {row.page_id for row in cursor}

    def replace(self, old: list[UUID], new: Iterable[StoredPage]) -> bool:
        """Put pages in the place of others; False, and nothing is changed, if one is replaced."""
        with self._database.transaction() as cursor:
            # One order for everybody, so that rivals queue up instead of blocking each other.
            cursor.execute(
                "SELECT FROM pages WHERE domain = %s AND page_id = ANY(%s)"
                " AND replaced_at IS NULL ORDER BY page_id FOR UPDATE",
                (self.domain, old),
            )
            if cursor.rowcount != len(old):
                return False
            cursor.execute("UPDATE pages SET replaced_at = now() WHERE page_id = ANY(%s)", (old,))
            insert_pages(cursor, new)
        return True

    def replaced(self, grace_seconds: float, most: int) -> list[ReplacedPage]:
        """Pages that were replaced longer ago than the grace period, oldest first.

        While a reader pins the log, the period ends where it began: however long it takes, the
        pages that it reads stay.
        """
        with self._database.transaction() as cursor:
            cursor.execute(
                "SELECT page_id, key, encoded_bytes FROM pages WHERE domain = %(domain)s"
                " AND replaced_at < least(now(), %(pinned)s::timestamptz)"
                " - make_interval(secs => %(grace)s) ORDER BY replaced_at LIMIT %(most)s",
                {
                    "domain": self.domain,
                    "pinned": pinned_since(cursor, self.domain),
                    "grace": grace_seconds,
                    "most": most,
                },
            )
            return [ReplacedPage(*row) for row in cursor]

    def forget(self, page_ids: list[UUID]) -> None:
        """Remove replaced pages from the table."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM pages WHERE replaced_at IS NOT NULL AND page_id = ANY(%s)",
                (page_ids,),
            )


def count_events(cursor: Cursor, domain: str, above: int, below: int, end: int) -> int:
    """The events of the pages that begin at `above` or behind it, before `below`, and end before
    `end`."""
    parameters = {"domain": domain, "above": above, "below": below, "end": end}
    return int(fetch_one(cursor, _COUNT_EVENTS, parameters).events)


def first_position(cursor: Cursor, domain: str) -> int | None:
    """Where the log begins; None if it is empty."""
    query = (
        "SELECT min(min_position) AS position FROM pages WHERE domain = %s AND replaced_at IS NULL"
    )
    position: int | None = fetch_one(cursor, query, [domain]).position
    return position


def insert_pages(cursor: Cursor, pages: Iterable[StoredPage]) -> None:
    """Make pages part of their log, within the caller's transaction."""
    cursor.executemany(
        "INSERT INTO pages (page_id, domain, key, metadata, reason, period, bucket_numbers,"
        " min_position, max_position, event_count, encoded_bytes, checksum)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [_page_values(page) for page in pages],
    )


def _page_values(page: StoredPage) -> tuple[Any, ...]:
    about = page.metadata
    return (
        about.page_id,
        about.domain,
        page.key,
        Jsonb(about.model_dump(mode="json")),
        str(about.reason),
        about.period,
        about.bucket_numbers,
        about.min_position,
        about.max_position,
        about.event_count,
        page.encoded_bytes,
        page.checksum,
    )

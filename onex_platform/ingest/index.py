"""The page index in PostgreSQL: which pages are the log, and the one transaction per cut.

Whatever a cut writes becomes part of the log in `commit_cut` or not at all: pages, the ledger's
ids, parked records, consumed offsets and the head move together. A page is only ever replaced, by
others that hold the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.domain.order import moment_of, position_at
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    fetch_one,
    lift_statement_limit,
)
from onex_platform.engines.postgres.staging import RowCounts
from onex_platform.ingest import inbox
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition
from onex_platform.ingest.cuts.staged_rows import drop_staged, take_staged
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.offsets import (
    CursorMove,
    consumer_offsets,
    move_consumer_cursors,
    read_topics,
)
from onex_platform.log.page_format import EnumPageReason, PageMetadata

# Before every broker: a log that begins here has not missed anything.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_ID_SPACE = 2**128


class StoredPage(NamedTuple):
    """A page of the log and where it lies."""

    metadata: PageMetadata
    key: str
    encoded_bytes: int
    checksum: str


class PageEntry(NamedTuple):
    """A page of the log as its row in the index has it, without the list of its row groups."""

    page_id: UUID
    key: str
    period: datetime
    min_position: int
    max_position: int
    event_count: int
    entered: int  # of these, the events that came in with cuts; the others were decided
    encoded_bytes: int
    checksum: str

    @property
    def span(self) -> tuple[int, int]:
        return self.min_position, self.max_position

    @property
    def whereabouts(self) -> str:
        """Which part of the log is at stake with it, for people."""
        return f"{self.key} ({span_text(*self.span)}, {self.event_count} events)"


class ReplacedPage(NamedTuple):
    """A page that is not part of the log any more."""

    page_id: UUID
    key: str
    encoded_bytes: int


class CutAccount(NamedTuple):
    """What became of the records of a cut."""

    archived: int
    parked: int
    duplicates: int


class RivalCutError(OnexError):
    """Somebody moved what the cut stands on; nothing of it was written, and it is taken again."""


class PageIndex:
    """The index of one domain's log."""

    def __init__(self, database: Database, domain: str) -> None:
        self.domain = domain
        self._database = database

    def begin(self, buckets: int) -> int:
        """Make sure that the log exists; its number of buckets, which may not change any more."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO logs (domain, buckets, head) VALUES (%s, %s, %s)"
                " ON CONFLICT (domain) DO NOTHING",
                (self.domain, buckets, BEGINNING),
            )
            cursor.execute("SELECT buckets FROM logs WHERE domain = %s", (self.domain,))
            [(existing,)] = cursor.fetchall()
        if existing != buckets:
            raise ConfigurationError(
                f"ONEX_PAGES_BUCKETS={buckets}, but the log of {self.domain!r} has {existing}.",
                hint=f"Set ONEX_PAGES_BUCKETS={existing}; the number is fixed when a log begins.",
            )
        return buckets

    def head(self) -> datetime:
        """Everything before this instant is in the log."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT head FROM logs WHERE domain = %s", (self.domain,))
            row = cursor.fetchone()
        return BEGINNING if row is None else row.head.astimezone(UTC)

    def end_of_batch(self, start: int, events: int) -> int:
        """Where the cut ends with which so many events have come since `start`; else the head."""
        with self._database.transaction() as cursor:
            row = fetch_one(
                cursor,
                "SELECT coalesce((SELECT instant FROM ("
                "  SELECT instant, sum(archived) OVER (ORDER BY instant) AS events"
                "  FROM log_cuts WHERE domain = %(domain)s AND instant > %(start)s) AS cuts"
                " WHERE events >= %(events)s ORDER BY instant LIMIT 1), head) AS moment"
                " FROM logs WHERE domain = %(domain)s",
                {"domain": self.domain, "start": moment_of(start), "events": events},
            )
        return position_at(row.moment)

    def cursors(self) -> dict[InputPartition, int]:
        """The next offset of each input partition."""
        with self._database.transaction() as cursor:
            offsets = consumer_offsets(cursor, self.domain)
        return {InputPartition(*place): offset for place, offset in offsets.items()}

    def read_topics(self) -> dict[str, frozenset[UUID]]:
        """The ids of the topics that the cursors belong to, as far as they are known."""
        with self._database.transaction() as cursor:
            return read_topics(cursor, self.domain)

    def pages(
        self,
        start: int = 0,
        end: int = 2**63 - 1,
        reasons: Iterable[EnumPageReason] = tuple(EnumPageReason),
    ) -> Iterator[StoredPage]:
        """The pages with positions from `start` on and below `end`, in order of position."""
        rows = self._database.stream(
            "SELECT metadata, key, encoded_bytes, checksum FROM pages"
            " WHERE domain = %(domain)s AND replaced_at IS NULL"
            " AND max_position >= %(start)s AND min_position < %(end)s"
            " AND reason = ANY(%(reasons)s) ORDER BY min_position, page_id",
            {
                "domain": self.domain,
                "start": start,
                "end": end,
                "reasons": [reason.value for reason in reasons],
            },
        )
        for row in rows:
            yield StoredPage(
                PageMetadata.model_validate(row.metadata), row.key, row.encoded_bytes, row.checksum
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
            " event_count - (metadata ->> 'decided')::bigint AS entered, encoded_bytes, checksum"
            f" FROM pages WHERE domain = %(domain)s AND replaced_at IS NULL AND {which}",
            {"domain": self.domain, **values},
        )
        return (PageEntry(*row) for row in rows)

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

        While a rebuild or a proof runs, the period ends where it began: however long it takes, the
        pages that it reads stay.
        """
        with self._database.transaction() as cursor:
            cursor.execute(
                "SELECT page_id, key, encoded_bytes FROM pages WHERE domain = %(domain)s"
                " AND replaced_at < least(now(), (SELECT min(started_at) FROM running_rebuilds"
                " WHERE domain = %(domain)s)) - make_interval(secs => %(grace)s)"
                " ORDER BY replaced_at LIMIT %(most)s",
                {"domain": self.domain, "grace": grace_seconds, "most": most},
            )
            return [ReplacedPage(*row) for row in cursor]

    def forget(self, page_ids: list[UUID]) -> None:
        """Remove replaced pages from the index."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM pages WHERE replaced_at IS NOT NULL AND page_id = ANY(%s)",
                (page_ids,),
            )

    def commit_cut(
        self,
        cut: Cut,
        batch_id: UUID,
        pages: Iterable[StoredPage],
        account: CutAccount,
        inbox_ids: list[UUID],
        staged: RowCounts,
        ledger_floor: datetime | None = None,
    ) -> None:
        """Make the cut part of the log, with what its tasks staged, in one transaction.

        `ledger_floor` is the one that its events were judged by: as long as it has not moved, no id
        that the cut asked for was forgotten meanwhile.
        """
        with self._database.transaction() as cursor:
            lift_statement_limit(cursor)
            self._move_head(cursor, cut)
            if not cut.ranges and not account.archived:
                return  # nothing came in: the head moves on, and that is all
            if recall(cursor, self.domain).floor != ledger_floor:
                raise RivalCutError(
                    f"The ledger of {self.domain!r} was pruned while the cut was read.",
                    hint="Nothing was written; the next run takes the cut again.",
                )
            moves = (
                CursorMove(*place, cut.cursors.get(place), span.end, cut.topic_ids.get(place.topic))
                for place, span in cut.ranges.items()
            )
            if not move_consumer_cursors(cursor, self.domain, moves):
                raise _rival(self.domain, cut)
            self._insert_cut(cursor, cut, account)
            insert_pages(cursor, pages)
            take_staged(cursor, batch_id, self.domain, staged)
            inbox.remove(cursor, self.domain, inbox_ids)

    def drop_staged(self, batch_id: UUID) -> None:
        """Forget what tasks staged for a cut that is not to be committed."""
        with self._database.transaction() as cursor:
            drop_staged(cursor, batch_id)

    def _move_head(self, cursor: Cursor, cut: Cut) -> None:
        cursor.execute(
            "UPDATE logs SET head = %s WHERE domain = %s AND head = %s",
            (cut.instant, self.domain, cut.closed_before),
        )
        if cursor.rowcount != 1:
            raise _rival(self.domain, cut)

    def _insert_cut(self, cursor: Cursor, cut: Cut, account: CutAccount) -> None:
        cursor.execute(
            "INSERT INTO log_cuts"
            " (domain, closed_before, instant, read, archived, parked, duplicates)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                self.domain,
                cut.closed_before,
                cut.instant,
                account.archived + account.parked,
                *account,
            ),
        )
        cursor.executemany(
            "INSERT INTO cut_ranges"
            " (domain, instant, topic, partition, generation, start_offset, end_offset)"
            " SELECT domain, %s, topic, partition, generation, %s, %s FROM consumer_cursors"
            " WHERE domain = %s AND topic = %s AND partition = %s",
            [(cut.instant, *span, self.domain, *place) for place, span in cut.ranges.items()],
        )


def _rival(domain: str, cut: Cut) -> RivalCutError:
    return RivalCutError(
        f"Another run moved the log of {domain!r} past {cut.closed_before}.",
        hint="Nothing was written; the next run goes on from there.",
    )


def insert_pages(cursor: Cursor, pages: Iterable[StoredPage]) -> None:
    """Enter pages into the index, within the caller's transaction."""
    cursor.executemany(
        "INSERT INTO pages (page_id, domain, key, metadata, reason, period, bucket_numbers,"
        " min_position, max_position, event_count, encoded_bytes, checksum)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [_page_values(page) for page in pages],
    )


def span_text(first: int, last: int) -> str:
    """A range of positions and of log time, for people."""
    times = [moment_of(position).isoformat(timespec="milliseconds") for position in (first, last)]
    return f"positions {first} to {last}, {times[0]} to {times[1]}"


def _page_values(page: StoredPage) -> tuple[Any, ...]:
    about = page.metadata
    return (
        about.page_id,
        about.domain,
        page.key,
        Jsonb(about.model_dump(mode="json")),
        about.reason.value,
        about.period,
        about.bucket_numbers,
        about.min_position,
        about.max_position,
        about.event_count,
        page.encoded_bytes,
        page.checksum,
    )

"""The index in PostgreSQL, the default: a publication or a replacement is one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from psycopg.types.json import Jsonb

from onex_platform.base.settings import Settings
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import entry_from_json, entry_to_json
from onex_platform.capture.index.matching import pieces
from onex_platform.capture.slots import PageQuery
from onex_platform.engines.postgres.database import fetch_one, open_database

_LIVES = "(p.expires_at IS NULL OR p.expires_at > now())"
_REPLACED = "EXISTS (SELECT FROM capture_replaced_pages r WHERE r.page_id = p.page_id)"
_DROP_EXPIRED = """
    DELETE FROM capture_pages WHERE page_id IN (
        SELECT page_id FROM capture_pages WHERE expires_at <= now() FOR UPDATE SKIP LOCKED)"""
_INSERT_PAGE = """
    INSERT INTO capture_pages (page_id, tenant, key, start_time_us, end_time_us, event_count,
        storage_size_bytes, entry, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, now() + make_interval(secs => %s))
    ON CONFLICT (page_id) DO NOTHING"""
_INSERT_WRITER = """
    INSERT INTO capture_page_writers (page_id, tenant, writer_id, first_sequence, last_sequence,
        first_time_us, last_time_us, events)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING"""
_INSERT_REPLACED = """
    INSERT INTO capture_replaced_pages (page_id) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING"""
_FIND = f"""
    SELECT p.page_id FROM capture_pages p
    WHERE p.tenant = %(tenant)s AND NOT {_REPLACED} AND {_LIVES}
        AND (%(until)s::bigint IS NULL OR p.start_time_us < %(until)s)
        AND (%(from)s::bigint IS NULL OR p.end_time_us >= %(from)s)
        AND (%(writer)s::text IS NULL OR EXISTS (
            SELECT FROM capture_page_writers w
            WHERE w.page_id = p.page_id AND w.tenant = p.tenant AND w.writer_id = %(writer)s
                AND (%(until)s::bigint IS NULL OR w.first_time_us < %(until)s)
                AND (%(from)s::bigint IS NULL OR w.last_time_us >= %(from)s)))
    ORDER BY p.start_time_us, p.page_id COLLATE "C" """  # noqa: S608 - constant parts
_FIND_REPLACED = f"""
    SELECT p.page_id FROM capture_pages p
    WHERE p.tenant = %(tenant)s AND {_REPLACED} AND {_LIVES}
    ORDER BY p.start_time_us, p.page_id COLLATE "C" """  # noqa: S608 - constant parts
_COUNT = f"SELECT count(*) AS pages FROM capture_pages p WHERE NOT {_REPLACED} AND {_LIVES}"  # noqa: S608
_READ = "SELECT page_id, entry FROM capture_pages WHERE page_id = ANY(%s)"


class PostgresIndex:
    """Entries in the platform's database, or in another one by its address."""

    backend = "postgres"

    def __init__(self, settings: Settings, ttl_seconds: float | None = None) -> None:
        self._ttl = ttl_seconds
        self._open = ExitStack()
        self._database = self._open.enter_context(open_database(settings))

    def publish(self, entries: Sequence[PageEntry]) -> None:
        # In one order, whoever publishes: two of them wait for each other at most one way.
        entries = sorted(entries, key=lambda entry: entry.info.page_id)
        with self._database.transaction() as cursor:
            cursor.execute(_DROP_EXPIRED)
            cursor.executemany(_INSERT_PAGE, [_page_row(entry, self._ttl) for entry in entries])
            cursor.executemany(
                _INSERT_WRITER, [row for one in entries for row in _writer_rows(one)]
            )
            gone = {page_id for entry in entries for page_id in entry.info.replaces}
            cursor.execute(_INSERT_REPLACED, (sorted(gone),))

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        return self._read(
            _FIND,
            {
                "tenant": query.tenant,
                "writer": query.writer_id,
                "from": query.from_us,
                "until": query.until_us,
            },
        )

    def forget(self, page_ids: Sequence[str]) -> int:
        with self._database.transaction() as cursor:
            cursor.execute("DELETE FROM capture_pages WHERE page_id = ANY(%s)", (list(page_ids),))
            return cursor.rowcount

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        return self._read(_FIND_REPLACED, {"tenant": tenant})

    def count(self) -> int:
        with self._database.transaction() as cursor:
            return int(fetch_one(cursor, _COUNT).pages)

    def check(self) -> None:
        with self._database.transaction() as cursor:
            cursor.execute("SELECT FROM capture_pages LIMIT 1")

    def close(self) -> None:
        self._open.close()

    def _read(self, find: str, parameters: dict[str, Any]) -> Iterator[PageEntry]:
        """The pages that one statement finds; their entries follow in pieces, so that a reader who
        takes his time holds no transaction open. A replaced page's entry stays readable."""
        with self._database.transaction() as cursor:
            ids = [row.page_id for row in cursor.execute(find, parameters).fetchall()]
        for some in pieces(ids):
            with self._database.transaction() as cursor:
                rows = cursor.execute(_READ, (some,)).fetchall()
            entries = {row.page_id: row.entry for row in rows}
            yield from (entry_from_json(entries[page_id]) for page_id in some if page_id in entries)


def _page_row(entry: PageEntry, ttl_seconds: float | None) -> tuple[Any, ...]:
    info = entry.info
    return (
        info.page_id,
        info.tenant,
        entry.key,
        info.start_time_us,
        info.end_time_us,
        info.event_count,
        entry.storage_size_bytes,
        Jsonb(entry_to_json(entry)),
        ttl_seconds,
    )


def _writer_rows(entry: PageEntry) -> Iterator[tuple[Any, ...]]:
    for span in entry.info.writers:
        yield (
            entry.info.page_id,
            entry.info.tenant,
            span.writer_id,
            span.first_sequence,
            span.last_sequence,
            span.first_time_us,
            span.last_time_us,
            span.events,
        )

"""The index in ClickHouse, by 001's `timeseries_basic`.

There are no transactions, but a statement reads and writes as a whole: a row says everything of a
page, also which pages it replaces. A replaced page is hidden by whoever reads. That works within
one query, because a merged page lies wherever the pages that it replaces lie, and has their
writers. A page is forgotten by a newer row that says so. Rows expire when ClickHouse merges its
parts; until then, queries leave them out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from onex_platform.base.errors import ConfigurationError, InfraConnectionError, InfraError
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import decode_entry, encode_entry
from onex_platform.capture.index.matching import in_order, matches, replaced_ones, unreplaced
from onex_platform.capture.slots import PageQuery

_HINT = "Check index.config.connection of the snapshotter."
_NATIVE_PORT = 9000  # of ClickHouse's own protocol; the client speaks HTTP
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_PARTITIONING = re.compile(r"[\w(), ]+")
# What a DateTime64(6) can hold; exact times are in the entry.
_FIRST_US, _LAST_US = 0, 9_000_000_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = (
    "tenant",
    "page_id",
    "page_key",
    "writer_ids",
    "start_time",
    "end_time",
    "event_count",
    "page_size",
    "entry",
    "forgotten",
    "written_at",
)
_CREATE = """
    CREATE TABLE IF NOT EXISTS {table} (
        tenant String,
        page_id String,
        page_key String,
        writer_ids Array(String),
        start_time DateTime64(6, 'UTC'),
        end_time DateTime64(6, 'UTC'),
        event_count Int64,
        page_size Int64,
        entry String,
        forgotten UInt8,
        written_at DateTime64(6, 'UTC')
    )
    ENGINE = ReplacingMergeTree(written_at)
    PARTITION BY {partitioning}
    ORDER BY (tenant, page_id)
    {ttl}"""
_MATCHING = """tenant = {tenant:String}
    AND toUnixTimestamp64Micro(start_time) <= {until:Int64}
    AND toUnixTimestamp64Micro(end_time) >= {from:Int64}
    AND ({writer:String} = '' OR has(writer_ids, {writer:String}))"""


class ClickHouseIndex:
    """Entries in a table of their own, which is made when it is not there."""

    backend = "clickhouse"

    def __init__(
        self,
        connection: str,
        *,
        table: str = "event_snapshots",
        partitioning: str = "toYYYYMM(start_time)",
        ttl_seconds: float | None = None,
    ) -> None:
        for name, value, pattern in (
            ("table", table, _NAME),
            ("partitioning", partitioning, _PARTITIONING),
        ):
            if not pattern.fullmatch(value):
                raise ConfigurationError(f"index.config.{name} {value!r} can't be used.")
        self._table = table
        self._ttl = ttl_seconds
        ttl = "" if ttl_seconds is None else f"TTL toDateTime(written_at) + {int(ttl_seconds)}"
        with _translated():
            self._client: Any = clickhouse_connect.get_client(
                # Threads share the client, and a session takes one query at a time.
                dsn=_http(connection),
                autogenerate_session_id=False,
            )
            self._client.command(_CREATE.format(table=table, partitioning=partitioning, ttl=ttl))

    def publish(self, entries: Sequence[PageEntry]) -> None:
        """One insert for all; those that are known stay as they are."""
        known = {entry.info.page_id for entry in self._known([one.info.page_id for one in entries])}
        self._insert([entry for entry in entries if entry.info.page_id not in known])

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        rows = self._rows(query)
        return iter(in_order(one for one in unreplaced(rows) if matches(query, one.info)))

    def forget(self, page_ids: Sequence[str]) -> int:
        known = self._known(page_ids)
        self._insert(known, forgotten=True)
        return len(known)

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        return iter(in_order(replaced_ones(self._rows(PageQuery(tenant)))))

    def count(self) -> int:
        return len(unreplaced(self._select("true", {})))

    def check(self) -> None:
        with _translated():
            self._client.command("SELECT 1")

    def close(self) -> None:
        self._client.close()

    def _rows(self, query: PageQuery) -> list[tuple[PageEntry, bool]]:
        return self._select(
            _MATCHING,
            {
                "tenant": query.tenant,
                "writer": query.writer_id or "",
                "from": _bounded(_FIRST_US if query.from_us is None else query.from_us),
                "until": _bounded(_LAST_US if query.until_us is None else query.until_us),
            },
        )

    def _known(self, page_ids: Sequence[str]) -> list[PageEntry]:
        """The entries of some pages, unless they are forgotten."""
        if not page_ids:
            return []
        rows = self._select("page_id IN {ids:Array(String)}", {"ids": list(page_ids)})
        return [entry for entry, forgotten in rows if not forgotten]

    def _select(self, condition: str, parameters: dict[str, Any]) -> list[tuple[PageEntry, bool]]:
        """The rows that have not expired, and whether they are marked as forgotten."""
        lives = "true" if self._ttl is None else "written_at > now64(6) - {ttl:Int64}"
        statement = (
            f"SELECT entry, forgotten FROM {self._table} FINAL"  # noqa: S608 - a checked name
            f" WHERE {condition} AND {lives}"
        )
        with _translated():
            found = self._client.query(
                statement, parameters=parameters | {"ttl": int(self._ttl or 0)}
            )
        return [(decode_entry(entry), bool(mark)) for entry, mark in found.result_rows]

    def _insert(self, entries: Sequence[PageEntry], *, forgotten: bool = False) -> None:
        if entries:
            rows = [_row(entry, forgotten) for entry in entries]
            with _translated():
                self._client.insert(self._table, rows, column_names=_COLUMNS)


def _row(entry: PageEntry, forgotten: bool) -> list[Any]:
    info = entry.info
    return [
        info.tenant,
        info.page_id,
        entry.key,
        [span.writer_id for span in info.writers],
        _moment(info.start_time_us),
        _moment(info.end_time_us),
        info.event_count,
        info.page_size_bytes,
        encode_entry(entry).decode(),
        int(forgotten),
        datetime.now(UTC),
    ]


def _bounded(time_us: int) -> int:
    return min(max(time_us, _FIRST_US), _LAST_US)


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=_bounded(time_us))


def _http(connection: str) -> str:
    """001 names the port of ClickHouse's own protocol, which the client does not speak."""
    if urlsplit(connection).port == _NATIVE_PORT:
        raise ConfigurationError(
            f"index.config.connection names port {_NATIVE_PORT}, ClickHouse's native protocol.",
            hint="Name its HTTP port: clickhouse://host:8123/database.",
        )
    return connection


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise InfraConnectionError(f"ClickHouse can't be reached: {error}.", hint=_HINT) from error
    except ClickHouseError as error:
        raise InfraError(f"ClickHouse refused a statement: {error}.", hint=_HINT) from error

"""A log of pages: its table, its store, and what its pages look like.

This is the part that every log shares. Who writes it, in which order, and what else is committed
with its pages, its writers know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    Fence,
    lift_statement_limit,
    open_database,
)
from onex_platform.log.page_layout import PageLayout
from onex_platform.log.page_table import PageTable, insert_pages
from onex_platform.log.store import PageStore, StoredPage


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """What compaction and sweep go by."""

    small_bytes: int  # smaller pages are merged
    target_bytes: int  # size that merged pages aim at
    grace_seconds: float  # a replaced page stays this long for readers that began before

    @classmethod
    def of(cls, pages: PagesSettings) -> PageLimits:
        return cls(
            small_bytes=pages.compact_below_bytes,
            target_bytes=pages.compact_to_bytes,
            grace_seconds=pages.grace_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAddress:
    """All that it takes to open a log; it travels to the workers."""

    settings: Settings
    domain: str
    buckets: int
    store: PageStore
    layout: PageLayout
    limits: PageLimits

    @contextmanager
    def open(self) -> Iterator[PageLog]:
        """The log for the block, over connections of its own."""
        with open_database(self.settings) as database:
            yield PageLog(self, database)


@dataclass(frozen=True, slots=True)
class PageLog:
    """A log that is open."""

    address: LogAddress
    database: Database

    @property
    def domain(self) -> str:
        return self.address.domain

    @property
    def settings(self) -> Settings:
        return self.address.settings

    @property
    def buckets(self) -> int:
        return self.address.buckets

    @property
    def store(self) -> PageStore:
        return self.address.store

    @property
    def layout(self) -> PageLayout:
        return self.address.layout

    @property
    def limits(self) -> PageLimits:
        return self.address.limits

    @property
    def table(self) -> PageTable:
        """Which pages are the log."""
        return PageTable(self.database, self.domain, self.layout.metadata)

    def begin(self) -> None:
        """Make sure that the log exists; its number of buckets may not have changed."""
        self.table.begin(self.address.buckets)

    def fenced(self, fence: Fence) -> PageLog:
        """The same log, for somebody whose transactions may be refused at their end."""
        return replace(self, database=self.database.fenced(fence))

    def append(
        self, pages: Iterable[StoredPage], within: Callable[[Cursor], None] | None = None
    ) -> None:
        """Make stored pages part of the log, with whatever `within` writes, in one transaction.

        `within` runs first: what it locks, rivals wait for. If it raises, nothing is written.
        """
        with self.database.transaction() as cursor:
            lift_statement_limit(cursor)
            if within is not None:
                within(cursor)
            insert_pages(cursor, pages)

"""What a log amounts to, from its page table alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from onex_platform.engines.postgres.database import fetch_one
from onex_platform.log.page_log import PageLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """Numbers for metadata, metrics and people; times are those of the log."""

    pages: int
    bytes: int
    events: int
    small_pages: int  # below the size that is worth merging
    replaced_pages: int  # not part of the log any more, kept for readers that began before
    replaced_bytes: int
    oldest: datetime | None
    newest: datetime | None


def log_stats(log: PageLog) -> LogStats:
    """The numbers of this moment."""
    with log.database.transaction() as cursor:
        row = fetch_one(
            cursor,
            "SELECT count(*) FILTER (WHERE live) AS pages,"
            " coalesce(sum(encoded_bytes) FILTER (WHERE live), 0)::bigint AS bytes,"
            " coalesce(sum(event_count) FILTER (WHERE live), 0)::bigint AS events,"
            " count(*) FILTER (WHERE live AND encoded_bytes < %(small)s) AS small_pages,"
            " count(*) FILTER (WHERE NOT live) AS replaced_pages,"
            " coalesce(sum(encoded_bytes) FILTER (WHERE NOT live), 0)::bigint AS replaced_bytes,"
            " min(min_position) FILTER (WHERE live) AS first,"
            " max(max_position) FILTER (WHERE live) AS last"
            " FROM (SELECT *, replaced_at IS NULL AS live FROM pages WHERE domain = %(domain)s)",
            {"domain": log.domain, "small": log.limits.small_bytes},
        )
    return LogStats(
        pages=row.pages,
        bytes=row.bytes,
        events=row.events,
        small_pages=row.small_pages,
        replaced_pages=row.replaced_pages,
        replaced_bytes=row.replaced_bytes,
        oldest=None if row.first is None else log.layout.moment_of(row.first),
        newest=None if row.last is None else log.layout.moment_of(row.last),
    )

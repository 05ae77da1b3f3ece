"""Proof that the log is whole: nothing missing and nothing twice.

It asks the tables alone: every offset of every input partition is accounted for once, every cut's
events are in pages, and its echoes are noted offset by offset. A recent stretch costs the same
however long the log is; the whole takes its time. Whether the pages are in the store,
`log.verify.page_check` proves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from onex_platform.domain.order import position_at
from onex_platform.engines.postgres.database import fetch_one, lift_statement_limit
from onex_platform.ingest.cuts.committed_cuts import BEGINNING, CommittedCuts
from onex_platform.ingest.cuts.consistent_cut import InputPartition, OffsetRange
from onex_platform.ingest.registration_pages import EnumPageReason, entered
from onex_platform.log.page_layout import PageMetadata
from onex_platform.log.page_log import PageLog
from onex_platform.log.page_table import PageEntry
from onex_platform.log.replay import overlapping
from onex_platform.log.verify.page_check import EnumLogFault, LogFault


@dataclass(slots=True)
class LogAccount:
    """What the tables say of cuts and offsets."""

    cuts: int = 0
    offsets: int = 0  # read, or accepted as lost
    lost_offsets: int = 0
    restarts: int = 0  # how often a partition's offsets began anew; what was lost, nobody knows
    echoes: int = 0
    events: int = 0
    faults: list[LogFault] = field(default_factory=list)


class _Part(NamedTuple):
    """A cut with the events that it archived, or a page with those of its events that entered."""

    first: int
    last: int
    archived: int
    entered: int


def verify_log(log: PageLog, since: datetime | None = None) -> LogAccount:
    """Whether every offset was read once, and every event that was read is in a page once.

    With `since`, only what cuts that ended later read.
    """
    account = LogAccount()
    account.faults += _cut_faults(log, since)
    account.faults += _offset_faults(log, since, account)
    account.faults += _echo_faults(log, since)
    account.faults += _event_faults(log, since, account)
    return account


def _cut_faults(log: PageLog, since: datetime | None) -> Iterator[LogFault]:
    """A cut ends before the next one begins, the last one at the head or before it."""
    with log.database.transaction() as cursor:
        if since is None:
            lift_statement_limit(cursor)
        broken = cursor.execute(
            "SELECT * FROM (SELECT instant, lead(closed_before, 1, head)"
            " OVER (ORDER BY closed_before) AS following"
            " FROM log_cuts JOIN log_heads USING (domain)"
            " WHERE domain = %s AND instant > %s) WHERE following < instant ORDER BY instant",
            (log.domain, since or BEGINNING),
        ).fetchall()
    for row in broken:
        sentence = f"The cut up to {row.instant} reaches beyond {row.following}, where it must end."
        yield LogFault(EnumLogFault.OVERLAP, sentence)


def _offset_faults(log: PageLog, since: datetime | None, account: LogAccount) -> Iterator[LogFault]:
    """The ranges that were read and those that are lost form one chain up to the cursor.

    Where offsets began anew, each generation has a chain of its own, up to where it ended.
    """
    scope = {"domain": log.domain, "since": since or BEGINNING, "whole": since is None}
    with log.database.transaction() as cursor:
        if since is None:
            lift_statement_limit(cursor)
        totals = fetch_one(
            cursor,
            "SELECT (SELECT count(*) FROM log_cuts WHERE domain = %(domain)s"
            " AND instant > %(since)s) AS cuts,"
            " (SELECT coalesce(sum(echoes), 0)::bigint FROM log_cuts"
            " WHERE domain = %(domain)s AND instant > %(since)s) AS echoes,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM cut_ranges"
            " WHERE domain = %(domain)s AND instant > %(since)s) AS read,"
            " (SELECT coalesce(sum(end_offset - start_offset), 0)::bigint FROM lost_ranges"
            " WHERE domain = %(domain)s) AS lost,"
            " (SELECT count(*) FROM offset_restarts WHERE domain = %(domain)s) AS restarts",
            scope,
        )
        account.cuts, account.lost_offsets = totals.cuts, totals.lost
        account.restarts, account.echoes = totals.restarts, totals.echoes
        account.offsets = totals.read + totals.lost
        broken = cursor.execute(
            # A loss that was accepted before the first of these cuts has its follower in another.
            "WITH taken AS (SELECT topic, partition, generation, start_offset, end_offset"
            " FROM cut_ranges WHERE domain = %(domain)s AND instant > %(since)s"
            "), began AS (SELECT topic, partition, generation, min(start_offset) AS first_offset"
            " FROM taken GROUP BY topic, partition, generation)"
            " SELECT * FROM (SELECT topic, partition, end_offset, lead(start_offset)"
            " OVER (PARTITION BY topic, partition, generation ORDER BY start_offset, end_offset)"
            " AS following"
            " FROM (SELECT topic, partition, generation, start_offset, end_offset FROM taken"
            " UNION ALL SELECT topic, partition, generation, start_offset, end_offset"
            " FROM lost_ranges LEFT JOIN began USING (topic, partition, generation)"
            " WHERE domain = %(domain)s AND (%(whole)s OR start_offset > first_offset)"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM consumer_cursors WHERE domain = %(domain)s"
            " UNION ALL SELECT topic, partition, generation, next_offset, NULL"
            " FROM offset_restarts WHERE domain = %(domain)s))"
            " WHERE end_offset IS NOT NULL AND following IS DISTINCT FROM end_offset"
            " ORDER BY topic, partition, end_offset",
            scope,
        ).fetchall()
    for row in broken:
        place = InputPartition(row.topic, row.partition)
        if row.following is None:
            sentence = f"{place} was read up to offset {row.end_offset - 1}, but has no cursor."
            yield LogFault(EnumLogFault.GAP, sentence)
        elif row.following > row.end_offset:
            offsets = OffsetRange(row.end_offset, row.following)
            yield LogFault(EnumLogFault.GAP, f"{place} {offsets} are in no cut.")
        else:
            offsets = OffsetRange(row.following, row.end_offset)
            yield LogFault(EnumLogFault.OVERLAP, f"{place} {offsets} are in two cuts.")


def _echo_faults(log: PageLog, since: datetime | None) -> Iterator[LogFault]:
    """A cut notes as many offsets as it counted echoes; the table demands that they were read."""
    scope = {"domain": log.domain, "since": since or BEGINNING}
    with log.database.transaction() as cursor:
        if since is None:
            lift_statement_limit(cursor)
        broken = cursor.execute(
            "SELECT instant, counted.echoes, coalesce(noted.offsets, 0) AS offsets"
            " FROM log_cuts AS counted LEFT JOIN ("
            "  SELECT instant, sum(upper(run) - lower(run)) AS offsets"
            "  FROM cut_ranges CROSS JOIN unnest(echoes) AS run"
            "  WHERE domain = %(domain)s AND instant > %(since)s GROUP BY instant"
            " ) AS noted USING (instant)"
            " WHERE domain = %(domain)s AND instant > %(since)s"
            " AND counted.echoes <> coalesce(noted.offsets, 0) ORDER BY instant",
            scope,
        ).fetchall()
    for row in broken:
        fault = EnumLogFault.GAP if row.offsets < row.echoes else EnumLogFault.OVERLAP
        sentence = f"The cut up to {row.instant} read {row.echoes} echoes, {row.offsets} are noted."
        yield LogFault(fault, sentence)


def _event_faults(log: PageLog, since: datetime | None, account: LogAccount) -> Iterator[LogFault]:
    """Wherever cuts and pages share positions, the cuts archived as many as entered the pages."""
    start = position_at(since or BEGINNING)
    # The head first: below it, neither cuts nor events are added any more.
    head = CommittedCuts(log).head()
    cuts = log.database.stream(
        "SELECT closed_before, instant, archived FROM log_cuts"
        " WHERE domain = %(domain)s AND instant <= %(head)s AND instant > %(since)s"
        " ORDER BY closed_before",
        {"domain": log.domain, "head": head, "since": since or BEGINNING},
    )
    pages = log.table.entries(position_at(head), start)
    parts = heapq.merge(_cut_parts(cuts), (_page_part(page, account) for page in pages))
    for group in overlapping(parts, lambda part: (part.first, part.last)):
        if group[0].first < start:  # what reaches across the start may share it with what is before
            continue
        archived = sum(part.archived for part in group)
        found = sum(part.entered for part in group)
        if archived != found:
            where = log.layout.describe(group[0].first, max(part.last for part in group))
            fault = EnumLogFault.GAP if found < archived else EnumLogFault.OVERLAP
            sentence = f"{archived} events were archived at {where}, {found} are in pages."
            yield LogFault(fault, sentence)


def _cut_parts(cuts: Iterable[Any]) -> Iterator[_Part]:
    for cut in cuts:
        last = position_at(cut.instant) - 1
        yield _Part(position_at(cut.closed_before), last, cut.archived, 0)


def _page_part(page: PageEntry, account: LogAccount) -> _Part:
    account.events += page.event_count
    return _Part(*page.span, 0, entered(page))


def proof_of_death(log: PageLog, folded: int) -> Callable[[PageMetadata], bool]:
    """Tells of a page that is in no table whether it can still become part of the log; `folded` is
    the fold's cursor.

    A cut commits only while the head is where the cut began, so its pages are dead once the head is
    past them; likewise a batch of decided facts, with the fold's cursor.
    """
    passed: dict[str, int] = {
        EnumPageReason.INGEST: position_at(CommittedCuts(log).head()),
        EnumPageReason.DECISION: folded,
    }

    def is_dead(page: PageMetadata) -> bool:
        return page.max_position < passed.get(page.reason, 0)

    return is_dead

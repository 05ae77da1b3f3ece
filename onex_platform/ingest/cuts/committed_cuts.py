"""The cuts that are part of the log: its head, and the next commit.

Whatever a cut writes becomes part of the log in `commit` or not at all: pages, the ledger's ids,
parked records, consumed offsets and the head move together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from onex_platform.base.errors import OnexError
from onex_platform.domain.order import moment_of, position_at
from onex_platform.engines.postgres.database import Cursor, Database, fetch_one
from onex_platform.engines.postgres.staging import RowCounts
from onex_platform.ingest import inbox
from onex_platform.ingest.admission.echo import EchoRun
from onex_platform.ingest.admission.header_columns import Findings
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition
from onex_platform.ingest.cuts.staged_rows import drop_staged, take_staged
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.header_counts import add_findings
from onex_platform.ingest.letters.parked_letters import note_entered
from onex_platform.ingest.offsets import CursorMove, move_consumer_cursors
from onex_platform.log.page_log import PageLog
from onex_platform.log.store import StoredPage

# Before every broker: a log that begins here has not missed anything.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class CutAccount(NamedTuple):
    """What became of the records of a cut."""

    archived: int
    parked: int
    duplicates: int
    echoes: int = 0  # among the duplicates, those that are not archived

    @property
    def read(self) -> int:
        return self.archived + self.parked + self.echoes


class RivalCutError(OnexError):
    """Somebody moved what the cut stands on; nothing of it was written, and it is taken again."""


class CommittedCuts:
    """The cuts of one log."""

    def __init__(self, log: PageLog) -> None:
        self._log = log
        self._domain = log.domain
        self._database = log.database

    @property
    def database(self) -> Database:
        return self._database

    def begin(self) -> None:
        """Make sure that the log has a head; one without cuts begins before every broker."""
        with self._database.transaction() as cursor:
            query = "SELECT FROM log_heads WHERE domain = %s"
            if cursor.execute(query, (self._domain,)).fetchone() is not None:
                return  # whoever merely looks must not write
            cursor.execute(
                "INSERT INTO log_heads (domain, head) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (self._domain, BEGINNING),
            )

    def head(self) -> datetime:
        """Everything before this instant is in the log."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT head FROM log_heads WHERE domain = %s", (self._domain,))
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
                " FROM log_heads WHERE domain = %(domain)s",
                {"domain": self._domain, "start": moment_of(start), "events": events},
            )
        return position_at(row.moment)

    def commit(
        self,
        cut: Cut,
        batch_id: UUID,
        pages: Iterable[StoredPage],
        account: CutAccount,
        inbox_ids: list[UUID],
        staged: RowCounts,
        ledger_floor: datetime | None = None,
        findings: Findings | None = None,
        echoes: Iterable[EchoRun] = (),
    ) -> None:
        """Make the cut part of the log, with what its tasks staged, in one transaction.

        `ledger_floor` is the one that its events were judged by: as long as it has not moved, no id
        that the cut asked for was forgotten meanwhile.
        """

        def enter(cursor: Cursor) -> None:
            self._move_head(cursor, cut)
            if not cut.ranges and not account.archived:
                return  # nothing came in: the head moves on, and that is all
            if recall(cursor, self._domain).floor != ledger_floor:
                raise RivalCutError(
                    f"The ledger of {self._domain!r} was pruned while the cut was read.",
                    hint="Nothing was written; the next run takes the cut again.",
                )
            self._move_cursors(cursor, cut)
            self._insert_cut(cursor, cut, account, echoes)
            note_entered(cursor, self._domain, batch_id, inbox_ids)
            take_staged(cursor, batch_id, self._domain, staged)
            add_findings(cursor, self._domain, cut.instant, findings or Findings())
            inbox.remove(cursor, self._domain, inbox_ids)

        self._log.append(pages, within=enter)

    def drop_staged(self, batch_id: UUID) -> None:
        """Forget what tasks staged for a cut that is not to be committed."""
        with self._database.transaction() as cursor:
            drop_staged(cursor, batch_id)

    def _move_head(self, cursor: Cursor, cut: Cut) -> None:
        cursor.execute(
            "UPDATE log_heads SET head = %s WHERE domain = %s AND head = %s",
            (cut.instant, self._domain, cut.closed_before),
        )
        if cursor.rowcount != 1:
            raise _rival(self._domain, cut)

    def _move_cursors(self, cursor: Cursor, cut: Cut) -> None:
        moves = (
            CursorMove(*place, cut.cursors.get(place), span.end, cut.topic_ids.get(place.topic))
            for place, span in cut.ranges.items()
        )
        if not move_consumer_cursors(cursor, self._domain, moves):
            raise _rival(self._domain, cut)

    def _insert_cut(
        self, cursor: Cursor, cut: Cut, account: CutAccount, echoes: Iterable[EchoRun]
    ) -> None:
        cursor.execute(
            "INSERT INTO log_cuts"
            " (domain, closed_before, instant, read, archived, parked, duplicates, echoes)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (self._domain, cut.closed_before, cut.instant, account.read, *account),
        )
        echoed: dict[InputPartition, list[str]] = defaultdict(list)
        for run in echoes:
            echoed[InputPartition(run.topic, run.partition)].append(f"[{run.start},{run.end})")
        cursor.executemany(
            "INSERT INTO cut_ranges"
            " (domain, instant, topic, partition, generation, start_offset, end_offset, echoes)"
            " SELECT domain, %s, topic, partition, generation, %s, %s, %s FROM consumer_cursors"
            " WHERE domain = %s AND topic = %s AND partition = %s",
            [
                (cut.instant, *span, f"{{{','.join(echoed[place])}}}", self._domain, *place)
                for place, span in cut.ranges.items()
            ],
        )


def _rival(domain: str, cut: Cut) -> RivalCutError:
    return RivalCutError(
        f"Another run moved the log of {domain!r} past {cut.closed_before}.",
        hint="Nothing was written; the next run goes on from there.",
    )

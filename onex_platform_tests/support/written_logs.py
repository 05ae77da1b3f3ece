"""A log without Kafka and Spark: cuts of a made-up fleet, in real pages and a real page table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import numpy as np
import pyarrow as pa

from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import RawRecord
from onex_platform.domain.order import position_at
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import CutAccount
from onex_platform.ingest.cuts.consistent_cut import Cut, InputPartition, OffsetRange
from onex_platform.ingest.cuts.cut_job import period_of
from onex_platform.ingest.event_schema import LOG_SCHEMA, bucket_of, to_events, to_table
from onex_platform.ingest.inputs import next_offsets
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason, read_chunk
from onex_platform.ingest.verification import proof_of_death
from onex_platform.log.page_format import PageWriter
from onex_platform.log.page_table import insert_pages
from onex_platform.log.replay import PageRef
from onex_platform.log.store import StoredPage
from onex_platform.log.verify.orphans import Orphan, find_orphans
from onex_platform.projections.fold.checkpoint import move_fold_cursor
from onex_platform.projections.write.batch_counts import record_outcomes
from onex_platform_tests.support.events import at, record
from onex_platform_tests.support.histories import Run

Kind = EnumEventKind

PLACE = InputPartition("input", 0)
TARGET = 64 * 1024**2


class WrittenLog:
    """Writes a log into an archive, cut by cut, and knows the rows that it amounts to."""

    def __init__(self, archive: PageArchive) -> None:
        self.archive = archive
        self.run = Run(RegistrationPolicy())
        self._cuts = 0
        self._offset = 0
        self._folded = 0

    @property
    def folded(self) -> int:
        """The fold's cursor."""
        return self._folded

    def cuts(self, count: int, beating: int = 12, seconds: float = 5) -> None:
        """Cuts of a growing fleet: each time one node joins and acknowledges, and the last beat."""
        for node in range(self._cuts, self._cuts + count):
            begin = node * seconds
            beats = range(max(node - beating, 0), node + 1)
            self.cut(
                [
                    (Kind.NODE_INTROSPECTION, begin, node),
                    (Kind.NODE_ACK, begin + 1, node),
                    *((Kind.NODE_HEARTBEAT, begin + 2, beater) for beater in beats),
                ],
                begin + seconds,
            )
        self._cuts += count

    def cut(self, events: Iterable[tuple[EnumEventKind, float, int]], until: float) -> None:
        """One cut: (kind, seconds, number of the node) of each record, in pages and folded."""
        records = [self._record(*event) for event in events]
        before, counts = len(self.run.log), Counter(self.run.outcomes)
        self.run.cut(records, at(until), at(until))
        log = self.run.log[before:]
        entered = [event for event in log if event.provenance is not None]
        decided = [event for event in log if event.provenance is None]
        cut = Cut(
            self.archive.cuts.head(),
            at(until),
            {PLACE: OffsetRange(self._offset - len(records), self._offset)},
            next_offsets(self.archive.platform),
            {},
        )
        account = CutAccount(len(entered), 0, sum(event.duplicate for event in entered))
        pages = [write_page(self.archive, entered, EnumPageReason.INGEST, cut)]
        self.archive.cuts.commit(cut, uuid4(), pages, account, [], {})
        with self.archive.database.transaction() as cursor:
            end = position_at(at(until))
            assert move_fold_cursor(cursor, self.archive.domain, self._folded, end)
            outcomes = Counter(self.run.outcomes) - counts
            record_outcomes(
                cursor,
                self.archive.domain,
                start=self._folded,
                end=end,
                read=outcomes.total(),
                outcomes={EnumOutcome(name): count for name, count in outcomes.items()},
            )
            self._folded = end
            if decided:
                page = write_page(self.archive, decided, EnumPageReason.DECISION, cut)
                insert_pages(cursor, [page])

    def _record(self, kind: EnumEventKind, seconds: float, node: int) -> RawRecord:
        self._offset += 1
        return record(
            kind,
            seconds,
            topic=PLACE.topic,
            partition=PLACE.partition,
            offset=self._offset - 1,
            node_id=f"node-{node}",
        )


def write_page(
    archive: PageArchive, events: list[LogEvent], reason: EnumPageReason, cut: Cut
) -> StoredPage:
    """A page in the store, not part of the log yet."""
    table = to_table(events)
    numbers = np.array(
        [bucket_of(item, archive.log.buckets) for item in table["entity_id"].to_pylist()]
    )
    writer = PageWriter(REGISTRATION_PAGES)
    for bucket in np.unique(numbers):
        writer.add(int(bucket), table.filter(pa.array(numbers == bucket)))
    page = writer.finish(
        page_id=uuid4(),
        domain=archive.domain,
        writer_id="tests",
        reason=reason,
        buckets=archive.log.buckets,
        period=period_of(cut),
    )
    return archive.log.store.create_page(page)


def pages_of(archive: PageArchive) -> list[PageRef]:
    return [PageRef.of(page) for page in archive.log.table.pages()]


def events_of(archive: PageArchive, pages: list[PageRef] | None = None) -> list[LogEvent]:
    """The log, read back bucket by bucket."""
    pages = pages_of(archive) if pages is None else pages
    return [
        event
        for bucket in range(archive.log.buckets)
        for event in bucket_events(archive, pages, bucket)
    ]


def bucket_events(archive: PageArchive, pages: list[PageRef], bucket: int) -> list[LogEvent]:
    chunk = read_chunk(
        archive.log.store, pages, bucket, 0, 2**63 - 1, beat_columns=LOG_SCHEMA.names
    )
    events = [event for table in chunk for event in to_events(table, archive.domain)]
    return sorted(events, key=lambda event: (event.position, event.entity))


def require_rows(log: WrittenLog) -> None:
    """The pages fold to the rows that the log amounted to when it was written."""
    events = sorted(events_of(log.archive), key=lambda event: event.position)
    assert len(events) == len(log.run.log)
    assert replay(events) == log.run.rows


def let_grace_pass(archive: PageArchive) -> None:
    with archive.database.transaction() as cursor:
        cursor.execute("UPDATE pages SET replaced_at = replaced_at - interval '2 hours'")


def files_of(archive: PageArchive) -> set[str]:
    return {item.key for item in archive.log.store.objects()}


def orphans_of(archive: PageArchive, folded: int, now: datetime | None = None) -> list[Orphan]:
    """What no table names; unless told otherwise, once the grace period has passed."""
    later = now or datetime.now(UTC) + timedelta(hours=2)
    return list(find_orphans(archive.log, proof_of_death(archive.log, folded), later))

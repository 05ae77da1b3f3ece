"""Logs in pages without a broker: cuts of records, and logs whose events have their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID, uuid4, uuid5

from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import CANARY_ID, EntityKey, identify_node
from onex_platform.domain.intake import Parked, RawRecord, admit
from onex_platform.domain.order import moment_of
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import replay
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.cuts.committed_cuts import CutAccount
from onex_platform.ingest.cuts.consistent_cut import Cut
from onex_platform.ingest.cuts.staged_rows import stage
from onex_platform.ingest.deduplication import recall
from onex_platform.ingest.event_schema import (
    LOG_SCHEMA,
    PARKED_SCHEMA,
    bucket_of,
    to_events,
    to_table,
)
from onex_platform.ingest.numbering import enter_log
from onex_platform.ingest.registration_pages import REGISTRATION_PAGES, EnumPageReason, read_chunk
from onex_platform.log.page_format import PageWriter
from onex_platform.log.page_table import insert_pages
from onex_platform.log.replay import PageRef
from onex_platform.log.store import StoredPage
from onex_platform.projections.fold.checkpoint import move_fold_cursor
from onex_platform.projections.fold.refold import (
    folded_to,
    plan_replay,
)
from onex_platform.projections.fold.row_columns import to_rows
from onex_platform.projections.history.as_of import (
    state_frame,
)
from onex_platform.projections.history.hourly_states import (
    HOUR,
    hour_of,
)
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform_tests.support.events import RULES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[EntityKey, ModelRegistrationProjection]


def place(event: LogEvent) -> tuple[int, UUID]:
    """Where an event stands; positions order the events of one node, not those of two."""
    return event.position, event.entity.entity_id


def take_cut(archive: PageArchive, records: Iterable[RawRecord], instant: datetime) -> CutAccount:
    """What ingest does with the records of a cut, without Kafka and Spark; none may be parked."""
    head, batch_id = archive.cuts.head(), uuid4()
    admitted = [admit(record, RULES, instant) for record in records]
    assert not any(isinstance(item, Parked) for item in admitted)
    with archive.database.transaction() as cursor:
        events = enter_log(
            to_table(item for item in admitted if isinstance(item, LogEvent)),
            head,
            instant,
            lambda ids: {
                known.bytes
                for known in recall(
                    cursor, archive.domain, [UUID(bytes=item) for item in ids]
                ).known
            },
        )
        staged = stage(cursor, batch_id, 0, events, _NOTHING_PARKED)
    log = list(to_events(events, archive.domain))
    pages = [write_page(archive, log, EnumPageReason.INGEST)] if log else []
    account = CutAccount(len(log), 0, sum(event.duplicate for event in log))
    cut = Cut(closed_before=head, instant=instant, ranges={}, cursors={}, topic_ids={})
    archive.cuts.commit(cut, batch_id, pages, account, [], staged)
    return account


def write_page(
    archive: PageArchive, events: Sequence[LogEvent], reason: EnumPageReason
) -> StoredPage:
    """Events at their positions as one page; it is not part of the log yet."""
    writer = PageWriter(REGISTRATION_PAGES)
    by_bucket: dict[int, list[LogEvent]] = {}
    for event in events:
        bucket = bucket_of(event.entity.entity_id.bytes, archive.log.buckets)
        by_bucket.setdefault(bucket, []).append(event)
    for bucket, part in sorted(by_bucket.items()):
        writer.add(bucket, to_table(part))
    last = max(event.position for event in events)
    page = writer.finish(
        page_id=uuid4(),
        domain=archive.domain,
        writer_id="tests",
        reason=reason,
        buckets=archive.log.buckets,
        period=hour_of(moment_of(last)),
    )
    return archive.log.store.create_page(page)


def enter_folded_log(
    archive: PageArchive, log: Sequence[LogEvent], cuts: Iterable[int], *, per_bucket: bool = False
) -> None:
    """Make a whole log the archive's, cut into pages at these events; it counts as folded.

    What was decided stands in pages of its own, as it does when it is decided live.
    """
    pages = []
    for start, end in pairwise([0, *sorted(cuts), len(log)]):
        part = log[start:end]
        for reason, decided in ((EnumPageReason.INGEST, False), (EnumPageReason.DECISION, True)):
            events = [e for e in part if (e.cause_id is not None) is decided]
            groups = _by_bucket(archive, events) if per_bucket else [events]
            pages += [write_page(archive, group, reason) for group in groups if group]
    with archive.database.transaction() as cursor:
        insert_pages(cursor, pages)
        end = log[-1].position + 1 if log else 1
        assert move_fold_cursor(cursor, archive.domain, 0, end)


def log_of(archive: PageArchive) -> list[LogEvent]:
    """Every event of the archive, in the order of the log."""
    pages = [PageRef.of(page) for page in archive.log.table.pages()]
    events = [
        event
        for bucket in range(archive.log.buckets)
        for table in read_chunk(
            archive.log.store, pages, bucket, 0, 2**63 - 1, beat_columns=LOG_SCHEMA.names
        )
        for event in to_events(table, archive.domain)
    ]
    return sorted(events, key=place)


def replayed(archive: PageArchive, below: int = 2**63 - 1) -> Rows:
    """What the reference fold makes of the archive's log."""
    return replay(event for event in log_of(archive) if event.position < below)


def renamed(log: Iterable[LogEvent], name: str, domain: str) -> list[LogEvent]:
    """The same history of other nodes, so that many fit into one log."""
    return [_renamed(event, name, domain) for event in log]


def _renamed(event: LogEvent, name: str, domain: str) -> LogEvent:
    plain = event.node_name is not None
    node_id = f"{event.node_id}-{name}" if plain else str(uuid5(event.entity.entity_id, name))
    identity = identify_node(node_id, event.tenant)
    return replace(
        event,
        entity=EntityKey(domain, identity.entity_id),
        node_id=node_id,
        node_name=identity.node_name,
    )


def _by_bucket(archive: PageArchive, events: list[LogEvent]) -> list[list[LogEvent]]:
    groups: dict[int, list[LogEvent]] = {}
    for event in events:
        bucket = bucket_of(event.entity.entity_id.bytes, archive.log.buckets)
        groups.setdefault(bucket, []).append(event)
    return list(groups.values())


_NOTHING_PARKED = PARKED_SCHEMA.empty_table()


def rows_of(archive: PageArchive) -> dict[EntityKey, ModelRegistrationProjection]:
    """Every row of the store: also the canary's, which no listing shows."""
    reader = ProjectionReaderRegistration(archive.database)
    listed = {row.key: row for row in reader.iter_all(include_deregistered=True)}
    return listed | reader.get_many([CANARY_ID])


def require_live_equals_replay(archive: PageArchive) -> None:
    live, replayed = rows_of(archive), replay(log_of(archive))
    assert {key: row.domain_columns() for key, row in live.items()} == {
        key: row.domain_columns() for key, row in replayed.items()
    }


def folded_on_spark(spark: SparkSession, archive: PageArchive, partitions: int) -> Rows:
    job = plan_replay(archive.log, 0, folded_to(archive.database, archive.domain), spark=spark)
    return {row.key: row for row in to_rows(state_frame(spark, job, partitions).toArrow())}


def hours_of(log: list[LogEvent]) -> list[datetime]:
    """The hours of a log that are over."""
    hours, end = [hour_of(log[0].occurred_at)], log[-1].occurred_at
    while hours[-1] + 2 * HOUR <= end:
        hours.append(hours[-1] + HOUR)
    return hours

"""A registry whose deadlines a test watches: fleets by SQL, folds without Spark, time by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.deadlines.scan import ScanAccount, scan
from onex_platform.domain.events import LogEvent
from onex_platform.domain.order import moment_of, position_at
from onex_platform.domain.reference.log_order import number
from onex_platform.ingest import inbox
from onex_platform.ingest.archive import PageArchive
from onex_platform.projections.fold.checkpoint import fold_position, move_fold_cursor
from onex_platform.projections.write.projector import BatchResult
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.events import TENANT, at
from onex_platform_tests.support.stored_rows import Store, enter_ids, open_store

_NODES = """
    INSERT INTO registration_projections (entity_id, domain, tenant, current_state, epoch,
        node_type, capabilities, endpoints, metadata, ack_deadline, introspected_at, registered_at,
        last_state_change_at, last_applied_event_id, last_applied_sequence, row_version)
    SELECT md5(%(tenant)s || %(first)s + n)::uuid, 'registration', %(tenant)s,
        %(state)s::registration_state, 1, 'effect', '{}', '{}', '{}', %(ack)s, %(since)s, %(since)s,
        %(since)s, gen_random_uuid(), 1, 1
    FROM generate_series(0, %(count)s - 1) AS n"""
_LIVENESS = """
    INSERT INTO registration_liveness (entity_id, domain, liveness_deadline, last_applied_sequence)
    SELECT md5(%(tenant)s || %(first)s + n)::uuid, 'registration',
        %(deadline)s + n * interval '1 microsecond', 1
    FROM generate_series(0, %(count)s - 1) AS n"""

LONG_AGO, LATER = at(-100_000), at(1e9)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Watched:
    """One archive, its rows, and shortcuts for what happens to them."""

    archive: PageArchive
    store: Store

    def execute(self, query: str, **parameters: Any) -> None:
        with self.archive.database.transaction() as cursor:
            cursor.execute(query, parameters or None)

    def select(self, query: str) -> list[tuple[Any, ...]]:
        return self.store.select(query)

    def active(
        self, count: int, deadline: datetime, *, tenant: str = TENANT, first: int = 0
    ) -> None:
        """Active nodes; each one's deadline is a microsecond after the one before."""
        which = {"tenant": tenant, "first": first, "count": count}
        self.execute(_NODES, **which, state="active", ack=None, since=at(-1000))
        self.execute(_LIVENESS, **which, deadline=deadline)

    def awaiting_ack(self, count: int, deadline: datetime, *, first: int = 0) -> None:
        which = {"tenant": TENANT, "first": first, "count": count}
        self.execute(_NODES, **which, state="awaiting_ack", ack=deadline, since=at(-1000))

    def request_acks(self) -> None:
        """Let every node's request wait in the outbox."""
        self.execute(
            "INSERT INTO outbox"
            " (domain, entry, entity_id, event_kind, event_id, event_key, envelope)"
            " SELECT domain, 'event', entity_id, 'registry.node.ack_requested', gen_random_uuid(),"
            " entity_id::text, '{}' FROM registration_projections"
        )

    def publish_requests(self, moment: datetime) -> None:
        """What the relay does when the broker has acknowledged the requests."""
        self.execute(
            "WITH gone AS (DELETE FROM outbox WHERE event_kind = 'registry.node.ack_requested'"
            "  RETURNING domain, entity_id)"
            " INSERT INTO published_ack_requests SELECT domain, entity_id, %(at)s FROM gone"
            " ON CONFLICT (domain, entity_id) DO UPDATE SET published_at = excluded.published_at",
            at=moment,
        )

    def beat(self, count: int, deadline: datetime) -> None:
        """Let as many of those whose deadline is the latest live on until then."""
        self.execute(
            "UPDATE registration_liveness SET liveness_deadline = %(deadline)s"
            " WHERE entity_id IN (SELECT entity_id FROM registration_liveness"
            "  ORDER BY liveness_deadline DESC LIMIT %(count)s)",
            deadline=deadline,
            count=count,
        )

    def folded_to(self, moment: datetime) -> None:
        """Say that everything before the moment is in the rows."""
        with self.archive.database.transaction() as cursor:
            start = fold_position(cursor, self.archive.domain)
            assert move_fold_cursor(cursor, self.archive.domain, start, position_at(moment))

    def watched_at(self, moment: datetime, since: datetime = LONG_AGO) -> None:
        """Say that somebody looked at the moment, and without a gap since long ago."""
        self.execute(
            "INSERT INTO deadline_watches VALUES ('registration', %(at)s, %(since)s)"
            " ON CONFLICT (domain) DO UPDATE SET watched_at = %(at)s, resumed_at = %(since)s",
            at=moment,
            since=since,
        )

    def scan(self, now: datetime, **options: Any) -> ScanAccount:
        """A scan by somebody who watches all the time and has folded everything."""
        self.watched_at(now)
        self.folded_to(now)
        return scan(self.archive.platform, now, **options)

    def waiting(self, before: datetime = LATER) -> list[LogEvent]:
        """The facts that were declared and have no place in the log yet."""
        with self.archive.database.transaction() as cursor:
            return inbox.waiting(cursor, self.archive.domain, before, 1_000_000)

    def fold(self, until: datetime, *events: LogEvent) -> BatchResult:
        """A cut and its fold without Spark: the facts that wait, and these events."""
        start = self.store.position()
        facts = self.waiting(until)
        numbered = list(number([*facts, *events], moment_of(start), until))
        with self.archive.database.transaction() as cursor:
            enter_ids(cursor, self.archive.domain, numbered)
            inbox.remove(cursor, self.archive.domain, [fact.event_id for fact in facts])
        return self.store.fold(numbered, start, position_at(until))

    def states(self) -> Counter[str]:
        query = "SELECT current_state::text FROM registration_projections"
        return Counter(state for (state,) in self.select(query))

    def holds(self) -> list[tuple[Any, ...]]:
        """Tenant, limit, held and ending of every hold, in order."""
        return self.select(
            "SELECT tenant, expiry_limit, held, ending FROM expiry_holds ORDER BY since, tenant"
        )


@contextmanager
def open_watched(settings: Settings) -> Iterator[Watched]:
    with open_archive(settings) as archive, open_store(settings) as store:
        yield Watched(archive, store)


def with_deadlines(settings: Settings, **changes: Any) -> Settings:
    """The settings with some of the deadlines' own changed."""
    chosen = settings.deadlines.model_copy(update=changes)
    return settings.model_copy(update={"deadlines": chosen})

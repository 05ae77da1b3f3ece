"""The store as tests use it: fold into it, and look at it down to the last byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import Settings
from onex_platform.domain.batch import Decider
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.domain.order import position_at
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import BatchFold, fold_batch
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    open_database,
)
from onex_platform.ingest import deduplication
from onex_platform.ingest.cuts.staged_rows import stage
from onex_platform.ingest.event_schema import PARKED_SCHEMA, to_table
from onex_platform.projections.fold.checkpoint import fold_position
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.projections.write import outbox
from onex_platform.projections.write.projector import (
    BatchResult,
    ProjectionBatch,
    ProjectorRegistration,
)
from onex_platform.projections.write.staged_batch import Given, give
from onex_platform_tests.support.events import NODE, RULES

# The fold starts at position 0, and so does the first cut of a history.
START_OF_LOG = datetime(1970, 1, 1, tzinfo=UTC)

TABLES = (
    "registration_projections",
    "registration_liveness",
    "fold_cursors",
    "consumer_cursors",
    "event_ledger",
    "ledger_floors",
    "fact_inbox",
    "outbox",
    "batch_outcomes",
    "illegal_events",
    "parked_records",
)
EMPTY: dict[str, list[str]] = {table: [] for table in TABLES}


@dataclass(frozen=True)
class Store:
    """A projector and a reader as one process has them, with a pool and a breaker of their own."""

    database: Database
    projector: ProjectorRegistration
    reader: ProjectionReaderRegistration

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        with self.database.transaction() as cursor:
            yield cursor

    def select(self, query: str) -> list[tuple[Any, ...]]:
        with self.transaction() as cursor:
            return [tuple(row) for row in cursor.execute(query)]

    def physical(self, *tables: str) -> dict[str, list[str]]:
        """Every row of the tables with its place and its writer: any write at all shows."""
        columns = "t.ctid::text || ' ' || t.xmin || ' ' || t"
        return {
            table: [line for (line,) in self.select(f"SELECT {columns} FROM {table} AS t")]  # noqa: S608
            for table in tables or TABLES
        }

    def node(self, entity_id: UUID = NODE, **which: Any) -> ModelRegistrationProjection:
        """The stored row of a node that must be there."""
        stored = self.reader.get_entity_state(entity_id, include_deregistered=True, **which)
        assert stored is not None
        return stored

    def folded(
        self, events: Iterable[LogEvent], start: int, end: int, domain: str = REGISTRATION_DOMAIN
    ) -> ProjectionBatch:
        """Events at their positions, folded onto the stored rows but not written."""
        events = list(events)
        rows = self.reader.get_many({event.entity.entity_id for event in events}, domain)
        return _batch_of(domain, fold_batch(rows, events), start, end)

    def fold(self, events: Iterable[LogEvent], start: int, end: int) -> BatchResult:
        """Events at their positions, folded and written."""
        return self.projector.persist_batch(self.folded(events, start, end))

    def position(self, domain: str = REGISTRATION_DOMAIN) -> int:
        with self.transaction() as cursor:
            return fold_position(cursor, domain)

    def cut(
        self,
        records: Sequence[RawRecord],
        instant: datetime,
        closed_before: datetime = START_OF_LOG,
        decider: Decider | None = None,
    ) -> tuple[BatchFold, BatchResult]:
        """The pipeline without Kafka and pages: intake, ledger, fold, projector."""
        admitted = [admit(record, RULES, instant) for record in records]
        entering = [item for item in admitted if isinstance(item, LogEvent)]
        events = list(number(entering, closed_before, instant))
        with self.transaction() as cursor:
            ids = {event.event_id for event in events}
            known = deduplication.recall(cursor, REGISTRATION_DOMAIN, ids).known
            judged = list(mark_duplicates(events, known))
            enter_ids(cursor, REGISTRATION_DOMAIN, judged)
        rows = self.reader.get_many({event.entity.entity_id for event in events})
        fold = fold_batch(rows, judged, decider)
        start, end = position_at(closed_before), position_at(instant)
        batch = _batch_of(REGISTRATION_DOMAIN, fold, start, end)
        return fold, self.projector.persist_batch(batch)


def _batch_of(domain: str, fold: BatchFold, start: int, end: int) -> ProjectionBatch:
    """The batch in which the events of the plain fold have their effect."""
    return ProjectionBatch(
        domain=domain,
        start=start,
        end=end,
        read=fold.read,
        outcomes=fold.outcomes,
        content=Given(fold.changes.values(), [*fold.facts, *fold.announced], fold.refusals),
    )


def enter_ids(cursor: Cursor, domain: str, events: Iterable[LogEvent]) -> None:
    """Put the ids of events that take their place in the log into its ledger, as ingest does."""
    batch_id = uuid4()
    stage(cursor, batch_id, 0, to_table(events), PARKED_SCHEMA.empty_table())
    deduplication.enter_staged(cursor, domain, "staged_ids", batch_id)


def queue_events(cursor: Cursor, facts: Iterable[LogEvent]) -> None:
    """Let facts wait for Kafka, as a batch does."""
    staged = give(cursor, Given(facts=facts))
    outbox.queue_staged(cursor, f"{staged.where}_facts", staged.batch_id)


@contextmanager
def open_store(settings: Settings) -> Iterator[Store]:
    with open_database(settings, CircuitBreaker("postgresql", settings.breaker)) as database:
        yield Store(
            database,
            ProjectorRegistration(database, settings),
            ProjectionReaderRegistration(database),
        )

"""The only writer of projections: one row, or a whole batch, in one guarded transaction.

What holds when a batch is committed, and not a part of it otherwise: its rows, what they publish,
the registry's own events, the ids that entered the log, the account of every record read, and the
cursors. A batch that does not begin where the log is folded to (a repetition, a rival that lost)
changes nothing and is told so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self
from uuid import UUID

from onex_platform.domain.batch import BatchFold, Refusal, RowChange
from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import Parked
from onex_platform.domain.projection import ModelRegistrationProjection, ModelSequenceInfo
from onex_platform.domain.states import EnumOutcome
from onex_platform.engines.migrations import migrate
from onex_platform.engines.postgres import Cursor, Engine, transaction
from onex_platform.pages import inbox, ledger
from onex_platform.pages.cursors import CursorMove, move_consumer_cursors
from onex_platform.projections import accounts, outbox
from onex_platform.projections.cursors import fold_position, move_fold_cursor, take_turn
from onex_platform.projections.rows import Written, write_rows
from onex_platform.resilience import CircuitBreaker, shared_breaker
from onex_platform.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionBatch:
    """What folding the log from `start` up to, and without, `end` came to.

    `read` counts what was read, `outcomes` what became of it: they must agree. `entered` are events
    whose ids the ledger does not hold yet; those of `facts`, which are to be published, are entered
    anyway.
    """

    domain: str
    start: int
    end: int
    read: int
    outcomes: Counter[EnumOutcome]
    changes: Iterable[RowChange] = ()
    facts: Sequence[LogEvent] = ()
    refusals: Sequence[Refusal] = ()
    entered: Sequence[LogEvent] = ()
    parked: Sequence[Parked] = ()
    consumed: Sequence[CursorMove] = ()

    @classmethod
    def of_fold(
        cls,
        domain: str,
        fold: BatchFold,
        *,
        start: int,
        end: int,
        parked: Sequence[Parked] = (),
        consumed: Sequence[CursorMove] = (),
    ) -> Self:
        """The batch in which the fold's events are read, take their place and have their effect."""
        return cls(
            domain=domain,
            start=start,
            end=end,
            read=fold.read + len(parked),
            outcomes=fold.outcomes + Counter({EnumOutcome.PARKED: len(parked)}),
            changes=fold.changes.values(),
            facts=sorted([*fold.facts, *fold.announced], key=lambda fact: fact.position),
            refusals=fold.refusals,
            entered=fold.log,
            parked=parked,
            consumed=consumed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """Whether the batch took effect, where the fold stands now, and what was written."""

    committed: bool
    position: int
    written: Written = field(default_factory=Written)


class ProjectorRegistration:
    """Writes registration projections. Callers of all processes take turns per domain."""

    def __init__(
        self, engine: Engine, settings: Settings, breaker: CircuitBreaker | None = None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._breaker = breaker or shared_breaker("postgresql", settings.breaker)

    def initialize_schema(self) -> list[str]:
        """Apply pending migrations; the names of those applied now."""
        return migrate(self._settings)

    def persist(self, projection: ModelRegistrationProjection) -> bool:
        """Write one whole row unless it is stale; whether it was written."""
        change = RowChange(row=projection, wide=True, liveness=True)
        with transaction(self._engine, self._breaker) as cursor:
            take_turn(cursor, projection.domain)
            if _is_stale(cursor, projection.entity_id, projection.domain, projection.sequence_info):
                return False
            write_rows(cursor, [change])
            return True

    def is_stale(self, entity_id: UUID, domain: str, sequence: ModelSequenceInfo) -> bool:
        """Whether `persist` would refuse a row at this place: something as new stands there."""
        with transaction(self._engine, self._breaker) as cursor:
            return _is_stale(cursor, entity_id, domain, sequence)

    def persist_batch(self, batch: ProjectionBatch) -> BatchResult:
        """Write the whole batch if the log is folded up to its start, else nothing."""
        domain = batch.domain
        with transaction(self._engine, self._breaker) as cursor:
            if not (
                move_fold_cursor(cursor, domain, batch.start, batch.end)
                and move_consumer_cursors(cursor, domain, batch.consumed)
            ):
                cursor.connection.rollback()
                return BatchResult(committed=False, position=fold_position(cursor, domain))
            written = write_rows(cursor, _inside(batch))
            outbox.queue_events(cursor, batch.facts)
            ledger.remember(cursor, domain, chain(batch.entered, batch.facts))
            inbox.remove(cursor, domain, [event.event_id for event in _from_inbox(batch.entered)])
            accounts.record_refusals(cursor, batch.refusals)
            accounts.park(cursor, domain, batch.parked)
            accounts.record_outcomes(
                cursor,
                domain,
                start=batch.start,
                end=batch.end,
                read=batch.read,
                outcomes=batch.outcomes,
            )
            return BatchResult(committed=True, position=batch.end, written=written)


def _is_stale(cursor: Cursor, entity_id: UUID, domain: str, sequence: ModelSequenceInfo) -> bool:
    held = cursor.execute(
        "SELECT last_applied_sequence AS sequence FROM registrations"
        " WHERE entity_id = %s AND domain = %s",
        [entity_id, domain],
    ).fetchone()
    return held is not None and sequence.is_stale_compared_to(
        ModelSequenceInfo(sequence=held.sequence)
    )


def _inside(batch: ProjectionBatch) -> Iterable[RowChange]:
    """The batch's rows; one from outside its part of the log would break the order of writes."""
    for change in batch.changes:
        row = change.row
        if row.domain != batch.domain or not batch.start <= row.last_applied_sequence < batch.end:
            raise ValueError(
                f"{row.key} at {row.last_applied_sequence} is not of {batch.domain!r}, "
                f"positions {batch.start} up to {batch.end}"
            )
        yield change


def _from_inbox(events: Iterable[LogEvent]) -> Iterable[LogEvent]:
    return (event for event in events if event.provenance is None)

"""One batch: events folded in log order, decisions folded right behind their causes.

`fold_batch` is the plain meaning of a run of the pipeline; the Spark reducer must agree with it
cell by cell. With a decider it is the live run, without one it is the replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from onex_platform.domain.decider import RegistrationPolicy, decide
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import is_declared
from onex_platform.domain.fold import apply
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome

Rows = Mapping[EntityKey, ModelRegistrationProjection]

_REFUSED = frozenset({EnumOutcome.ILLEGAL, EnumOutcome.PARKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """A policy at work at one moment.

    `known_facts` holds the ids of facts that earlier batches emitted and must not be repeated.
    """

    policy: RegistrationPolicy
    now: datetime
    known_facts: Container[UUID] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A row after the batch, and which part of it the batch touched."""

    row: ModelRegistrationProjection
    wide: bool  # something other than heartbeats was applied
    liveness: bool  # the last heartbeat or the liveness deadline may have moved


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that had no effect on the row it was about, for the audit."""

    event: LogEvent
    outcome: EnumOutcome
    reason: str


@dataclass(slots=True)
class BatchFold:
    """What a batch came to: rows to write, the log with its facts, and the account of all it."""

    changes: dict[EntityKey, RowChange] = field(default_factory=dict)
    log: list[LogEvent] = field(default_factory=list)
    facts: list[LogEvent] = field(default_factory=list)
    announced: list[LogEvent] = field(default_factory=list)  # declared facts that took effect
    outcomes: Counter[EnumOutcome] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Every event that was folded, and so the sum of the outcomes."""
        return len(self.log)


def fold_batch(rows: Rows, events: Iterable[LogEvent], decider: Decider | None = None) -> BatchFold:
    """Fold `events`, which come in log order, onto `rows`; `rows` itself is left as it is."""
    batch = BatchFold()
    emitted: set[UUID] = set()
    for event in events:
        row = _fold_into(batch, rows, event)
        if decider is None:
            continue
        for fact in decide(row, event, decider.policy, decider.now):
            if fact.event_id in emitted or fact.event_id in decider.known_facts:
                continue
            emitted.add(fact.event_id)
            batch.facts.append(fact)
            _fold_into(batch, rows, fact)
    return batch


def replay(log: Iterable[LogEvent]) -> dict[EntityKey, ModelRegistrationProjection]:
    """The rows that the whole log amounts to."""
    return {key: change.row for key, change in fold_batch({}, log).changes.items()}


def _fold_into(batch: BatchFold, rows: Rows, event: LogEvent) -> ModelRegistrationProjection | None:
    """Fold one event, account for it, and return the row as it stands now."""
    earlier = batch.changes.get(event.entity)
    before = earlier.row if earlier is not None else rows.get(event.entity)
    after, outcome, reason = apply(before, event)
    batch.log.append(event)
    batch.outcomes[outcome] += 1
    topic = None if event.provenance is None else event.provenance.topic
    if outcome is EnumOutcome.APPLIED and is_declared(event.kind, topic, event.cause_id):
        batch.announced.append(event)
    if outcome in _REFUSED:
        batch.refusals.append(Refusal(event, outcome, reason))
    if after is not None and after is not before:
        beat = event.kind is EnumEventKind.NODE_HEARTBEAT
        batch.changes[event.entity] = RowChange(
            row=after,
            wide=not beat or (earlier is not None and earlier.wide),
            liveness=(
                beat
                or before is None
                or before.liveness_deadline != after.liveness_deadline
                or (earlier is not None and earlier.liveness)
            ),
        )
    return after

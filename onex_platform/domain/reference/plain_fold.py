"""The fold, event by event: what the column fold on Spark must agree with, cell by cell.

`apply` folds one event onto one row, by the table and nothing else: it reads no clock, knows no
duration and asks no policy. Everything that was ever decided is in the event. Therefore folding the
log again gives the same rows.

`fold_batch` folds events in log order, and decisions right behind their causes: it is the plain
meaning of a run of the pipeline. With a decider it is the live run, without one it is the replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast
from uuid import UUID

from onex_platform.domain import machine
from onex_platform.domain.batch import Decider, Refusal, RowChange
from onex_platform.domain.decider import decide
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import is_declared
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.payloads import IntrospectionPayload, RegistrationFailedPayload
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.row_fields import LIFE_FIELDS, Changes, changed, described, failed
from onex_platform.domain.states import EnumOutcome

Rows = Mapping[EntityKey, ModelRegistrationProjection]

_REFUSED = frozenset({EnumOutcome.ILLEGAL, EnumOutcome.PARKED})


class Folded(NamedTuple):
    """What an event did: the row after it, the outcome, and why if it had no effect."""

    projection: ModelRegistrationProjection | None
    outcome: EnumOutcome
    reason: str = ""


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


def apply(projection: ModelRegistrationProjection | None, event: LogEvent) -> Folded:
    """Fold `event` onto `projection` (None: the node is unknown)."""
    if event.duplicate:
        return Folded(projection, *machine.STEP_OUTCOMES[machine.DUPLICATE])
    life = life_of(projection)
    failure = event.payload if isinstance(event.payload, RegistrationFailedPayload) else None
    verdict = machine.step(
        life,
        machine.KIND_CODES[event.kind],
        event.position,
        event.tenant,
        event.epoch,
        event.occurred_at,
        event.deadline,
        failure is not None and failure.retry_eligible,
        event,
    )
    outcome, reason = machine.STEP_OUTCOMES[verdict]
    if outcome is not EnumOutcome.APPLIED:
        return Folded(projection, outcome, f"{event.kind} {_standing(projection)}: {reason}")
    if life.state == machine.UNKNOWN:
        return Folded(None, outcome)
    return Folded(_projection_of(life, projection, event), outcome)


def life_of(projection: ModelRegistrationProjection | None) -> machine.NodeLife:
    """The part of a row that the machine works on."""
    life = machine.NodeLife()
    if projection is not None:
        life.state = machine.STATE_CODES[projection.current_state]
        life.position = projection.last_applied_sequence
        for name in LIFE_FIELDS:
            setattr(life, name, getattr(projection, name))
        life.failed_by = projection.failure_code and projection
    return life


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


def _projection_of(
    life: machine.NodeLife, before: ModelRegistrationProjection | None, event: LogEvent
) -> ModelRegistrationProjection | None:
    if before is not None and life.position == before.last_applied_sequence:
        return before  # an event that speaks to nodes, not of one
    changes: Changes = {name: getattr(life, name) for name in LIFE_FIELDS}
    changes["current_state"] = machine.STATES[life.state]
    changes["last_applied_sequence"] = life.position
    if life.changed_by is event:
        changes |= changed(event.event_id, event.provenance, event.correlation_id)
    if life.described_by is event:
        changes |= described(cast("IntrospectionPayload", event.payload), event.node_name)
    if life.failed_by is event:
        changes |= failed(cast("RegistrationFailedPayload", event.payload))
    elif life.failed_by is None:
        changes |= failed(None)
    if before is None:
        return ModelRegistrationProjection(
            entity_id=event.entity.entity_id, domain=event.entity.domain, **changes
        )
    return before.model_copy(update=changes)


def _standing(projection: ModelRegistrationProjection | None) -> str:
    return (
        "of an unknown node"
        if projection is None
        else f"in state {projection.current_state}, epoch {projection.epoch}"
    )

"""The registration state machine as data: the only place that knows its transitions.

The fold, the Spark reducer, the SQL enum, the diagram in the docs and the tests all come from
`TRANSITIONS`. A pair that is not in the table is illegal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumRegistrationState

Kind = EnumEventKind
State = EnumRegistrationState


class Life(Enum):
    """Which life of the node an event speaks of."""

    NEW = auto()
    CURRENT = auto()


class When(Enum):
    """What must be true of the event, beyond its kind, for a transition to be the right one."""

    ALWAYS = auto()
    FINAL = auto()  # a failure that may not be retried
    RETRYABLE = auto()  # a failure that may
    DEADLINE_STANDS = auto()  # the row still has the deadline that the fact names, else stale


class Effect(Enum):
    """What a transition does to the row, besides moving the state."""

    BEGIN_LIFE = auto()  # epoch, tenant; timeout markers, failure and closure of the last life go
    DESCRIBE = auto()  # type, version, capabilities, endpoints, metadata
    ARM_ACK = auto()
    ARM_LIVENESS = auto()
    BEAT = auto()  # last_heartbeat_at moves forward only
    EXTEND_LIVENESS = auto()  # liveness_deadline moves forward only
    RECORD_FAILURE = auto()
    MARK_ACK_TIMEOUT = auto()
    MARK_LIVENESS_TIMEOUT = auto()
    CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. `to` None: the state stays as it is."""

    kind: EnumEventKind
    life: Life
    sources: frozenset[EnumRegistrationState | None]  # None: the node is unknown
    to: EnumRegistrationState | None
    effects: tuple[Effect, ...]
    when: When = When.ALWAYS


def _row(
    kind: EnumEventKind,
    sources: Iterable[EnumRegistrationState | None],
    to: EnumRegistrationState | None,
    *effects: Effect,
    life: Life = Life.CURRENT,
    when: When = When.ALWAYS,
) -> Transition:
    return Transition(kind, life, frozenset(sources), to, effects, when)


_ANY = frozenset(State)
_JOINING_OR_ACTIVE = frozenset(
    {State.PENDING_REGISTRATION, State.ACCEPTED, State.AWAITING_ACK, State.ACK_RECEIVED}
    | {State.ACTIVE}
)
_INACTIVE = frozenset(state for state in State if not (state.is_terminal() or state.is_active()))

TRANSITIONS: tuple[Transition, ...] = (
    _row(
        Kind.NODE_INTROSPECTION,
        {None, *_ANY},
        State.PENDING_REGISTRATION,
        Effect.BEGIN_LIFE,
        Effect.DESCRIBE,
        life=Life.NEW,
    ),
    _row(
        Kind.NODE_INTROSPECTION,
        {State.ACK_TIMED_OUT},
        State.PENDING_REGISTRATION,
        Effect.DESCRIBE,
    ),
    _row(Kind.NODE_INTROSPECTION, _JOINING_OR_ACTIVE, None, Effect.DESCRIBE),
    _row(Kind.NODE_ACCEPTED, {State.PENDING_REGISTRATION}, State.ACCEPTED, Effect.ARM_ACK),
    _row(
        Kind.REGISTRATION_FAILED,
        {State.PENDING_REGISTRATION},
        State.REJECTED,
        Effect.RECORD_FAILURE,
        when=When.FINAL,
    ),
    _row(
        Kind.REGISTRATION_FAILED,
        {State.PENDING_REGISTRATION},
        None,
        Effect.RECORD_FAILURE,
        when=When.RETRYABLE,
    ),
    _row(Kind.ACK_REQUESTED, {State.ACCEPTED}, State.AWAITING_ACK, Effect.ARM_ACK),
    _row(Kind.NODE_ACK, {State.AWAITING_ACK}, State.ACK_RECEIVED),
    _row(Kind.NODE_REGISTERED, {State.ACK_RECEIVED}, State.ACTIVE, Effect.ARM_LIVENESS),
    _row(Kind.NODE_HEARTBEAT, {State.ACTIVE}, None, Effect.BEAT, Effect.EXTEND_LIVENESS),
    _row(Kind.NODE_HEARTBEAT, _INACTIVE, None, Effect.BEAT),
    _row(
        Kind.ACK_TIMED_OUT,
        {State.ACCEPTED, State.AWAITING_ACK},
        State.ACK_TIMED_OUT,
        Effect.MARK_ACK_TIMEOUT,
        when=When.DEADLINE_STANDS,
    ),
    _row(
        Kind.LIVENESS_EXPIRED,
        {State.ACTIVE},
        State.LIVENESS_EXPIRED,
        Effect.MARK_LIVENESS_TIMEOUT,
        when=When.DEADLINE_STANDS,
    ),
    _row(Kind.NODE_DEREGISTERED, _ANY, None, Effect.CLOSE),
    # Informs the decider; the row itself changes with the deregistration that follows.
    _row(Kind.NODE_SHUTDOWN, _ANY, None),
)

# Speak to nodes, not of one: they pass through the log and touch no row, known node or not.
INFORMATIONAL = frozenset({Kind.INTROSPECTION_REQUESTED})

_INDEX: dict[tuple[Kind, Life, State | None, When], Transition] = {
    (transition.kind, transition.life, source, transition.when): transition
    for transition in TRANSITIONS
    for source in transition.sources
}
_CONDITIONS: dict[Kind, frozenset[When]] = {
    kind: frozenset(t.when for t in TRANSITIONS if t.kind is kind) for kind in Kind
}


def find_transition(
    kind: EnumEventKind,
    life: Life,
    state: EnumRegistrationState | None,
    retry_eligible: bool | None = None,
) -> Transition | None:
    """The row for this pair, or None if the pair is illegal.

    Whether a deadline still stands is a question of the row, not of the table: the fold asks it.
    """
    conditions = _CONDITIONS[kind]
    if When.FINAL in conditions:
        when = When.RETRYABLE if retry_eligible else When.FINAL
    elif When.DEADLINE_STANDS in conditions:
        when = When.DEADLINE_STANDS
    else:
        when = When.ALWAYS
    return _INDEX.get((kind, life, state, when))

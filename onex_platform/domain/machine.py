"""The state machine at work, on plain values: the one implementation of what a transition does.

`fold.apply` steps it with the models of one event; the Spark reducer steps it with columns of
millions. It knows neither: times only need to compare (datetimes here, integers there), and `ref`
is whatever the caller wants back as the event that last described, failed or changed the node.

Kinds and states are numbered here, because an array can hold a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumOutcome, EnumRegistrationState
from onex_platform.domain.transitions import INFORMATIONAL, Effect, Life, When, find_transition

FIRST_EPOCH = 1

KINDS = tuple(EnumEventKind)
STATES = tuple(EnumRegistrationState)
UNKNOWN = len(STATES)  # the state of a node that never introspected

KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
STATE_CODES = {state: code for code, state in enumerate(STATES)}

_INTROSPECTION = KIND_CODES[EnumEventKind.NODE_INTROSPECTION]
_HEARTBEAT = KIND_CODES[EnumEventKind.NODE_HEARTBEAT]
_ACK_TIMED_OUT = KIND_CODES[EnumEventKind.ACK_TIMED_OUT]
_INFORMATIONAL = frozenset(KIND_CODES[kind] for kind in INFORMATIONAL)
_TERMINAL = frozenset(STATE_CODES[state] for state in STATES if state.is_terminal())
_AWAITS_ACK = frozenset(STATE_CODES[state] for state in STATES if state.awaits_ack())
_LIVES = frozenset(STATE_CODES[state] for state in STATES if state.requires_liveness())


class StepOutcome(NamedTuple):
    """How an event ended, and why if it had no effect."""

    outcome: EnumOutcome
    reason: str = ""


(
    APPLIED,
    DUPLICATE,
    FOREIGN,
    FOLDED,
    OLD_LIFE,
    FUTURE,
    CLOSED,
    OUTDATED,
    FORBIDDEN,
    DISARMED,
    SET_ASIDE,
) = range(11)
STEP_OUTCOMES = (
    StepOutcome(EnumOutcome.APPLIED),
    StepOutcome(EnumOutcome.DUPLICATE, "its event_id entered the log before"),
    StepOutcome(EnumOutcome.PARKED, "the node belongs to another tenant"),
    StepOutcome(EnumOutcome.STALE, "its position is folded already"),
    StepOutcome(EnumOutcome.STALE, "it belongs to an older life"),
    StepOutcome(EnumOutcome.ILLEGAL, "its epoch has not begun"),
    StepOutcome(EnumOutcome.ILLEGAL, "the node is deregistered"),
    StepOutcome(EnumOutcome.STALE, "a newer introspection was folded before"),
    StepOutcome(EnumOutcome.ILLEGAL, "the transition table does not allow it"),
    StepOutcome(EnumOutcome.STALE, "the deadline it names no longer stands"),
    StepOutcome(EnumOutcome.PARKED, "the node is set aside"),
)


class NodeLife:
    """The part of a row that transitions read and write."""

    __slots__ = (
        "ack_deadline",
        "ack_timeout_emitted_at",
        "changed_by",
        "deregistered_at",
        "described_by",
        "epoch",
        "failed_by",
        "introspected_at",
        "last_heartbeat_at",
        "last_state_change_at",
        "liveness_deadline",
        "liveness_timeout_emitted_at",
        "position",
        "registered_at",
        "state",
        "tenant",
    )

    def __init__(self) -> None:
        self.state = UNKNOWN
        self.position = -1
        self.epoch = 0
        self.tenant: Any = None
        self.introspected_at: Any = None
        self.ack_deadline: Any = None
        self.liveness_deadline: Any = None
        self.ack_timeout_emitted_at: Any = None
        self.liveness_timeout_emitted_at: Any = None
        self.registered_at: Any = None
        self.last_state_change_at: Any = None
        self.last_heartbeat_at: Any = None
        self.deregistered_at: Any = None
        # The events that last gave these parts their values, as `step` was told to call them.
        self.described_by: Any = None
        self.failed_by: Any = None
        self.changed_by: Any = None

    def is_over(self) -> bool:
        return self.deregistered_at is not None or self.state in _TERMINAL


class _Moment(NamedTuple):
    """What effects need of the event."""

    occurred_at: Any
    deadline: Any
    epoch: int | None
    tenant: Any
    ref: Any


class _Move(NamedTuple):
    """A row of the table, compiled."""

    to: int | None
    effects: tuple[Callable[[NodeLife, _Moment], None], ...]
    judges_deadline: bool


def step(
    life: NodeLife,
    kind: int,
    position: int,
    tenant: Any,
    epoch: int | None,
    occurred_at: Any,
    deadline: Any = None,
    retry_eligible: bool = False,
    ref: Any = None,
) -> int:
    """Fold one event onto `life`, in place; the index of its verdict in `STEP_OUTCOMES`.

    A life is touched only if the verdict is APPLIED. Duplicates are known by their mark in the log
    and never come here, nor do the events of a node that is set aside.
    """
    known = life.state != UNKNOWN
    if known:
        if tenant != life.tenant:
            return FOREIGN
        if position <= life.position:
            return FOLDED
    if kind in _INFORMATIONAL:
        return APPLIED
    begins = False
    if not known:
        begins = kind == _INTROSPECTION
    elif epoch is None:
        if kind == _INTROSPECTION and life.is_over():
            # Without an epoch only its time tells a comeback from an echo of the life that ended.
            if occurred_at < life.introspected_at:
                return OLD_LIFE
            begins = True
    elif epoch < life.epoch:
        return OLD_LIFE
    elif epoch > life.epoch:
        if kind != _INTROSPECTION:
            return FUTURE
        begins = True
    if known and not begins:
        if life.deregistered_at is not None:
            return CLOSED
        if kind == _INTROSPECTION and occurred_at < life.introspected_at:
            return OUTDATED
    move = _MOVES[kind][begins][life.state][retry_eligible]
    if move is None:
        return FORBIDDEN
    if move.judges_deadline:
        armed = life.ack_deadline if kind == _ACK_TIMED_OUT else life.liveness_deadline
        if armed != deadline:
            return DISARMED
    life.position = position
    if kind != _HEARTBEAT:
        life.changed_by = ref
    moment = _Moment(occurred_at, deadline, epoch, tenant, ref)
    for effect in move.effects:
        effect(life, moment)
    if move.to is not None and move.to != life.state:
        life.state = move.to
        life.last_state_change_at = occurred_at
    # A deadline stands in the row only while it is armed.
    if life.ack_deadline is not None and (
        life.deregistered_at is not None or life.state not in _AWAITS_ACK
    ):
        life.ack_deadline = None
    if life.liveness_deadline is not None and (
        life.deregistered_at is not None or life.state not in _LIVES
    ):
        life.liveness_deadline = None
    return APPLIED


def _begin_life(life: NodeLife, event: _Moment) -> None:
    if event.epoch is not None:
        life.epoch = event.epoch
    else:
        life.epoch = FIRST_EPOCH if life.state == UNKNOWN else life.epoch + 1
    life.tenant = event.tenant
    life.ack_deadline = life.ack_timeout_emitted_at = None
    life.liveness_deadline = life.liveness_timeout_emitted_at = None
    life.deregistered_at = life.failed_by = None


def _describe(life: NodeLife, event: _Moment) -> None:
    life.described_by = event.ref
    life.introspected_at = event.occurred_at


def _arm_ack(life: NodeLife, event: _Moment) -> None:
    life.ack_deadline = event.deadline
    life.ack_timeout_emitted_at = None


def _arm_liveness(life: NodeLife, event: _Moment) -> None:
    life.liveness_deadline = event.deadline
    life.liveness_timeout_emitted_at = None
    if life.registered_at is None:
        life.registered_at = event.occurred_at


def _beat(life: NodeLife, event: _Moment) -> None:
    if life.last_heartbeat_at is None or event.occurred_at > life.last_heartbeat_at:
        life.last_heartbeat_at = event.occurred_at


def _extend_liveness(life: NodeLife, event: _Moment) -> None:
    if event.deadline > life.liveness_deadline:
        life.liveness_deadline = event.deadline


def _record_failure(life: NodeLife, event: _Moment) -> None:
    life.failed_by = event.ref


def _mark_ack_timeout(life: NodeLife, event: _Moment) -> None:
    life.ack_timeout_emitted_at = event.occurred_at


def _mark_liveness_timeout(life: NodeLife, event: _Moment) -> None:
    life.liveness_timeout_emitted_at = event.occurred_at


def _close(life: NodeLife, event: _Moment) -> None:
    life.deregistered_at = event.occurred_at


_EFFECTS: dict[Effect, Callable[[NodeLife, _Moment], None]] = {
    Effect.BEGIN_LIFE: _begin_life,
    Effect.DESCRIBE: _describe,
    Effect.ARM_ACK: _arm_ack,
    Effect.ARM_LIVENESS: _arm_liveness,
    Effect.BEAT: _beat,
    Effect.EXTEND_LIVENESS: _extend_liveness,
    Effect.RECORD_FAILURE: _record_failure,
    Effect.MARK_ACK_TIMEOUT: _mark_ack_timeout,
    Effect.MARK_LIVENESS_TIMEOUT: _mark_liveness_timeout,
    Effect.CLOSE: _close,
}


def _compiled(
    kind: EnumEventKind, life: Life, state: EnumRegistrationState | None, retry_eligible: bool
) -> _Move | None:
    transition = find_transition(kind, life, state, retry_eligible)
    if transition is None:
        return None
    return _Move(
        None if transition.to is None else STATE_CODES[transition.to],
        tuple(_EFFECTS[effect] for effect in transition.effects),
        transition.when is When.DEADLINE_STANDS,
    )


# _MOVES[kind][a new life begins][state][retry_eligible]
_MOVES = tuple(
    tuple(
        tuple(
            tuple(_compiled(kind, life, state, retry_eligible) for retry_eligible in (False, True))
            for state in (*STATES, None)
        )
        for life in (Life.CURRENT, Life.NEW)
    )
    for kind in KINDS
)

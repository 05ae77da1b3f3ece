"""Node lives as scripts: what is said, how long after the step before, and where the node stands.

A script is data. The fleet plays it step by step; a node that is through with its script rests and
draws the next. Every script brings its own introspection, so each can follow any other. The state
that a step names is a promise: the fold of the played history keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.states import EnumRegistrationState

Kind = EnumEventKind
State = EnumRegistrationState


class Unit(StrEnum):
    """What a span is a multiple of, so that scripts fit every setting, speed and length."""

    ACK = auto()  # the time a node has to acknowledge
    BEAT = auto()  # the interval between two heartbeats
    LIVENESS = auto()  # the life granted by a heartbeat
    HISTORY = auto()  # the whole history


@dataclass(frozen=True, slots=True)
class Span:
    """A time drawn evenly between `low` and `high` units."""

    low: float
    high: float
    unit: Unit


class NextLife(Enum):
    """How an introspection begins another life."""

    NAMED = auto()  # with a higher epoch
    UNNAMED = auto()  # without one: the life before is over, so this must be the next


class Manner(Enum):
    """What is special about an event, where its kind does not say it."""

    PLAIN = auto()
    UPDATE = auto()  # an introspection in the middle of a life, with changed capabilities
    UNWELCOME = auto()  # an introspection with a capability that a policy can forbid
    PASSING = auto()  # a failure that may be retried


@dataclass(frozen=True, slots=True)
class Say:
    """One event. Where `state` is None the node stays where it is."""

    kind: EnumEventKind
    after: Span
    state: EnumRegistrationState | None = None
    begins: NextLife | None = None
    closes: bool = False
    manner: Manner = Manner.PLAIN


@dataclass(frozen=True, slots=True)
class Beat:
    """Heartbeats for as long as `lasts`, at least one."""

    lasts: Span


@dataclass(frozen=True, slots=True)
class Expire:
    """The node keeps silent until the deadline that stands has passed; the registry says so."""

    kind: EnumEventKind
    state: EnumRegistrationState


Step = Say | Beat | Expire


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script, how often it is drawn, and what it is about."""

    about: str
    weight: float
    steps: tuple[Step, ...]


_AT_ONCE = Span(0.001, 0.01, Unit.ACK)
_IN_TIME = Span(0.05, 0.5, Unit.ACK)
_SOON = Span(0.05, 0.5, Unit.BEAT)
_LATER = Span(0.05, 0.4, Unit.LIVENESS)  # an active node that restarts is back before it is missed
_A_WHILE = Span(0.1, 0.3, Unit.HISTORY)
_LONG = Span(0.3, 0.8, Unit.HISTORY)
_A_FEW_BEATS = Span(2, 5, Unit.BEAT)


def _introspects(begins: NextLife | None = NextLife.NAMED, manner: Manner = Manner.PLAIN) -> Say:
    return Say(Kind.NODE_INTROSPECTION, _LATER, State.PENDING_REGISTRATION, begins, manner=manner)


_ACCEPTED = (
    Say(Kind.NODE_ACCEPTED, _AT_ONCE, State.ACCEPTED),
    Say(Kind.ACK_REQUESTED, _AT_ONCE, State.AWAITING_ACK),
)
_ACKNOWLEDGED = (
    Say(Kind.NODE_ACK, _IN_TIME, State.ACK_RECEIVED),
    Say(Kind.NODE_REGISTERED, _AT_ONCE, State.ACTIVE),
)
_JOINS = (_introspects(), *_ACCEPTED, *_ACKNOWLEDGED)
_CHANGES = Say(Kind.NODE_INTROSPECTION, _SOON, manner=Manner.UPDATE)
_ACK_TIMES_OUT = Expire(Kind.ACK_TIMED_OUT, State.ACK_TIMED_OUT)
_FALLS_SILENT = Expire(Kind.LIVENESS_EXPIRED, State.LIVENESS_EXPIRED)
_LEAVES = (
    Say(Kind.NODE_SHUTDOWN, _SOON),
    Say(Kind.NODE_DEREGISTERED, _AT_ONCE, closes=True),
)
_IS_ASKED = Say(Kind.INTROSPECTION_REQUESTED, _AT_ONCE)

SCENARIOS: Mapping[str, Scenario] = {
    "steady": Scenario(
        "joins, beats, changes its capabilities, beats on",
        50,
        (*_JOINS, Beat(_LONG), _CHANGES, Beat(_LONG)),
    ),
    "graceful": Scenario(
        "joins, beats, changes its capabilities, shuts down: closed",
        14,
        (*_JOINS, Beat(_A_WHILE), _CHANGES, Beat(_A_WHILE), *_LEAVES),
    ),
    "silent": Scenario(
        "joins, beats, falls silent: liveness_expired",
        6,
        (*_JOINS, Beat(_A_WHILE), _FALLS_SILENT),
    ),
    "returns": Scenario(
        "falls silent, beats again, is asked to introspect, returns with a higher epoch",
        6,
        (
            *_JOINS,
            Beat(_A_WHILE),
            _FALLS_SILENT,
            Beat(_A_FEW_BEATS),
            _IS_ASKED,
            *_JOINS,
            Beat(_A_WHILE),
        ),
    ),
    "reopens": Scenario(
        "shuts down and comes back without naming an epoch",
        4,
        (
            *_JOINS,
            Beat(_A_WHILE),
            *_LEAVES,
            _introspects(begins=NextLife.UNNAMED),
            *_ACCEPTED,
            *_ACKNOWLEDGED,
            Beat(_A_WHILE),
        ),
    ),
    "flapping": Scenario(
        "restarts again and again before anybody misses it",
        3,
        (*_JOINS, Beat(_A_FEW_BEATS)) * 4,
    ),
    "no_ack": Scenario(
        "is accepted and never acknowledges: ack_timed_out",
        4,
        (_introspects(), *_ACCEPTED, _ACK_TIMES_OUT, Beat(_A_FEW_BEATS)),
    ),
    "late_ack": Scenario(
        "acknowledges after the time-out, in vain: ack_timed_out",
        3,
        (_introspects(), *_ACCEPTED, _ACK_TIMES_OUT, Say(Kind.NODE_ACK, _LATER)),
    ),
    "ack_retry": Scenario(
        "misses the first request, introspects again in the same life, acknowledges in time",
        4,
        (
            _introspects(),
            *_ACCEPTED,
            _ACK_TIMES_OUT,
            _introspects(begins=None),
            *_ACCEPTED,
            *_ACKNOWLEDGED,
            Beat(_A_WHILE),
        ),
    ),
    "rejected": Scenario(
        "fails once for a passing reason, then for good: rejected",
        3,
        (
            _introspects(manner=Manner.UNWELCOME),
            Say(Kind.REGISTRATION_FAILED, _AT_ONCE, manner=Manner.PASSING),
            Say(Kind.REGISTRATION_FAILED, _IN_TIME, State.REJECTED),
        ),
    ),
    "beats_first": Scenario(
        "beats before it ever introspected, is asked to, and joins",
        3,
        (Beat(_A_FEW_BEATS), _IS_ASKED, *_JOINS, Beat(_A_WHILE)),
    ),
}

"""Generated histories: what hypothesis may throw at the fold, and the runs that fold it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st

from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import Parked, RawRecord, admit, is_ledgered
from onex_platform.domain.order import LIFECYCLE_RANK
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import fold_batch
from onex_platform_tests.support.events import DURATIONS, RULES, at, record

Kind = EnumEventKind

READ_AT = at(1e9)
NODES = ("00000000-0000-4000-8000-00000000000a", "adapter-1")
# Single random kinds rarely get a node beyond the first states: whole passages of a life are drawn
# as well, and cut across each other.
JOIN = (Kind.NODE_INTROSPECTION, Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED)
PASSAGES = (
    JOIN,
    (*JOIN, Kind.NODE_ACK, Kind.NODE_REGISTERED, Kind.NODE_HEARTBEAT),
    (*JOIN, Kind.ACK_TIMED_OUT, Kind.NODE_INTROSPECTION),
    (*JOIN, Kind.NODE_ACK, Kind.NODE_REGISTERED, Kind.LIVENESS_EXPIRED, Kind.NODE_HEARTBEAT),
    (Kind.NODE_INTROSPECTION, Kind.REGISTRATION_FAILED),
    (Kind.NODE_HEARTBEAT, Kind.NODE_HEARTBEAT),
    (Kind.NODE_SHUTDOWN, Kind.NODE_DEREGISTERED),
    *((kind,) for kind in LIFECYCLE_RANK),
)
_JUDGED = {
    Kind.ACK_TIMED_OUT: (Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED),
    Kind.LIVENESS_EXPIRED: (Kind.NODE_REGISTERED, Kind.NODE_HEARTBEAT),
}


@st.composite
def records(
    draw: st.DrawFn,
    max_passages: int = 10,
    min_passages: int = 1,
    nodes: Sequence[str] = NODES,
) -> list[RawRecord]:
    """Records of some nodes on three partitions, in arrival order, append times never falling."""
    history: list[RawRecord] = []
    granted: dict[Kind, datetime] = {}
    moment = 0
    passages = st.lists(st.sampled_from(PASSAGES), min_size=min_passages, max_size=max_passages)
    for passage in draw(passages):
        node_id = draw(st.sampled_from(nodes))
        epoch = draw(st.sampled_from([None, None, 1, 1, 2, 3]))
        headers = draw(st.sampled_from([{}, {}, {}, {}, {"x-tenant": b"other"}]))
        for kind in passage:
            moment += draw(st.sampled_from([0, 0, 1, 7, 31, 95]))
            fields: dict[str, object] = {"epoch": epoch}
            if kind is Kind.NODE_INTROSPECTION:
                fields["capabilities"] = {"read": draw(st.booleans())}
            if kind is Kind.REGISTRATION_FAILED:
                fields["retry_eligible"] = draw(st.booleans())
            if kind in _JUDGED:
                deadlines = [granted[k] for k in _JUDGED[kind] if k in granted] or [at(0)]
                fields["deadline"] = draw(st.sampled_from(deadlines)).isoformat()
            if (grants := DURATIONS.granted_by(kind, at(moment))) is not None:
                granted[kind] = grants
            history.append(
                record(
                    kind,
                    moment,
                    partition=draw(st.integers(0, 2)),
                    offset=len(history),
                    node_id=node_id,
                    headers=headers,
                    **fields,
                )
            )
    return history


@st.composite
def with_repeats(draw: st.DrawFn, history: list[RawRecord]) -> list[RawRecord]:
    """The same history with some records delivered again on a legacy twin's topic.

    A heartbeat is repeated at its own time: sent again later, it would be a new sign of life.
    """
    repeated = list(history)
    last = max(r.timestamp for r in history if r.timestamp is not None)
    for index in draw(st.lists(st.integers(0, len(history) - 1), max_size=5)):
        beats = history[index].kind is Kind.NODE_HEARTBEAT
        moments = [history[index].timestamp] if beats else [history[index].timestamp, last]
        repeated.append(
            replace(
                history[index],
                topic="twin",
                legacy=True,
                offset=len(repeated),
                timestamp=draw(st.sampled_from(moments)),
            )
        )
    return repeated


class Run:
    """A live run in memory: cuts, ledger, positions, fold, and the log that it leaves."""

    def __init__(self, policy: RegistrationPolicy | None = None) -> None:
        self.rows: dict[EntityKey, ModelRegistrationProjection] = {}
        self.log: list[LogEvent] = []
        self.parked: list[Parked] = []
        self.outcomes: dict[str, int] = {}
        self._policy = policy
        self._ledger: set[UUID] = set()
        self._closed_before = at(-1)

    def cut(
        self, batch: Iterable[RawRecord], now: datetime, instant: datetime | None = None
    ) -> None:
        """Take a cut: the records before `instant`, decided at `now`."""
        instant = instant or max(READ_AT, self._closed_before + timedelta(seconds=1))
        admitted = [admit(item, RULES, READ_AT) for item in batch]
        self.parked += [item for item in admitted if isinstance(item, Parked)]
        entering = [item for item in admitted if isinstance(item, LogEvent)]
        events = number(entering, self._closed_before, instant)
        decider = (
            None
            if self._policy is None
            else Decider(policy=self._policy, now=now, known_facts=self._ledger)
        )
        result = fold_batch(self.rows, mark_duplicates(events, self._ledger), decider)
        self.rows |= {key: change.row for key, change in result.changes.items()}
        self.log += result.log
        self._ledger |= {e.event_id for e in result.log if is_ledgered(e.kind)}
        self._closed_before = instant
        for outcome, count in result.outcomes.items():
            self.outcomes[outcome.value] = self.outcomes.get(outcome.value, 0) + count


def run_in_cuts(
    history: Sequence[RawRecord],
    instants: Iterable[float],
    policy: RegistrationPolicy | None = None,
    now: datetime | None = None,
) -> Run:
    """Fold `history` in consistent cuts: each takes exactly the records before its instant."""
    run = Run(policy)
    rest = list(history)
    for instant in [*sorted(instants), 1e9]:
        before = [
            item for item in rest if item.timestamp is not None and item.timestamp < at(instant)
        ]
        rest = [item for item in rest if item not in before]
        run.cut(before, now or READ_AT, at(instant))
    return run

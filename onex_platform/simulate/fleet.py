"""The fleet at play: one heap of what is due next, one record at a time, in the order of time.

Nothing here reads a clock or makes an id of its own: everything is drawn from one seeded generator,
in the order in which the records come. Memory holds the nodes and the few records that are held up
on their way, however long the history is.

Files take the fleet as it comes (`for record in fleet`). A live player waits until `next_at_ms`,
calls `play_next`, and confirms each record with the time that the broker gave it; a node says
nothing further before that, so cause and effect keep their order in the broker's time as well.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from datetime import timedelta
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate, count
from random import Random

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import is_ledgered
from onex_platform.simulate.event_payloads import REGISTRYS
from onex_platform.simulate.nodes import Node, draw_traits
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.profiles import EnumDisturbance
from onex_platform.simulate.records import Announcement, Record, Summary
from onex_platform.simulate.routes import Routes
from onex_platform.simulate.scenarios import (
    SCENARIOS,
    Beat,
    Expire,
    Manner,
    NextLife,
    Say,
    Span,
    Unit,
)
from onex_platform.simulate.scribe import Scribe
from onex_platform.simulate.wire import uuid_text

Kind = EnumEventKind
Trouble = EnumDisturbance

_ARRIVAL = Span(0, 0.2, Unit.HISTORY)
_REST = Span(0.1, 0.6, Unit.HISTORY)
_RESTART = Span(0.05, 0.2, Unit.LIVENESS)
_FIRST_BEAT = Span(0.05, 0.5, Unit.BEAT)
_NEXT_BEAT = Span(0.9, 1.1, Unit.BEAT)
_SCAN = Span(0.01, 0.1, Unit.LIVENESS)  # from a passed deadline to the registry's word
_ASIDE = Span(0, 0.01, Unit.BEAT)  # what comes along with a heartbeat
_AWAY = {
    Trouble.DUPLICATE: Span(0.1, 10, Unit.LIVENESS),
    Trouble.LATE: Span(1, 10, Unit.LIVENESS),
    Trouble.OUT_OF_ORDER: Span(1.1, 1.9, Unit.BEAT),
    Trouble.TWIN: Span(0, 0.001, Unit.BEAT),
}
_NOT_THE_NODES = (Trouble.FOREIGN_TENANT, Trouble.MALFORMED)
# Two steps of one node never share a millisecond, so that their order needs no tie-break.
_SHORTEST_MS = 5
_ASK_AGAIN_MS = 10
_MILLISECOND = timedelta(milliseconds=1)


class Fleet:
    """The records of one history, and the account of those played so far."""

    def __init__(self, plan: FleetPlan, routes: Routes, *, live: bool = False) -> None:
        self.plan = plan
        self._summary = Summary()
        self._live = live
        self._random = Random(plan.seed)  # noqa: S311 - repeatable on purpose
        self._scribe = Scribe(plan, routes, self._random)
        self._units_ms = plan.units_ms()
        self._windows_ms = {
            kind: window // _MILLISECOND
            for kind in Kind
            if (window := plan.windows.window_of(kind)) is not None
        }
        self._end_ms = plan.end_ms
        self._left = plan.max_events
        weights = {name: weight for name, weight in plan.profile.weights.items() if weight}
        self._scenarios, self._scenario_odds = list(weights), list(accumulate(weights.values()))
        troubles = plan.profile.rates.beat_troubles()
        self._troubles, self._trouble_odds = list(troubles), list(accumulate(troubles.values()))
        self._nodes = [Node(draw_traits(n, plan, self._random)) for n in range(plan.nodes)]
        self._tiebreaker = count()  # for equal times, so that nodes are never compared
        self._due: list[tuple[int, int, Node | Record]] = []
        for node in self._nodes:
            self._summary.traits.update(node.traits.odd())
            self._begin_script(node)
            self._renew(node)
            arrives_ms = plan.start_ms + self._draw(_ARRIVAL)
            self._due.append((self._approach(node, arrives_ms), next(self._tiebreaker), node))
        heapify(self._due)

    @property
    def next_at_ms(self) -> int | None:
        """When something is due next; None once the history is over."""
        time_ms = self._due[0][0]
        return None if time_ms >= self._end_ms or self._left == 0 else time_ms

    @property
    def played(self) -> int:
        """How many records were played."""
        return self._summary.records

    @property
    def progress(self) -> float:
        """The share of the history that is over, by time or by events, whichever ends it first."""
        span_ms = self._end_ms - self.plan.start_ms
        by_time = (self._due[0][0] - self.plan.start_ms) / span_ms
        by_events = self.played / self.plan.max_events if self.plan.max_events else 0.0
        return min(1.0, max(by_time, by_events))

    def __iter__(self) -> Iterator[Record]:
        while self.next_at_ms is not None:
            record = self.play_next()
            if record is not None:
                yield record

    def play_next(self) -> Record | None:
        """Do what is due next; None if that puts no record on a topic."""
        time_ms, _, due = self._due[0]
        if isinstance(due, Record):
            heappop(self._due)
            return self._played(due)
        record, next_ms = self._act(due, time_ms)
        heapreplace(self._due, (next_ms, next(self._tiebreaker), due))
        return record

    def confirm(self, record: Record, appended_ms: int) -> None:
        """Tell a live fleet when the broker appended a record that it played."""
        node = self._nodes[record.node]
        node.unconfirmed -= 1
        self._grant(node, record, appended_ms)

    def announcements(self) -> Iterator[Announcement]:
        """Where each node that introspected stands after all that was played."""
        for node in self._nodes:
            if node.state is not None:
                yield Announcement(
                    tenant=node.traits.tenant,
                    node_id=node.traits.registry_voice.node_id,
                    scenario=node.scenario,
                    state=node.state,
                    closed=node.closed,
                )

    def summary(self) -> Summary:
        """The account of all that was played."""
        self._summary.states.clear()
        self._summary.states.update(
            "closed" if node.closed else node.state.value for node in self.announcements()
        )
        return self._summary

    def _draw(self, span: Span) -> int:
        """The span's length in milliseconds, drawn anew."""
        units = span.low + (span.high - span.low) * self._random.random()
        return max(_SHORTEST_MS, int(units * self._units_ms[span.unit]))

    def _act(self, node: Node, time_ms: int) -> tuple[Record | None, int]:
        """The node's next act: what it puts on a topic now, and when it is due again."""
        if node.unconfirmed:
            return None, time_ms + _ASK_AGAIN_MS
        step = node.steps[node.step]
        if isinstance(step, Beat):
            record = self._beat(node, time_ms)
            next_ms = time_ms + self._draw(_NEXT_BEAT)
            over = next_ms >= node.beats_until_ms
            return record, self._advance(node, time_ms) if over else next_ms
        if isinstance(step, Expire) and time_ms <= self._expiry_ms(node):
            return None, self._expiry_ms(node) + self._draw(_SCAN)
        record = self._say(node, step, time_ms)
        return record, self._advance(node, time_ms)

    def _advance(self, node: Node, time_ms: int) -> int:
        """Turn to the node's next step, or to its next script; when that is due."""
        node.step += 1
        if node.step == len(node.steps):
            time_ms += self._draw(_RESTART if node.is_active() else _REST)
            self._begin_script(node)
        return self._approach(node, time_ms)

    def _approach(self, node: Node, time_ms: int) -> int:
        """When the node's step is due, now that the one before is over."""
        step = node.steps[node.step]
        if isinstance(step, Say):
            return time_ms + self._draw(step.after)
        if isinstance(step, Expire):
            return max(time_ms, self._expiry_ms(node)) + self._draw(_SCAN)
        node.beats_until_ms = time_ms + self._draw(step.lasts)
        return time_ms + self._draw(_FIRST_BEAT)

    def _begin_script(self, node: Node) -> None:
        roll = self._random.random() * self._scenario_odds[-1]
        node.scenario = self._scenarios[bisect(self._scenario_odds, roll)]
        node.steps = SCENARIOS[node.scenario].steps
        node.step = 0
        self._summary.scripts[node.scenario] += 1

    def _say(self, node: Node, step: Say | Expire, time_ms: int) -> Record | None:
        manner = Manner.PLAIN
        if isinstance(step, Say):
            manner = step.manner
            self._live_on(node, step, time_ms)
        node.state = step.state or node.state
        record = self._scribe.event(node, step.kind, time_ms, manner)
        if step.kind in REGISTRYS and not self.plan.registry:
            self._grant(node, record, time_ms)
            return None
        rates = self.plan.profile.rates
        if manner is Manner.UPDATE and node.names_epoch and self._random.random() < rates.late:
            self._hold_up(record, Trouble.LATE)
            return None
        if self._random.random() < rates.duplicate:
            self._hold_up(record, Trouble.DUPLICATE)
        return self._spoken(node, record)

    def _live_on(self, node: Node, step: Say, time_ms: int) -> None:
        if step.begins is not None:
            node.epoch += 1
            node.names_epoch = step.begins is NextLife.NAMED
            node.born_ms = time_ms
            node.closed = False
            self._renew(node)
        if step.manner is Manner.UPDATE:
            node.level += 1
            node.beat_form = self._scribe.beat_form(node)
        node.closed = node.closed or step.closes

    def _renew(self, node: Node) -> None:
        node.correlation_id = uuid_text(self._random.getrandbits(128))
        node.beat_form = self._scribe.beat_form(node)

    def _beat(self, node: Node, time_ms: int) -> Record | None:
        record = self._scribe.heartbeat(node, time_ms)
        place = bisect(self._trouble_odds, self._random.random())
        if place == len(self._troubles):
            node.held_up = False
            return self._spoken(node, record)
        trouble = self._troubles[place]
        if trouble in (Trouble.LATE, Trouble.OUT_OF_ORDER) and not node.held_up:
            node.held_up = True
            self._hold_up(record, trouble)
            return None
        node.held_up = False
        self._disturb(node, record, trouble)
        return self._spoken(node, record)

    def _disturb(self, node: Node, record: Record, trouble: EnumDisturbance) -> None:
        """Send something strange along with a heartbeat."""
        if trouble is Trouble.DUPLICATE:
            self._hold_up(record, trouble)
            return
        write = {
            Trouble.ECHO: self._scribe.echo,
            Trouble.FOREIGN_TENANT: self._scribe.foreign_claim,
            Trouble.MALFORMED: self._scribe.malformed,
        }.get(trouble)
        companion = write(node, record.time_ms) if write else None
        if companion is not None:
            self._send_later(companion, _ASIDE)

    def _spoken(self, node: Node, record: Record) -> Record:
        if node.traits.twin and (twin := self._scribe.twin(record)):
            self._send_later(twin, _AWAY[Trouble.TWIN])
        return self._played(record)

    def _hold_up(self, record: Record, trouble: EnumDisturbance) -> None:
        self._send_later(record._replace(disturbance=trouble), _AWAY[trouble])

    def _send_later(self, record: Record, span: Span) -> None:
        time_ms = record.time_ms + self._draw(span)
        heappush(self._due, (time_ms, next(self._tiebreaker), record._replace(time_ms=time_ms)))

    def _played(self, record: Record) -> Record:
        """Account for a record that goes out now."""
        self._summary.counts[
            record.topic, record.kind, record.scenario, record.disturbance, record.malformed
        ] += 1
        if self._left is not None:
            self._left -= 1
        node = self._nodes[record.node]
        if self._live:
            node.unconfirmed += 1
        else:
            self._grant(node, record, record.time_ms)
        return record

    def _expiry_ms(self, node: Node) -> int:
        """When the deadline that stands has passed, at the speed of this history."""
        return node.granted_ms + int(node.window_ms / self.plan.speed)

    def _grant(self, node: Node, record: Record, time_ms: int) -> None:
        """Move the node's deadline as the platform will, once it reads the record."""
        window_ms = self._windows_ms.get(record.kind)
        if window_ms is None:
            return
        if is_ledgered(record.kind):
            moves = record.disturbance is None
        else:
            moves = (
                record.disturbance not in _NOT_THE_NODES
                and node.is_active()
                and record.epoch in (None, node.epoch)
                and time_ms + window_ms > node.deadline_ms
            )
        if moves:
            node.granted_ms, node.window_ms = time_ms, window_ms

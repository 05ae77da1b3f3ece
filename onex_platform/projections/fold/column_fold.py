"""The fold over columns: what the Spark reducer does with one bucket of the log.

Runs of heartbeats collapse (`event_runs.py`), and nodes to which the same happens are decided
together (`alike.py`); everything else goes through the domain's state machine, one short step per
event, and only the event that described a node last is parsed. Work is linear in
the events, also for a node that has them all; memory is that of the bucket's nodes and one chunk,
however long the history.

Whoever raises on the way is noted in `faults` and the fold goes on. What it came to is no good
then: it is made again without them (`containment.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from onex_platform.domain import machine
from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import decide
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import DECLARED, is_declared
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumOutcome
from onex_platform.ingest.event_schema import to_event
from onex_platform.projections.fold.alike import Group, groups_of
from onex_platform.projections.fold.bucket_rows import BucketRows
from onex_platform.projections.fold.containment import culprits_of, fault_of
from onex_platform.projections.fold.event_runs import (
    NO_EPOCH,
    Chunk,
    Integers,
    leave_out,
    only,
)
from onex_platform.projections.fold.node_state import (
    DESCRIPTION,
    FAILURE,
    KEPT,
    ORIGIN,
    Node,
    fold_fact,
    row_of,
)
from onex_platform.projections.write.outbox import fact_table

Kind = EnumEventKind

_REFUSED = frozenset(
    code
    for code, verdict in enumerate(machine.STEP_OUTCOMES)
    if verdict.outcome in (EnumOutcome.ILLEGAL, EnumOutcome.PARKED)
)
_HEARTBEAT = machine.KIND_CODES[Kind.NODE_HEARTBEAT]
_DECLARED = frozenset(machine.KIND_CODES[kind] for kind in DECLARED)
_CAUSES = frozenset(
    machine.KIND_CODES[kind]
    for kind in (Kind.NODE_INTROSPECTION, Kind.NODE_ACK, Kind.NODE_SHUTDOWN)
)


@dataclass(frozen=True, slots=True)
class Refused:
    """Events without effect, for the audit; a run of heartbeats is one entry with its count, and so
    is all that a node sends that is set aside: its state is not looked at."""

    event: dict[str, Any]
    state: int | None
    verdict: int
    times: int


class BucketFold(BucketRows):
    """Folds the events of one bucket, chunk after chunk in log order.

    `rows` are the bucket's current rows, as far as the events may touch them; more may come with
    `meet` or `meet_columns`, before their first events. With a decider, what it decides is folded
    right behind its cause and collected for `fact_table`. A live run also collects what was
    refused, and which declared facts took effect. Of nodes that are `excluded` the events
    are counted, and nothing else; they have no rows here.
    """

    def __init__(
        self,
        domain: str,
        rows: Iterable[ModelRegistrationProjection] = (),
        decider: Decider | None = None,
        *,
        live: bool = False,
        excluded: Collection[bytes] = frozenset(),
    ) -> None:
        super().__init__(domain, excluded)
        # Of the excluded that had events: the first one, and how many.
        self.aside: dict[bytes, Refused] = {}
        self.announced: list[LogEvent] = []
        self.refused: list[Refused] = []
        self._decider = decider
        self._live = live
        self.meet(rows)
        self._facts: list[LogEvent] = []
        self._emitted: set[UUID] = set()
        self._verdicts = [0] * len(machine.STEP_OUTCOMES)

    @property
    def outcomes(self) -> Counter[EnumOutcome]:
        counts: Counter[EnumOutcome] = Counter()
        for verdict, count in zip(machine.STEP_OUTCOMES, self._verdicts, strict=True):
            if count:
                counts[verdict.outcome] += count
        return counts

    @property
    def set_aside(self) -> int:
        """How many of the parked events belong to nodes that are excluded."""
        return self._verdicts[machine.SET_ASIDE]

    @property
    def size(self) -> int:
        """How many nodes there are, the excluded that had events among them."""
        return len(self.nodes) + len(self.grouped) + len(self.aside)

    def feed(self, changes: pa.Table, beats: pa.Table) -> None:
        """Fold a chunk: the events that may change a state, and the heartbeats among them."""
        if self.excluded:
            left = leave_out(changes, beats, self.excluded)
            changes, beats = left.changes, left.beats
            self._verdicts[machine.DUPLICATE] += left.duplicates
            self._count(left.firsts)
        try:
            self._feed(changes, beats)
        except Exception as error:
            nodes = set(changes["entity_id"].to_pylist()) | set(beats["entity_id"].to_pylist())
            found = culprits_of(
                error, sorted(nodes), lambda some: self._try(*only(changes, beats, some), some)
            )
            for entity_id, theirs in found.items():
                self.faults.setdefault(entity_id, fault_of(theirs))

    def fact_table(self) -> pa.Table:
        """All facts as columns."""
        by_node: dict[bytes, list[LogEvent]] = {}
        for fact in self._facts:
            by_node.setdefault(fact.entity.entity_id.bytes, []).append(fact)
        one_by_one = self.tabled(
            by_node, lambda some: fact_table(chain.from_iterable(some.values()))
        )
        return pa.concat_tables([one_by_one, *(group.facts for group in self.groups)])

    def _count(self, firsts: list[tuple[dict[str, Any], int]]) -> None:
        """Count events of nodes that are excluded; chunks come in the order of the log."""
        for first, times in firsts:
            self._verdicts[machine.SET_ASIDE] += times
            known = self.aside.get(first["entity_id"])
            if known is not None:
                first, times = known.event, known.times + times
            self.aside[first["entity_id"]] = Refused(first, None, machine.SET_ASIDE, times)

    def _feed(self, changes: pa.Table, beats: pa.Table) -> Chunk:
        interval = None if self._decider is None else self._decider.policy.request_interval
        chunk = Chunk(changes, beats, interval)
        self._verdicts[machine.DUPLICATE] += chunk.duplicates
        groups = self._alike(chunk)
        done = {node for group in groups for node in group.nodes}
        self.bring_in([node for node in chunk.entity_ids if node not in done])
        for group in groups:
            self.groups.append(group)
            self.grouped |= dict.fromkeys(group.nodes, group)
            for verdict in group.verdicts:
                self._verdicts[verdict] += len(group.nodes)
        sources = [source for group in groups for source in group.sources]
        self._keep_texts(chunk, self._walk(chunk, np.array(sources, np.int64)))
        return chunk

    def _alike(self, chunk: Chunk) -> list[Group]:
        """What becomes of nodes that are met here first, have one event, and are like others."""
        if self._decider is None:
            return []
        known = self.nodes.keys() | self.grouped.keys()
        lone = chunk.lone_changes(_CAUSES, known)
        return groups_of(chunk, lone, self.held, self._decider, self.domain)

    def _try(self, changes: pa.Table, beats: pa.Table, nodes: Sequence[bytes]) -> None:
        """Fold events of some nodes apart from the others; raises if that can't be done."""
        met = (self.nodes.get(entity_id) for entity_id in nodes)
        rows = [node.base for node in met if node is not None and node.base is not None]
        trial = BucketFold(self.domain, rows, self._decider, live=self._live)
        trial._feed(changes, beats).change_rows()

    def _walk(self, chunk: Chunk, done: Integers) -> list[Node]:
        touched: list[Node] = []
        refused: list[tuple[int, int, int, int]] = []
        declared: list[int] = []
        verdicts, tenants, nodes = self._verdicts, chunk.tenants, self.nodes
        entity, node, entity_id, source = -1, Node(), b"", 0
        steps = chunk.steps(done)
        while True:
            try:
                # Outlives what a step raises: the walk goes on behind it, at no cost to the others.
                for step in steps:
                    (
                        code,
                        kind,
                        position,
                        tenant,
                        epoch,
                        occurred_at,
                        deadline,
                        retry,
                        times,
                        source,
                    ) = step
                    if code != entity:
                        entity, entity_id = code, chunk.entity_ids[code]
                        node = nodes.get(entity_id) or nodes.setdefault(entity_id, Node())
                        touched.append(node)
                    verdict = machine.step(
                        node.life,
                        kind,
                        position,
                        tenants[tenant],
                        None if epoch == NO_EPOCH else epoch,
                        occurred_at,
                        deadline,
                        bool(retry),
                        source,
                    )
                    verdicts[verdict] += times
                    if verdict == machine.APPLIED:
                        if kind == _HEARTBEAT:
                            node.beaten = True
                        elif node.life.position == position:
                            node.wide = True
                        if self._live and kind in _DECLARED:
                            declared.append(source)
                    elif self._live and verdict in _REFUSED:
                        refused.append((source, node.life.state, verdict, times))
                    if self._decider is not None and _may_decide(node.life, kind, verdict):
                        self._decide(entity_id, node, chunk, source)
                break
            except Exception as error:
                self.blame(entity_id, error, chunk, source)
        for row in chunk.rows(declared):
            self._announce(row)
        rows = chunk.rows([source for source, *_ in refused])
        self.refused += [Refused(row, *how) for row, (_, *how) in zip(rows, refused, strict=True)]
        return touched

    def _announce(self, row: dict[str, Any]) -> None:
        if not is_declared(Kind(row["kind"]), row["topic"], row["cause_id"]):
            return
        try:
            self.announced.append(to_event(row, self.domain))
        except Exception as error:
            self.blame(row["entity_id"], error)

    def _decide(self, entity_id: bytes, node: Node, chunk: Chunk, source: int) -> None:
        decider = cast("Decider", self._decider)
        self._keep_texts(chunk, [node])
        event = to_event(chunk.row(source), self.domain)
        row = None
        if node.life.state != machine.UNKNOWN:
            row = row_of(self.domain, entity_id, node)
        for fact in decide(row, event, decider.policy, decider.now):
            if fact.event_id in self._emitted or fact.event_id in decider.known_facts:
                continue
            self._emitted.add(fact.event_id)
            self._facts.append(fact)
            self._verdicts[fold_fact(node, fact)] += 1

    def _keep_texts(self, chunk: Chunk, nodes: list[Node]) -> None:
        """Take from the chunk what its events gave to these nodes, before the chunk is dropped."""
        for node, values in _news(chunk, nodes, "described_by", DESCRIPTION):
            node.description = values
        for node, values in _news(chunk, nodes, "failed_by", FAILURE):
            node.failure = values
        for node, values in _news(chunk, nodes, "changed_by", ORIGIN):
            node.origin = values


def _may_decide(life: machine.NodeLife, kind: int, verdict: int) -> bool:
    """Whether the decider could have an answer; asking it costs a row and an event."""
    if kind == _HEARTBEAT:
        over = life.state == machine.UNKNOWN or life.is_over()
        return over and verdict != machine.FOREIGN
    return verdict == machine.APPLIED and kind in _CAUSES


def _news(
    chunk: Chunk, nodes: list[Node], name: str, columns: tuple[str, ...]
) -> Iterator[tuple[Node, tuple[Any, ...]]]:
    """The nodes that an event of this chunk gave new values, with the values."""
    new = [node for node in nodes if isinstance(getattr(node.life, name), int)]
    sources = [getattr(node.life, name) for node in new]
    for node, values in zip(new, chunk.values(sources, columns), strict=True):
        setattr(node.life, name, KEPT)
        yield node, values

"""The nodes of a bucket while it is folded: met as rows, and rows again in the end.

A row that is met as columns stays one until the walk asks for its node; of nodes that are folded
together there are columns only. A node whose row can't be read or made is noted in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from onex_platform.domain import machine
from onex_platform.domain.batch import RowChange
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.projections.fold.alike import Group
from onex_platform.projections.fold.containment import Fault, culprits_of, fault_of, is_of_a_node
from onex_platform.projections.fold.event_runs import Chunk, ChunkError
from onex_platform.projections.fold.node_state import (
    Node,
    columns_of,
    liveness_of,
    nodes_of,
    row_of,
)
from onex_platform.projections.fold.row_columns import (
    LIVENESS_SCHEMA,
    STATE_SCHEMA,
    of_nodes,
    to_rows,
    to_table,
)
from onex_platform.projections.write.upsert import ChangedRows

T = TypeVar("T")


class BucketRows:
    """The nodes of one bucket, but for those that are excluded."""

    def __init__(self, domain: str, excluded: Collection[bytes]) -> None:
        self.domain = domain
        self.excluded = frozenset(excluded)
        self.faults: dict[bytes, Fault] = {}
        self.nodes: dict[bytes, Node] = {}
        # What was met as columns, and not looked at yet.
        self.held = STATE_SCHEMA.empty_table()
        # What became of nodes that are alike, and which of them had no events since.
        self.groups: list[Group] = []
        self.grouped: dict[bytes, Group] = {}

    def strangers(self, entity_ids: Iterable[bytes]) -> set[bytes]:
        """Of nodes, those that the fold has not met and will have to do with."""
        return set(entity_ids) - self.nodes.keys() - self.grouped.keys() - self.excluded

    def meet(self, rows: Iterable[ModelRegistrationProjection]) -> None:
        """Take in the rows of nodes that the fold has not met."""
        nodes = {row.entity_id.bytes: row for row in rows}
        self.nodes |= {key: Node(row) for key, row in nodes.items() if key not in self.excluded}

    def meet_columns(self, rows: pa.Table) -> None:
        """Take in the rows of nodes that the fold has not met, and that the next chunk is about."""
        self.held = rows

    def blame(
        self, entity_id: bytes, error: Exception, chunk: Chunk | None = None, source: int = 0
    ) -> None:
        """Note that a node raised, at this event if one is given; raises what is no node's fault,
        or what may be another's."""
        if isinstance(error, ChunkError) or not is_of_a_node(error):
            raise error
        if entity_id in self.faults:
            return
        event = {} if chunk is None else chunk.row(source)
        self.faults[entity_id] = fault_of(error, event.get("event_id"), event.get("kind"))

    def changes(self) -> Iterator[RowChange]:
        """The rows that the chunks changed."""
        for entity_id, node in self.nodes.items():
            if node.is_changed and (row := self._contained(entity_id, node)) is not None:
                yield RowChange(row=row, wide=node.wide, liveness=node.has_moved_liveness)
        for group in self.groups:
            for row in to_rows(self._still_in(group)):
                yield RowChange(row=row, wide=True, liveness=group.has_moved_liveness)

    def changed(self) -> ChangedRows:
        """The rows that the chunks changed, as columns."""
        wide = {entity_id: node for entity_id, node in self.nodes.items() if node.wide}
        moved = {
            entity_id: node
            for entity_id, node in self.nodes.items()
            if node.is_changed and node.has_moved_liveness
        }
        narrow = [
            self._still_in(group).select(LIVENESS_SCHEMA.names)
            for group in self.groups
            if group.has_moved_liveness
        ]
        return ChangedRows(
            pa.concat_tables([*self._tables(wide), *map(self._still_in, self.groups)]),
            pa.concat_tables([liveness_of(self.domain, moved), *narrow]),
        )

    def rows(self) -> Iterator[ModelRegistrationProjection]:
        """Every row of the bucket as it stands after the chunks, changed or not."""
        for entity_id, node in self.nodes.items():
            if node.life.state != machine.UNKNOWN:
                row = self._contained(entity_id, node)
                if row is not None:
                    yield row
        for group in self.groups:
            yield from to_rows(self._still_in(group))

    def table(self) -> pa.Table:
        """`rows` as columns, sorted by node; those of new nodes without a model for each."""
        known = {
            entity_id: node
            for entity_id, node in self.nodes.items()
            if not node.is_new or node.life.state != machine.UNKNOWN
        }
        grouped = map(self._still_in, self.groups)
        return pa.concat_tables([*self._tables(known), *grouped]).sort_by("entity_id")

    def _tables(self, nodes: dict[bytes, Node]) -> list[pa.Table]:
        held: dict[bytes, Node] = {}
        new: dict[bytes, Node] = {}
        for entity_id, node in nodes.items():
            (new if node.is_new else held)[entity_id] = node
        return [
            self.tabled(held, lambda some: to_table(self._row(*item) for item in some.items())),
            self.tabled(new, lambda some: columns_of(self.domain, some)),
        ]

    def tabled(self, nodes: dict[bytes, T], make: Callable[[dict[bytes, T]], pa.Table]) -> pa.Table:
        try:
            return make(nodes)
        except Exception as error:

            def attempt(some: Sequence[bytes]) -> pa.Table:
                return make({entity_id: nodes[entity_id] for entity_id in some})

            found = culprits_of(error, list(nodes), attempt)
            self.faults |= {entity_id: fault_of(theirs) for entity_id, theirs in found.items()}
            return attempt([entity_id for entity_id in nodes if entity_id not in found])

    def _contained(self, entity_id: bytes, node: Node) -> ModelRegistrationProjection | None:
        try:
            return self._row(entity_id, node)
        except Exception as error:
            self.blame(entity_id, error)
            return None

    def _row(self, entity_id: bytes, node: Node) -> ModelRegistrationProjection:
        base = None if node.is_changed else node.base
        return base or row_of(self.domain, entity_id, node)

    def bring_in(self, nodes: Collection[bytes]) -> None:
        """Let the walk find these nodes, if their rows are columns yet."""
        self.nodes |= nodes_of(of_nodes(self.held, nodes))
        self.held = STATE_SCHEMA.empty_table()
        again = [node for node in nodes if node in self.grouped]
        groups = {id(self.grouped[node]): self.grouped[node] for node in again}
        for group in groups.values():
            for entity_id, node in nodes_of(of_nodes(group.rows, again)).items():
                node.wide, node.beaten = True, group.has_moved_liveness
                self.nodes[entity_id] = node
        for entity_id in again:
            del self.grouped[entity_id]

    def _still_in(self, group: Group) -> pa.Table:
        """The rows of a group's nodes that had no events since."""
        there = [node for node in group.nodes if node in self.grouped]
        return group.rows if len(there) == len(group.nodes) else of_nodes(group.rows, there)

"""How far each input partition is read, moved by compare-and-swap in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from uuid import UUID

from onex_platform.engines.postgres.database import Cursor


@dataclass(frozen=True, slots=True, order=True)
class CursorMove:
    """An input partition, the offset that we believe is next, and the one that shall be.

    `expected` None: nothing of this partition was read before. `topic_id` None: not known.
    """

    topic: str
    partition: int
    expected: int | None
    next_offset: int
    topic_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.next_offset < (self.expected or 0):
            raise ValueError(f"{self} moves backwards")


@dataclass(frozen=True, slots=True, order=True)
class CursorRestart:
    """An input partition whose offsets began anew: the offset that we believed to be next, and
    the one that it begins with. `topic_id` None: the topic is still the same, or gone."""

    topic: str
    partition: int
    expected: int
    next_offset: int
    topic_id: UUID | None = None


def consumer_offsets(cursor: Cursor, domain: str) -> Mapping[tuple[str, int], int]:
    """The next offset of every input partition that was read before."""
    query = "SELECT topic, partition, next_offset FROM consumer_cursors WHERE domain = %s"
    return {(row.topic, row.partition): row.next_offset for row in cursor.execute(query, [domain])}


def read_topics(cursor: Cursor, domain: str) -> dict[str, frozenset[UUID]]:
    """The ids of the topics that the cursors belong to; of one that was made anew, the old one."""
    query = (
        "SELECT topic, array_agg(DISTINCT topic_id) AS ids FROM consumer_cursors"
        " WHERE domain = %s AND topic_id IS NOT NULL GROUP BY topic"
    )
    return {row.topic: frozenset(row.ids) for row in cursor.execute(query, [domain])}


def move_consumer_cursors(cursor: Cursor, domain: str, moves: Iterable[CursorMove]) -> bool:
    """Move all of them; False, and the caller rolls back, if one is not where we believed."""
    first: list[dict[str, object]] = []
    further: list[dict[str, object]] = []
    # One order for everybody, so that rivals queue up instead of blocking each other.
    for move in sorted(moves, key=lambda move: (move.topic, move.partition)):
        target = first if move.expected is None else further
        target.append({"domain": domain, **asdict(move)})
    cursor.executemany(
        "INSERT INTO consumer_cursors (domain, topic, partition, next_offset, topic_id)"
        " VALUES (%(domain)s, %(topic)s, %(partition)s, %(next_offset)s, %(topic_id)s)"
        " ON CONFLICT DO NOTHING",
        first,
    )
    if first and cursor.rowcount != len(first):
        return False
    cursor.executemany(
        "UPDATE consumer_cursors SET next_offset = %(next_offset)s, moved_at = now(),"
        " topic_id = coalesce(%(topic_id)s, topic_id)"
        " WHERE domain = %(domain)s AND topic = %(topic)s AND partition = %(partition)s"
        " AND next_offset = %(expected)s",
        further,
    )
    return not further or cursor.rowcount == len(further)


def restart_consumer_cursors(
    cursor: Cursor, domain: str, restarts: Iterable[CursorRestart]
) -> bool:
    """Begin a new generation of these partitions' offsets; False, and the caller rolls back, if a
    cursor is not where we believed."""
    for restart in sorted(restarts):
        cursor.execute(
            "WITH ended AS (UPDATE consumer_cursors"
            " SET next_offset = %(next_offset)s, generation = generation + 1, moved_at = now(),"
            " topic_id = coalesce(%(topic_id)s, topic_id)"
            " WHERE domain = %(domain)s AND topic = %(topic)s AND partition = %(partition)s"
            " AND next_offset = %(expected)s RETURNING generation - 1 AS generation)"
            " INSERT INTO offset_restarts (domain, topic, partition, generation, next_offset)"
            " SELECT %(domain)s, %(topic)s, %(partition)s, generation, %(expected)s FROM ended",
            {"domain": domain, **asdict(restart)},
        )
        if cursor.rowcount != 1:
            return False
    return True

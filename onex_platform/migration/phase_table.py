"""How far each topic's move has come, in PostgreSQL: phases, changes, groups, retired names.

What holds: a change of phase and a batch of the relay, of signals or of alarms exclude each other.
Whoever publishes shares a lock meanwhile, a change takes it alone; so every batch is published
under one phase, and when a change is committed nothing is under way that knew the old one. Changes
of one move, and passes of one mirror, take turns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from onex_platform.base.errors import InfraError
from onex_platform.engines.kafka.clients import Positions
from onex_platform.engines.postgres.database import Cursor, Database, fetch_one
from onex_platform.migration.phases import Condition
from onex_platform.topics.migration_intent import EnumMigrationPhase

_LOCK = "hashtextextended('topic migrations', 0)"
# Offsets by partition, as text: JSON has no other keys.
Offsets = dict[str, int]


@dataclass(frozen=True)
class MoveState:
    """How far a move has come; `changing_to` is a change that has begun and not ended."""

    phase: EnumMigrationPhase = EnumMigrationPhase.ASSESS
    changing_to: EnumMigrationPhase | None = None
    entered_at: datetime | None = None
    dual_since: datetime | None = None
    frozen_at: Offsets = field(default_factory=dict)


@dataclass(frozen=True)
class MigratedGroup:
    """A group that reads the target now, and where its predecessor stopped."""

    group: str
    successor: str
    stopped_at: Offsets
    handed_at: datetime


def phases(cursor: Cursor) -> dict[str, EnumMigrationPhase]:
    """How far topics have moved, by the topic that is left; those that nobody began are absent.

    A topic whose deletion has begun is retired: it may be gone, and nobody makes it anew.
    """
    rows = cursor.execute(
        "SELECT source, CASE changing_to WHEN 'retired' THEN changing_to ELSE phase END AS phase"
        " FROM topic_migrations"
    )
    return {row.source: EnumMigrationPhase(row.phase) for row in rows}


def phases_are_kept(cursor: Cursor) -> bool:
    """Whether the database has the tables of moves."""
    query = "SELECT to_regclass('topic_migrations') IS NOT NULL AS is_there"
    return bool(fetch_one(cursor, query).is_there)


def phases_to_publish_by(cursor: Cursor) -> dict[str, EnumMigrationPhase]:
    """The phases, none of which changes until the transaction ends."""
    cursor.execute(f"SELECT pg_advisory_xact_lock_shared({_LOCK})")
    return phases(cursor)


@contextmanager
def phases_alone(database: Database) -> Iterator[Cursor]:
    """A transaction in which nobody publishes what phases decide about."""
    with database.transaction() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        yield cursor


@contextmanager
def change_alone(database: Database, source: str) -> Iterator[None]:
    """While the block lasts, nobody else changes this move's phase or hands its groups over."""
    with database.session_lock(_key(f"move {source}")):
        yield


@contextmanager
def mirror_alone(database: Database, origin: str, destination: str) -> Iterator[None]:
    """While the block lasts, nobody else copies this way."""
    with database.session_lock(_key(f"mirror {origin} {destination}")):
        yield


def _key(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)


def state_of(cursor: Cursor, source: str) -> MoveState:
    row = cursor.execute(
        "SELECT phase, changing_to, entered_at, dual_since, frozen_at FROM topic_migrations"
        " WHERE source = %s",
        [source],
    ).fetchone()
    if row is None:
        return MoveState()
    return MoveState(
        EnumMigrationPhase(row.phase),
        EnumMigrationPhase(row.changing_to) if row.changing_to else None,
        row.entered_at,
        row.dual_since,
        row.frozen_at,
    )


def begin_change(
    cursor: Cursor,
    source: str,
    target: str,
    step: tuple[EnumMigrationPhase, EnumMigrationPhase],
    *,
    by: str,
    reason: str | None,
    waived: Collection[Condition] = (),
    evidence: Mapping[str, Any] | None = None,
) -> None:
    """Note that the phase is about to change, with who, why and what was seen."""
    before, after = step
    cursor.execute(
        "INSERT INTO topic_migrations AS m (source, target, phase, changing_to)"
        " VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (source) DO UPDATE SET changing_to = excluded.changing_to",
        [source, target, before, after],
    )
    cursor.execute(
        "INSERT INTO migration_changes"
        " (source, from_phase, to_phase, changed_by, reason, waived, evidence)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [
            source,
            before,
            after,
            by,
            reason,
            json.dumps([str(condition) for condition in waived]),
            json.dumps(evidence or {}, default=str),
        ],
    )


def end_change(cursor: Cursor, source: str, phase: EnumMigrationPhase) -> None:
    """Enter the phase that was begun."""
    cursor.execute(
        "UPDATE topic_migrations SET phase = %(phase)s, changing_to = NULL,"
        " entered_at = clock_timestamp(),"
        " dual_since = CASE WHEN %(phase)s = 'assess' THEN NULL"
        " WHEN dual_since IS NULL THEN clock_timestamp() ELSE dual_since END"
        " WHERE source = %(source)s AND changing_to = %(phase)s",
        {"phase": phase, "source": source},
    )
    if cursor.rowcount != 1:
        raise InfraError(
            f"{source} is not on its way to {phase} any more: somebody else changed its phase.",
            hint=f"`onex migrate status {source}` says where it is.",
        )


def note_freeze(cursor: Cursor, source: str, ends: Positions) -> None:
    """Remember where the source ended when it was frozen."""
    cursor.execute(
        "UPDATE topic_migrations SET frozen_at = %s WHERE source = %s",
        [json.dumps(by_partition(ends)), source],
    )


def changes(cursor: Cursor, source: str) -> list[Any]:
    """Who changed the phase, when and why, newest first."""
    return cursor.execute(
        "SELECT changed_at, from_phase, to_phase, changed_by, reason, waived, evidence"
        " FROM migration_changes WHERE source = %s ORDER BY id DESC",
        [source],
    ).fetchall()


def migrated_groups(cursor: Cursor, source: str) -> dict[str, MigratedGroup]:
    """The groups that were handed over, by the old group."""
    rows = cursor.execute(
        "SELECT old_group, successor, stopped_at, handed_at FROM migrated_groups WHERE source = %s",
        [source],
    )
    return {row.old_group: MigratedGroup(*row) for row in rows}


def note_handover(
    cursor: Cursor, source: str, group: str, successor: str, stopped_at: Positions
) -> None:
    """Remember that a successor reads on, and where the old group stopped."""
    cursor.execute(
        "INSERT INTO migrated_groups (source, old_group, successor, stopped_at)"
        " VALUES (%s, %s, %s, %s) ON CONFLICT (source, old_group) DO UPDATE SET"
        " successor = excluded.successor, stopped_at = excluded.stopped_at,"
        " handed_at = clock_timestamp()",
        [source, group, successor, json.dumps(by_partition(stopped_at))],
    )


def forget_handover(cursor: Cursor, source: str, group: str) -> None:
    """The old group reads on itself."""
    cursor.execute(
        "DELETE FROM migrated_groups WHERE source = %s AND old_group = %s", [source, group]
    )


def is_retired(cursor: Cursor, topic: str) -> bool:
    """Whether a topic of this name was retired: nobody may use the name again."""
    query = "SELECT 1 FROM retired_topics WHERE topic = %s"
    return cursor.execute(query, [topic]).fetchone() is not None


def retire_name(cursor: Cursor, topic: str) -> None:
    cursor.execute("INSERT INTO retired_topics (topic) VALUES (%s) ON CONFLICT DO NOTHING", [topic])


def recall_name(cursor: Cursor, topic: str) -> None:
    cursor.execute("DELETE FROM retired_topics WHERE topic = %s", [topic])


def mirror_positions(cursor: Cursor, origin: str, destination: str) -> Positions:
    """The next offsets that the mirror looks at; none if it has never begun."""
    rows = cursor.execute(
        "SELECT partition, next_offset FROM mirror_positions"
        " WHERE origin = %s AND destination = %s",
        [origin, destination],
    )
    return {(origin, row.partition): row.next_offset for row in rows}


def move_mirror(cursor: Cursor, destination: str, positions: Positions) -> None:
    """The mirror goes on from here."""
    cursor.executemany(
        "INSERT INTO mirror_positions (origin, destination, partition, next_offset)"
        " VALUES (%s, %s, %s, %s) ON CONFLICT (origin, destination, partition)"
        " DO UPDATE SET next_offset = excluded.next_offset",
        [
            (origin, destination, partition, offset)
            for (origin, partition), offset in sorted(positions.items())
        ],
    )


def forget_mirror(cursor: Cursor, origin: str, destination: str) -> None:
    """The mirror has nothing to do in this direction."""
    cursor.execute(
        "DELETE FROM mirror_positions WHERE origin = %s AND destination = %s",
        [origin, destination],
    )


def by_partition(positions: Positions) -> Offsets:
    """Offsets of one topic as JSON has them."""
    return {str(partition): offset for (_, partition), offset in sorted(positions.items())}

"""The side table of a rebuild, and what is done between it and the live rows.

Comparing and swapping look at whole rows, as readers see them. Both need no lock to be exact: a
live row that was folded beyond the side table has moved on and is not judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.engines.postgres.database import (
    Cursor,
    copy_rows,
    fetch_one,
    lift_statement_limit,
)
from onex_platform.log.page_log import PageLog
from onex_platform.log.pins import is_abandoned, pinned
from onex_platform.projections.fold.containment import Fault
from onex_platform.projections.fold.refold import Scope
from onex_platform.projections.write.upsert import LIVENESS_COLUMNS, WIDE_COLUMNS

_COLUMNS = {**WIDE_COLUMNS, **LIVENESS_COLUMNS}
_KEY = ("entity_id", "domain")
_values = attrgetter(*_COLUMNS)
_SHOWN = 20


class EnumRowVerdict(StrEnum):
    """How a live row relates to what the log says."""

    EQUAL = "equal"
    DIFFERING = "differing"
    MISSING = "missing"  # the log gives the node a row, the table has none
    EXTRA = "extra"  # the table has a row that the log does not give
    MOVED_ON = "moved_on"  # folded beyond the side table since; not judged
    SET_ASIDE = "set_aside"  # stands still, but its events can be folded now
    RAISING = "raising"  # its events can't be folded; the row stays as it is


class Difference(NamedTuple):
    """A row that is not what the log says: per column the live value and the rebuilt one."""

    entity_id: UUID
    verdict: EnumRowVerdict
    columns: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The live rows beside the fold of the log below `position`, and some of the differences."""

    position: int
    equal: int = 0
    differing: int = 0
    missing: int = 0
    extra: int = 0
    moved_on: int = 0
    set_aside: int = 0
    raising: int = 0
    unmarked: int = 0  # of the raising, those that are not set aside
    differences: tuple[Difference, ...] = ()

    @property
    def changes(self) -> int:
        """How many rows a swap would change."""
        return self.differing + self.missing + self.extra + self.set_aside


class RebuildLostError(OnexError):
    """The side table is gone, with a crash of the server or because somebody removed it."""


def _names(columns: Iterable[str], table: str = "") -> str:
    return ", ".join(f"{table}{name}" for name in columns)


def _replaced(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns if name not in _KEY)


_ROW = [name for name in _COLUMNS if name not in _KEY]
_VERDICTS = """
    CREATE TEMPORARY TABLE IF NOT EXISTS verdicts
        (entity_id uuid, verdict text, is_live boolean, is_rebuilt boolean, is_marked boolean)
        ON COMMIT DELETE ROWS"""
_JUDGE = f"""
    INSERT INTO verdicts
    SELECT
        entity_id,
        CASE
            WHEN rebuilt.error IS NOT NULL THEN 'raising'
            WHEN aside.marked THEN 'set_aside'
            WHEN live.last_applied_sequence >= %(position)s
                AND live.last_applied_sequence
                    < (SELECT position FROM fold_cursors WHERE domain = %(domain)s)
                THEN 'moved_on'
            WHEN rebuilt.current_state IS NULL THEN 'extra'
            WHEN live.current_state IS NULL THEN 'missing'
            WHEN ({_names(_ROW, "live.")}) IS NOT DISTINCT FROM ({_names(_ROW, "rebuilt.")})
                THEN 'equal'
            ELSE 'differing'
        END,
        live.current_state IS NOT NULL,
        rebuilt.current_state IS NOT NULL,
        coalesce(aside.marked, false)
    FROM (SELECT * FROM rebuilt_registrations WHERE rebuild_id = %(rebuild)s) AS rebuilt
    FULL JOIN (SELECT * FROM registrations WHERE domain = %(domain)s AND {{scope}}) AS live
        USING (entity_id)
    FULL JOIN (
        SELECT entity_id, true AS marked FROM set_aside_nodes
        WHERE domain = %(domain)s AND {{scope}}
    ) AS aside USING (entity_id)
    WHERE coalesce(live.current_state, rebuilt.current_state) IS NOT NULL
        OR rebuilt.error IS NOT NULL OR aside.marked"""  # noqa: S608
_SCOPES = {
    "all": "true",
    "ids": "entity_id BETWEEN %(low)s AND %(high)s",
    "listed": "entity_id IN"
    " (SELECT entity_id FROM rebuilt_registrations WHERE rebuild_id = %(rebuild)s)",
}
_DIFFERENCES = """
    SELECT entity_id, verdict, to_jsonb(live) AS live, to_jsonb(rebuilt) AS rebuilt
    FROM verdicts
    LEFT JOIN (SELECT * FROM registrations WHERE domain = %(domain)s) AS live USING (entity_id)
    LEFT JOIN (SELECT * FROM rebuilt_registrations WHERE rebuild_id = %(rebuild)s) AS rebuilt
        USING (entity_id)
    WHERE verdict NOT IN ('equal', 'moved_on')
    ORDER BY verdict, entity_id LIMIT %(shown)s"""

# A row that changes gets the next version, so that its snapshot is newer than the published one. Of
# a row that was lost the version is not known: the milliseconds since 1970 exceed any count.
# What is done about a verdict. A node that was set aside gets whatever the log gives it.
_WRITTEN = "is_rebuilt AND verdict IN ('differing', 'missing', 'set_aside')"
_REMOVED = "NOT is_rebuilt AND verdict IN ('extra', 'set_aside')"
_WRITE_WIDE = f"""
    INSERT INTO registration_projections AS held ({_names(WIDE_COLUMNS)}, row_version)
    SELECT {_names(WIDE_COLUMNS)}, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM rebuilt_registrations JOIN verdicts USING (entity_id)
    WHERE rebuild_id = %(rebuild)s AND {_WRITTEN}
    ON CONFLICT (entity_id, domain) DO UPDATE
    SET {_replaced(WIDE_COLUMNS)}, row_version = held.row_version + 1"""  # noqa: S608
_WRITE_LIVENESS = f"""
    INSERT INTO registration_liveness ({_names(LIVENESS_COLUMNS)})
    SELECT {_names(LIVENESS_COLUMNS)} FROM rebuilt_registrations JOIN verdicts USING (entity_id)
    WHERE rebuild_id = %(rebuild)s AND {_WRITTEN}
    ON CONFLICT (entity_id, domain) DO UPDATE SET {_replaced(LIVENESS_COLUMNS)}"""  # noqa: S608
# The sweep buries an unknown node's snapshot by a tombstone of the next version.
_RETIRE = f"""
    INSERT INTO retired_versions AS retired (entity_id, domain, last_version)
    SELECT entity_id, domain, row_version + 1
    FROM registration_projections JOIN verdicts USING (entity_id)
    WHERE domain = %(domain)s AND {_REMOVED}
    ON CONFLICT (entity_id, domain) DO UPDATE
    SET last_version = greatest(retired.last_version, excluded.last_version)"""  # noqa: S608
_REMOVE = f"""
    DELETE FROM {{table}} USING verdicts
    WHERE {{table}}.entity_id = verdicts.entity_id AND domain = %(domain)s AND {_REMOVED}
    """  # noqa: S608
_RELEASE = """
    DELETE FROM set_aside_nodes AS aside USING verdicts
    WHERE aside.entity_id = verdicts.entity_id AND domain = %(domain)s AND verdict = 'set_aside'"""
# Of nodes that were set aside and are none that the registry knows, before or after.
_COUNT_BARE = """
    SELECT count(*) AS nodes FROM verdicts
    WHERE verdict = 'set_aside' AND NOT is_live AND NOT is_rebuilt"""


@contextmanager
def side_table(log: PageLog) -> Iterator[UUID]:
    """The id of an empty side table for the block; what rebuilds left that died is removed.

    It is the id of the pin that keeps the pages which the rebuild reads.
    """
    with pinned(log.database, log.domain) as rebuild_id:
        with (
            effect("rebuild.begin"),
            log.database.transaction() as cursor,
        ):
            _discard_abandoned(cursor)
            cursor.execute(
                "INSERT INTO rebuilds (rebuild_id, domain) VALUES (%s, %s)",
                [rebuild_id, log.domain],
            )
        try:
            yield rebuild_id
        finally:
            with (
                effect("rebuild.discard"),
                log.database.transaction() as cursor,
            ):
                _discard(cursor, rebuild_id)


def require_side_table(cursor: Cursor, rebuild_id: UUID) -> None:
    """Make sure that the side table is there, and stays until the transaction ends."""
    query = "SELECT FROM rebuilds WHERE rebuild_id = %s FOR KEY SHARE"
    if cursor.execute(query, [rebuild_id]).fetchone() is None:
        raise RebuildLostError(
            f"The side table of rebuild {rebuild_id} is gone.",
            hint="The live rows are as they were; run the rebuild again.",
        )


def replace_bucket(
    cursor: Cursor,
    rebuild_id: UUID,
    bucket: int,
    rows: Sequence[ModelRegistrationProjection],
    listed: Collection[bytes],
    faults: Mapping[bytes, Fault],
) -> None:
    """Put one bucket's rows into the side table, the listed nodes that have none, and those that
    could not be folded."""
    cursor.execute(
        "DELETE FROM rebuilt_registrations WHERE rebuild_id = %s AND bucket = %s",
        [rebuild_id, bucket],
    )
    _copy(cursor, rebuild_id, bucket, rows)
    without = (set(listed) | faults.keys()) - {row.entity_id.bytes for row in rows}
    _enter_without_row(cursor, rebuild_id, bucket, {node: faults.get(node) for node in without})


def replace_rows(
    cursor: Cursor,
    rebuild_id: UUID,
    bucket: int,
    rows: Sequence[ModelRegistrationProjection],
    faults: Mapping[bytes, Fault],
) -> None:
    """Put newer rows of some nodes into the side table, and those that could not be folded."""
    replaced = [*(row.entity_id for row in rows), *(UUID(bytes=node) for node in faults)]
    cursor.execute(
        "DELETE FROM rebuilt_registrations WHERE rebuild_id = %s AND entity_id = ANY(%s)",
        [rebuild_id, replaced],
    )
    _copy(cursor, rebuild_id, bucket, rows)
    _enter_without_row(cursor, rebuild_id, bucket, faults)


def raising_nodes(
    cursor: Cursor, rebuild_id: UUID, nodes: Collection[bytes] | None = None
) -> frozenset[bytes]:
    """Those that could not be folded so far, among some nodes or among all."""
    found = cursor.execute(
        "SELECT entity_id FROM rebuilt_registrations WHERE rebuild_id = %(rebuild)s"
        " AND error IS NOT NULL AND (%(nodes)s::uuid[] IS NULL OR entity_id = ANY(%(nodes)s))",
        {
            "rebuild": rebuild_id,
            "nodes": None if nodes is None else [UUID(bytes=node) for node in nodes],
        },
    )
    return frozenset(row.entity_id.bytes for row in found)


def rows_of(
    cursor: Cursor, rebuild_id: UUID, nodes: Collection[bytes]
) -> Iterator[ModelRegistrationProjection]:
    """The side table's rows of some nodes."""
    found = cursor.execute(
        f"SELECT {_names(_COLUMNS)} FROM rebuilt_registrations"  # noqa: S608 - constant columns
        " WHERE rebuild_id = %s AND entity_id = ANY(%s) AND current_state IS NOT NULL",
        [rebuild_id, [UUID(bytes=node) for node in nodes]],
    )
    return (ModelRegistrationProjection.model_validate(row._asdict()) for row in found.fetchall())


def compare(
    cursor: Cursor, rebuild_id: UUID, domain: str, scope: Scope, position: int
) -> Comparison:
    """Judge every row of the scope, in the caller's transaction; `swap` goes by the verdicts."""
    lift_statement_limit(cursor)
    cursor.execute(_VERDICTS)
    form = "listed" if scope.is_listed else "all" if scope.ids is None else "ids"
    low, high = scope.ids or (None, None)
    names = {"rebuild": rebuild_id, "domain": domain, "shown": _SHOWN}
    cursor.execute(
        _JUDGE.format(scope=_SCOPES[form]),
        {**names, "position": position, "low": low, "high": high},
    )
    counts = cursor.execute(
        "SELECT verdict, count(*) FROM verdicts GROUP BY verdict UNION ALL"
        " SELECT 'unmarked', count(*) FROM verdicts WHERE verdict = 'raising' AND NOT is_marked"
    ).fetchall()
    differences = cursor.execute(_DIFFERENCES, names).fetchall()
    return Comparison(
        position=position,
        differences=tuple(map(_difference, differences)),
        **dict(counts),
    )


def swap(cursor: Cursor, rebuild_id: UUID, domain: str) -> int:
    """Give every row that was judged to differ what the side table has for it, and let those go on
    that were set aside; how many."""
    names = {"rebuild": rebuild_id, "domain": domain}
    cursor.execute(_WRITE_LIVENESS, names)
    cursor.execute(_REMOVE.format(table="registration_liveness"), names)
    cursor.execute(_WRITE_WIDE, names)
    written = cursor.rowcount
    cursor.execute(_RETIRE, names)
    cursor.execute(_REMOVE.format(table="registration_projections"), names)
    written += cursor.rowcount
    with effect("rebuild.release"):
        cursor.execute(_RELEASE, names)
    return written + int(fetch_one(cursor, _COUNT_BARE).nodes)


def _enter_without_row(
    cursor: Cursor, rebuild_id: UUID, bucket: int, nodes: Mapping[bytes, Fault | None]
) -> None:
    cursor.executemany(
        "INSERT INTO rebuilt_registrations (rebuild_id, bucket, entity_id, error)"
        " VALUES (%s, %s, %s, %s)",
        [
            (rebuild_id, bucket, UUID(bytes=node), fault and fault.error)
            for node, fault in nodes.items()
        ],
    )


def _copy(
    cursor: Cursor, rebuild_id: UUID, bucket: int, rows: Sequence[ModelRegistrationProjection]
) -> None:
    columns = {"rebuild_id": "uuid", "bucket": "integer", **_COLUMNS}
    values = ((rebuild_id, bucket, *_values(row)) for row in rows)
    copy_rows(cursor, "rebuilt_registrations", columns, values)


def _difference(row: Any) -> Difference:
    live, rebuilt = row.live or {}, row.rebuilt or {}
    if row.verdict == EnumRowVerdict.RAISING:
        return Difference(
            row.entity_id, EnumRowVerdict.RAISING, {"error": (None, rebuilt["error"])}
        )
    columns = {
        name: (live.get(name), rebuilt.get(name))
        for name in _ROW
        if live.get(name) != rebuilt.get(name)
    }
    return Difference(row.entity_id, EnumRowVerdict(row.verdict), columns)


def _discard_abandoned(cursor: Cursor) -> None:
    """Remove what rebuilds left whose process is gone."""
    for row in cursor.execute("SELECT rebuild_id FROM rebuilds").fetchall():
        if is_abandoned(cursor, row.rebuild_id):
            _discard(cursor, row.rebuild_id)


def _discard(cursor: Cursor, rebuild_id: UUID) -> None:
    # First the row that tasks hold on to, so that none adds to the table behind our back.
    for table in ("rebuilds", "rebuilt_registrations"):
        cursor.execute(
            f"DELETE FROM {table} WHERE rebuild_id = %s",  # noqa: S608 - constant
            [rebuild_id],
        )

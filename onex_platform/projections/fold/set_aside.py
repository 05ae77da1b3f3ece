"""Nodes that are set aside: who, since when, why; and how they come back.

What holds:
- A mark is written in the transaction of the batch that could not fold the node, and taken away in
  the one that puts its replayed row in (`rebuilt.swap`). Both have the fold's turn.
- A batch that did without a node that was released meanwhile is not committed, but folded again.
- A mark is told once: as an event that other systems read, and in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.identity import NOT_CANARY_SQL
from onex_platform.domain.order import moment_of
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.migration.publication import published
from onex_platform.projections.fold.column_fold import Refused
from onex_platform.projections.fold.containment import Fault, require_few
from onex_platform.topics.alarms import Alarm, tell

STAGED = {
    "domain": "text",
    "entity_id": "uuid",
    "since_position": "bigint",
    "event_id": "uuid",
    "kind": "text",
    "error": "text",
}
# For whoever must not judge a node by a row that stands still. They are few, and known before the
# first row is looked at: as an array they leave an index scan what it is.
NOT_SET_ASIDE = (
    "entity_id <> ALL (ARRAY(SELECT aside.entity_id FROM set_aside_nodes AS aside"
    " WHERE aside.domain = %(domain)s))"
)

_COLUMNS = "entity_id, since_position, event_id, kind, error, set_aside_at"
_OPERATION = "fold_log"
_KNOWN = f"""
    SELECT
        count(*) AS aside,
        count(*) FILTER (WHERE NOT EXISTS (
            SELECT FROM registration_projections AS held
            WHERE held.domain = aside.domain AND held.entity_id = aside.entity_id
        )) AS strangers,
        (
            SELECT count(*) FROM registration_projections
            WHERE domain = %(domain)s AND {NOT_CANARY_SQL}
        ) AS nodes
    FROM set_aside_nodes AS aside WHERE domain = %(domain)s"""  # noqa: S608 - constant parts


class ReleasedMeanwhileError(OnexError):
    """A batch did without a node that is not set aside any more; nothing was written."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A node that is set aside, since its first event that had no effect."""

    entity_id: UUID
    since_position: int
    event_id: UUID
    kind: str
    error: str
    set_aside_at: datetime

    @property
    def since(self) -> datetime:
        return moment_of(self.since_position)

    def __str__(self) -> str:
        return f"{self.entity_id} since {self.since.isoformat()}: {self.error}"


def excluded_nodes(cursor: Cursor, domain: str) -> frozenset[bytes]:
    """Those whose events are not to be folded."""
    query = "SELECT entity_id FROM set_aside_nodes WHERE domain = %s"
    return frozenset(row.entity_id.bytes for row in cursor.execute(query, [domain]))


def marks(
    cursor: Cursor, domain: str, nodes: Collection[UUID] | None = None, *, untold: bool = False
) -> list[SetAside]:
    """Who is set aside, longest first: of these nodes, or of all; those not told of, or all."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM set_aside_nodes WHERE domain = %(domain)s"  # noqa: S608
        " AND (%(nodes)s::uuid[] IS NULL OR entity_id = ANY(%(nodes)s))"
        " AND (NOT %(untold)s OR alerted_at IS NULL) ORDER BY since_position, entity_id",
        {"domain": domain, "nodes": None if nodes is None else list(nodes), "untold": untold},
    )
    return [SetAside(*row) for row in rows]


def staged(
    domain: str, aside: Mapping[bytes, Refused], faults: Mapping[bytes, Fault]
) -> Iterable[tuple[Any, ...]]:
    """What a fold did without, as rows to be staged; `faults` are why from now on."""
    for entity_id, first in aside.items():
        fault = faults.get(entity_id)
        yield (
            domain,
            UUID(bytes=entity_id),
            first.event["position"],
            UUID(bytes=(fault and fault.event_id) or first.event["event_id"]),
            (fault and fault.kind) or first.event["kind"],
            fault and fault.error,
        )


def take_over_staged(cursor: Cursor, domain: str, table: str, batch_id: UUID) -> int:
    """Set aside whom the batch could not fold; how many nodes it did without.

    The caller has the fold's turn. Raises if one of them was released since, and if they would
    become most of the registry.
    """
    ours = f"FROM {table} WHERE batch_id = %(batch)s"
    names = {"batch": batch_id, "domain": domain}
    found = fetch_one(
        cursor,
        "SELECT count(*) AS nodes, count(error) AS new, min(error) AS example,"
        f" count(*) FILTER (WHERE error IS NULL AND {NOT_SET_ASIDE}) AS released {ours}",
        names,
    )
    if found.released:
        raise ReleasedMeanwhileError(
            f"{found.released} nodes are not set aside any more.", hint="Fold the batch again."
        )
    if found.new:
        with effect("set_aside.mark"):
            cursor.execute(
                "INSERT INTO set_aside_nodes"
                f" ({', '.join(STAGED)}) SELECT {', '.join(STAGED)} {ours} AND error IS NOT NULL",
                names,
            )
        known = fetch_one(cursor, _KNOWN, names)
        require_few(range(known.aside), known.nodes + known.strangers, found.example)
    return int(found.nodes)


def alert_of_set_aside(platform: PlatformContext, now: datetime) -> int:
    """Tell of everybody who was set aside and not told of yet; how many the broker has taken.

    A mark is changed after the acknowledgement. Whoever is killed in between tells it again, under
    the same event id.
    """
    with platform.database.transaction() as cursor:
        untold = marks(cursor, platform.domain, untold=True)
    if not untold:
        return 0
    alarms = [_alarm(platform.domain, mark) for mark in untold]
    with published(platform.database, platform.catalogue) as catalogue:
        told = tell(platform.settings, catalogue, "set_aside", "set_aside.alert", alarms)
    if told:
        with effect("set_aside.mark_alert"), platform.database.transaction() as cursor:
            cursor.execute(
                "UPDATE set_aside_nodes SET alerted_at = %s"
                " WHERE domain = %s AND (entity_id, since_position)"
                " IN (SELECT * FROM unnest(%s::uuid[], %s::bigint[]))",
                [
                    now,
                    platform.domain,
                    [mark.entity_id for mark in untold],
                    [mark.since_position for mark in untold],
                ],
            )
    return told


def _alarm(domain: str, mark: SetAside) -> Alarm:
    return Alarm(
        correlation_id=uuid5(mark.entity_id, f"{domain} set aside at {mark.since_position}"),
        error="NodeSetAside",
        message=f"The events of node {mark.entity_id} can't be folded: {mark.error}. Its row keeps "
        "its last state; all other nodes go on.",
        operation=_OPERATION,
        occurred_at=mark.set_aside_at,
        context={
            "domain": domain,
            "node": str(mark.entity_id),
            "since": mark.since.isoformat(),
            "since_position": mark.since_position,
            "event_id": str(mark.event_id),
            "kind": mark.kind,
            "error": mark.error,
        },
    )

"""Which deadlines have passed, and how many nodes are active: what the clock asks of the rows.

What has passed is found by index alone, page by page, and joined with its rows. Each query first
walks the scan index of its deadline, from where the last page ended: what is not overdue is never
touched, and a row is looked up only once its key was found. A node that is set aside is never
overdue: its row stands still because we don't fold its events. Nor is the canary, which has a clock
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from onex_platform.domain.deadlines import is_past
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.facts import PassedDeadline
from onex_platform.domain.identity import NOT_CANARY_SQL, EntityKey
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.projections.fold.set_aside import NOT_SET_ASIDE

Kind = EnumEventKind


class OverdueKey(NamedTuple):
    """Where a walk over the overdue stands: the key of the last row."""

    deadline: datetime
    entity_id: UUID


BEGINNING = OverdueKey(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))

_DEADLINES = {Kind.ACK_TIMED_OUT: "ack_deadline", Kind.LIVENESS_EXPIRED: "liveness_deadline"}
_ACTIVE = """
    FROM registration_projections AS p
    WHERE p.domain = %(domain)s AND p.current_state = 'active' AND p.deregistered_at IS NULL"""
# For queries about a table of nodes. The row is looked up by its key: with states as conditions the
# planner would walk the index of all active nodes, once for each.
IS_ACTIVE = """
    coalesce((
        SELECT p.current_state = 'active' AND p.deregistered_at IS NULL
        FROM registration_projections AS p
        WHERE p.entity_id = {table}.entity_id AND p.domain = %(domain)s
    ), false)"""
_COUNT_ACTIVE = f"""
    SELECT count(*) AS active
    FROM (SELECT {_ACTIVE} AND p.tenant = %(tenant)s LIMIT %(most)s) AS counted"""  # noqa: S608
_STANDING = """
    SELECT event_id, last_applied_sequence AS position
    FROM unnest(%(ids)s::uuid[], %(entities)s::uuid[], %(deadlines)s::timestamptz[])
        AS fact (event_id, entity_id, deadline)
    JOIN registrations AS r ON r.entity_id = fact.entity_id AND r.{column} = fact.deadline
    WHERE r.domain = %(domain)s"""

_KEYS = {
    Kind.ACK_TIMED_OUT: (
        "SELECT ack_deadline AS deadline, entity_id FROM registration_projections"  # noqa: S608
        " WHERE domain = %(domain)s AND ack_timeout_emitted_at IS NULL"
        " AND ack_deadline < %(before)s"
        f" AND {NOT_SET_ASIDE} AND {NOT_CANARY_SQL}"
        " AND (ack_deadline, entity_id) > (%(after)s, %(after_id)s)"
        " ORDER BY ack_deadline, entity_id LIMIT %(limit)s"
    ),
    Kind.LIVENESS_EXPIRED: (
        "SELECT liveness_deadline AS deadline, entity_id FROM registration_liveness"  # noqa: S608
        " WHERE domain = %(domain)s AND liveness_deadline < %(before)s"
        f" AND {NOT_SET_ASIDE} AND {NOT_CANARY_SQL}"
        " AND (liveness_deadline, entity_id) > (%(after)s, %(after_id)s)"
        " ORDER BY liveness_deadline, entity_id LIMIT %(limit)s"
    ),
}
# An acknowledgement can't be late for a request that waits to be published, and not before a whole
# window has passed since it was. Another registry's requests don't pass through our outbox.
_PUBLICATION = {
    Kind.ACK_TIMED_OUT: (
        "EXISTS (SELECT FROM outbox AS o WHERE o.domain = %(domain)s"
        " AND o.entity_id = keys.entity_id AND o.event_kind = 'registry.node.ack_requested')",
        "(SELECT published_at FROM published_ack_requests AS r"
        " WHERE r.domain = %(domain)s AND r.entity_id = keys.entity_id)",
    ),
    Kind.LIVENESS_EXPIRED: ("false", "NULL::timestamptz"),
}


def keys_query(kind: EnumEventKind) -> str:
    """The walk over the index, for whoever wants to see its plan."""
    return _KEYS[kind]


def _rows_query(kind: EnumEventKind) -> str:
    """A page of keys with their rows, each looked up by its key.

    Left to itself, the planner would rather read a whole table that is not very large.
    """
    unpublished, published_at = _PUBLICATION[kind]
    return (
        f"WITH keys AS MATERIALIZED ({_KEYS[kind]})"  # noqa: S608 - constant parts
        " SELECT keys.deadline, keys.entity_id, p.tenant, p.node_name, p.epoch, p.correlation_id,"
        f" {unpublished} AS unpublished, {published_at} AS published_at"
        " FROM keys LEFT JOIN LATERAL ("
        "  SELECT tenant, node_name, epoch, correlation_id FROM registration_projections AS w"
        "  WHERE w.entity_id = keys.entity_id AND w.domain = %(domain)s LIMIT 1"
        " ) AS p ON true ORDER BY keys.deadline, keys.entity_id"
    )


_ROWS = {kind: _rows_query(kind) for kind in _KEYS}


class OverduePage(NamedTuple):
    """A page of overdue rows, oldest deadline first, and where it ends; None: there are no more."""

    passed: list[PassedDeadline]
    unpublished: int
    end: OverdueKey | None


def exists(
    cursor: Cursor,
    domain: str,
    kind: EnumEventKind,
    before: datetime,
    after: OverdueKey = BEGINNING,
) -> bool:
    """Whether a deadline of this kind passed before the moment; one look at the index."""
    query = f"SELECT EXISTS ({_KEYS[kind]}) AS overdue"
    return bool(fetch_one(cursor, query, _parameters(domain, before, after, 1)).overdue)


def read_page(
    cursor: Cursor,
    domain: str,
    kind: EnumEventKind,
    before: datetime,
    after: OverdueKey,
    limit: int,
    ack_window: timedelta,
    tenant: str | None = None,
) -> OverduePage:
    """The next rows whose deadline passed before the moment; those of one tenant, or all."""
    rows = cursor.execute(_ROWS[kind], _parameters(domain, before, after, limit)).fetchall()
    end = OverdueKey(rows[-1].deadline, rows[-1].entity_id) if len(rows) == limit else None
    known = [row for row in rows if row.tenant is not None and tenant in (None, row.tenant)]
    ready = [row for row in known if _could_be_answered(row, before, ack_window)]
    return OverduePage([_passed(domain, kind, row) for row in ready], len(known) - len(ready), end)


def standing(cursor: Cursor, domain: str, facts: Sequence[LogEvent]) -> dict[UUID, int]:
    """Of facts of one kind, those whose deadline is the row's, and the row's position."""
    query = _STANDING.format(column=_DEADLINES[facts[0].kind])
    parameters = {
        "domain": domain,
        "ids": [fact.event_id for fact in facts],
        "entities": [fact.entity.entity_id for fact in facts],
        "deadlines": [fact.deadline for fact in facts],
    }
    return {row.event_id: row.position for row in cursor.execute(query, parameters)}


def count_active(cursor: Cursor, domain: str, tenant: str, most: int) -> int:
    """How many nodes of a tenant are active; counted up to `most`."""
    parameters = {"domain": domain, "tenant": tenant, "most": most}
    return int(fetch_one(cursor, _COUNT_ACTIVE, parameters).active)


def active_tenants(cursor: Cursor, domain: str) -> list[str]:
    """Everybody who has an active node."""
    query = f"SELECT DISTINCT tenant {_ACTIVE}"
    return [row.tenant for row in cursor.execute(query, {"domain": domain})]


def _could_be_answered(row: Any, before: datetime, ack_window: timedelta) -> bool:
    if row.unpublished:
        return False
    return row.published_at is None or is_past(row.published_at + ack_window, before)


def _passed(domain: str, kind: EnumEventKind, row: Any) -> PassedDeadline:
    return PassedDeadline(
        kind=kind,
        entity=EntityKey(domain, row.entity_id),
        tenant=row.tenant,
        node_name=row.node_name,
        epoch=row.epoch,
        deadline=row.deadline,
        correlation_id=row.correlation_id,
    )


def _parameters(domain: str, before: datetime, after: OverdueKey, limit: int) -> dict[str, Any]:
    return {
        "domain": domain,
        "before": before,
        "after": after.deadline,
        "after_id": after.entity_id,
        "limit": limit,
    }

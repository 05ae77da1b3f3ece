"""The clock's book: how it is written, what operators read and order there, and the holds that are
told of, once: as an event that other systems read, and in the log."""

from __future__ import annotations

import difflib
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.base.settings import DeadlinesSettings
from onex_platform.context import PlatformContext
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.migration.publication import published
from onex_platform.projections import overdue
from onex_platform.topics.alarms import Alarm, tell


def writing(platform: PlatformContext) -> AbstractContextManager[Cursor]:
    """A transaction of the clock's: one whose process is stopped inside keeps nobody for long."""
    seconds = platform.settings.deadlines.turn_seconds
    return platform.database.transaction(idle_seconds=seconds)


class HoldRecord(NamedTuple):
    """A hold as it stands in the book."""

    hold_id: UUID
    tenant: str
    since: datetime
    fleet: int
    expiry_limit: int
    held: int
    alerted_at: datetime | None
    ended_at: datetime | None
    ending: str | None


class OverrideRecord(NamedTuple):
    """An operator's order: who let a tenant's silent nodes expire, when, why and until when."""

    override_id: int
    tenant: str
    reason: str
    ordered_by: str
    ordered_at: datetime
    until: datetime


class FlappingNode(NamedTuple):
    """A node that expires again and again."""

    entity_id: UUID
    tenant: str
    expiries: int
    last_at: datetime


def override_guard(
    platform: PlatformContext,
    tenant: str,
    *,
    reason: str,
    by: str,
    now: datetime,
    lasts: timedelta,
) -> OverrideRecord:
    """Let every overdue node of the tenant expire until then; the order stays in the book."""
    for name, value in (("tenant", tenant), ("reason", reason), ("by", by)):
        if not value.strip():
            raise ConfigurationError(f"{name} is empty; an override says who, for whom and why.")
    if lasts <= timedelta():
        raise ConfigurationError(f"An override can't last {lasts}; give a time above zero.")
    with effect("deadlines.override"), writing(platform) as cursor:
        _require_active(cursor, platform.domain, tenant)
        row = fetch_one(
            cursor,
            "INSERT INTO guard_overrides (domain, tenant, reason, ordered_by, ordered_at, until)"
            " VALUES (%s, %s, %s, %s, %s, %s)"
            " RETURNING override_id, tenant, reason, ordered_by, ordered_at, until",
            [platform.domain, tenant, reason, by, now, now + lasts],
        )
    return OverrideRecord(*row)


def _require_active(cursor: Cursor, domain: str, tenant: str) -> None:
    """Refuse a tenant of which nothing can expire: most likely it is misspelled."""
    if overdue.count_active(cursor, domain, tenant, most=1):
        return
    near = difflib.get_close_matches(tenant, overdue.active_tenants(cursor, domain), n=1)
    raise ConfigurationError(
        f"Tenant {tenant!r} has no active node, so nothing of it could expire.",
        hint=f"Did you mean {near[0]}?" if near else "`onex deadlines holds` names who is held.",
    )


def holds(
    platform: PlatformContext, which: Literal["all", "open", "untold"] = "all", limit: int = 100
) -> list[HoldRecord]:
    """The holds, newest first: all, those that last, or those that no alert has told of."""
    return _book(
        platform,
        "SELECT hold_id, tenant, since, fleet, expiry_limit, held, alerted_at, ended_at, ending"
        " FROM expiry_holds WHERE domain = %(domain)s AND CASE %(which)s::text"
        "  WHEN 'open' THEN ended_at IS NULL WHEN 'untold' THEN alerted_at IS NULL ELSE true END"
        " ORDER BY since DESC, tenant LIMIT %(limit)s",
        HoldRecord,
        {"which": which, "limit": limit},
    )


def overrides(
    platform: PlatformContext, *, in_force_at: datetime | None = None, limit: int = 100
) -> list[OverrideRecord]:
    """The orders, newest first; or those that are in force at a moment."""
    return _book(
        platform,
        "SELECT override_id, tenant, reason, ordered_by, ordered_at, until FROM guard_overrides"
        " WHERE domain = %(domain)s AND (%(at)s::timestamptz IS NULL"
        "  OR (ordered_at <= %(at)s AND until > %(at)s))"
        " ORDER BY override_id DESC LIMIT %(limit)s",
        OverrideRecord,
        {"at": in_force_at, "limit": limit},
    )


def flapping(platform: PlatformContext, now: datetime, limit: int = 100) -> list[FlappingNode]:
    """Nodes that expired so often within the window that something is wrong with them."""
    chosen = platform.settings.deadlines
    return _book(
        platform,
        "SELECT entity_id, max(tenant) AS tenant, count(*) AS expiries, max(declared_at) AS last_at"
        " FROM declared_expiries"
        " WHERE domain = %(domain)s AND declared_at > %(since)s"
        " GROUP BY entity_id HAVING count(*) >= %(count)s"
        " ORDER BY count(*) DESC, entity_id LIMIT %(limit)s",
        FlappingNode,
        {
            "since": now - timedelta(seconds=chosen.flap_window_seconds),
            "count": chosen.flap_count,
            "limit": limit,
        },
    )


def prune_expiries(cursor: Cursor, domain: str, settings: DeadlinesSettings, now: datetime) -> int:
    """Forget expiries that neither the guard nor the search for flapping nodes counts any more."""
    seconds = max(
        settings.guard_window_seconds, settings.hold_seconds, settings.flap_window_seconds
    )
    cursor.execute(
        "DELETE FROM declared_expiries WHERE domain = %s AND declared_at < %s",
        [domain, now - timedelta(seconds=seconds)],
    )
    return cursor.rowcount


def _book(
    platform: PlatformContext, query: str, shape: Any, parameters: dict[str, Any]
) -> list[Any]:
    with platform.database.transaction() as cursor:
        rows = cursor.execute(query, {"domain": platform.domain, **parameters})
        return [shape(*row) for row in rows]


def alert_of_holds(platform: PlatformContext, now: datetime) -> int:
    """Tell of every hold that was not told yet; how many the broker has acknowledged.

    A hold is marked after the acknowledgement. Whoever is killed in between tells it again, under
    the same event id. A broker that does not answer fails no scan: the next one tries again.
    """
    untold = holds(platform, "untold")
    if not untold:
        return 0
    alarms = [_alarm(hold) for hold in untold]
    with published(platform.database, platform.catalogue) as catalogue:
        told = tell(platform.settings, catalogue, "expiry_hold", "expiry_hold.alert", alarms)
    if told:
        with effect("deadlines.mark_alert"), writing(platform) as cursor:
            cursor.execute(
                "UPDATE expiry_holds SET alerted_at = %s WHERE hold_id = ANY(%s)",
                [now, [hold.hold_id for hold in untold]],
            )
    return told


def _alarm(hold: HoldRecord) -> Alarm:
    return Alarm(
        correlation_id=hold.hold_id,
        error="ExpiryHold",
        message=f"More nodes of {hold.tenant!r} fell silent than may expire at once: "
        f"{hold.expiry_limit} of {hold.fleet}. The others are held, and drain slowly.",
        operation="scan_deadlines",
        occurred_at=hold.since,
        context=_numbers(hold),
    )


def _numbers(hold: HoldRecord) -> dict[str, int | str]:
    return {
        "tenant": hold.tenant,
        "since": hold.since.isoformat(),
        "fleet": hold.fleet,
        "limit": hold.expiry_limit,
        "held": hold.held,
    }

"""Alerts as they stand: raised, risen and resolved by what was measured, and told once each time.

An alert's state changes in one transaction with the measurement that changed it. What is told is
noted after the broker acknowledged it: whoever is killed in between tells it again, under the same
event id. A silence keeps an alert from being told, not from being.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid5

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.identity import FACT_NAMESPACE
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.alert_rules import (
    LOOKS_BACK,
    RULES,
    EnumTier,
    Finding,
    Measurement,
    evaluate,
)
from onex_platform.health.measurements import measurements, note_measurement
from onex_platform.health.silences import Silence, active_silences, is_silenced
from onex_platform.migration.publication import published
from onex_platform.topics.alarms import Alarm, tell

_RESOLVED = "resolved"
_OPERATION = "watch_health"
_COLUMNS = "alert_id, rule, scope, tier, says, raised_at, changed_at, resolved_at, told"
_STATE = "CASE WHEN resolved_at IS NULL THEN tier ELSE 'resolved' END"


class Alert(NamedTuple):
    """An alert, from when it was raised until it is resolved; it keeps the highest tier it had."""

    alert_id: UUID
    rule: str
    scope: str
    tier: EnumTier
    says: str
    raised_at: datetime
    changed_at: datetime
    resolved_at: datetime | None = None
    told: str | None = None

    @property
    def state(self) -> str:
        """What others should know."""
        return self.tier if self.resolved_at is None else _RESOLVED


def changed_alerts(
    known: Sequence[Alert], findings: Sequence[Finding], domain: str, now: datetime
) -> list[Alert]:
    """Those that are raised, rise or end by what was found; `known` are those that are open.

    Of whom nothing was measured for as long as rules look back, nothing is known any more: it ends.
    """
    by_name = {(item.rule, item.scope): item for item in findings}
    changed = []
    for alert in known:
        found = by_name.pop((alert.rule, alert.scope), None)
        if found is None or (found.tier is None and found.over):
            changed.append(alert._replace(resolved_at=now, changed_at=now))
        elif found.tier is not None and found.tier.rank > alert.tier.rank:
            changed.append(alert._replace(tier=found.tier, says=found.says, changed_at=now))
    for found in by_name.values():
        if found.tier is not None:
            name = f"alert {domain} {found.rule} {found.scope} {now.isoformat()}"
            alert_id = uuid5(FACT_NAMESPACE, name)
            changed.append(
                Alert(alert_id, found.rule, found.scope, found.tier, found.says, now, now)
            )
    return changed


def advance(platform: PlatformContext, measurement: Measurement) -> list[Alert]:
    """Keep the measurement and let alerts follow it; those that changed."""
    domain = platform.domain
    with effect("alerts.advance"), platform.database.transaction() as cursor:
        cursor.execute("LOCK TABLE alerts IN SHARE ROW EXCLUSIVE MODE")
        note_measurement(cursor, domain, measurement)
        past = measurements(cursor, domain, measurement.at - LOOKS_BACK)
        now = past[-1].at
        changed = changed_alerts(
            alerts(cursor, domain), evaluate(RULES.values(), past), domain, now
        )
        silences = active_silences(cursor, domain, now)
        for alert in changed:
            if alert.told is None and alert.resolved_at and is_silenced(alert, silences):
                alert = alert._replace(told=_RESOLVED)
            _write(cursor, domain, alert)
    return changed


def alerts(cursor: Cursor, domain: str, limit: int | None = None) -> list[Alert]:
    """Those that are open, longest first; with a limit, the newest ones, resolved ones as well."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM alerts WHERE domain = %(domain)s"  # noqa: S608 - constants
        " AND (%(limit)s::bigint IS NOT NULL OR resolved_at IS NULL)"
        " ORDER BY CASE WHEN %(limit)s::bigint IS NULL THEN raised_at END, raised_at DESC,"
        " rule, scope LIMIT %(limit)s",
        {"domain": domain, "limit": limit},
    )
    return [_alert(*row) for row in rows]


def tell_alerts(platform: PlatformContext, now: datetime) -> int:
    """Tell what is not told yet and not silenced; how many changes the broker acknowledged."""
    with platform.database.transaction() as cursor:
        silences = active_silences(cursor, platform.domain, now)
        untold = [
            alert for alert in _untold(cursor, platform.domain) if not is_silenced(alert, silences)
        ]
    if not untold:
        return 0
    alarms = [_alarm(alert) for alert in untold]
    with published(platform.database, platform.catalogue) as catalogue:
        told = tell(platform.settings, catalogue, "health_alert", "alerts.tell", alarms)
    if told:
        with effect("alerts.mark_told"), platform.database.transaction() as cursor:
            for alert in untold:
                cursor.execute(
                    "UPDATE alerts SET told = %s WHERE alert_id = %s",
                    [alert.state, alert.alert_id],
                )
    return told


def silenced_among(found: Sequence[Alert], silences: Sequence[Silence]) -> set[UUID]:
    """The ids of those that are not told of for now."""
    return {alert.alert_id for alert in found if is_silenced(alert, silences)}


def _untold(cursor: Cursor, domain: str) -> list[Alert]:
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM alerts WHERE domain = %s"  # noqa: S608 - constants
        f" AND told IS DISTINCT FROM {_STATE} ORDER BY raised_at, rule, scope LIMIT 100",
        [domain],
    )
    return [_alert(*row) for row in rows]


def _alert(alert_id: UUID, rule: str, scope: str, tier: str, *rest: object) -> Alert:
    return Alert(alert_id, rule, scope, EnumTier(tier), *rest)  # type: ignore[arg-type]


def _write(cursor: Cursor, domain: str, alert: Alert) -> None:
    cursor.execute(
        f"INSERT INTO alerts (domain, {_COLUMNS})"  # noqa: S608 - constants
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (alert_id) DO UPDATE SET tier = excluded.tier, says = excluded.says,"
        " changed_at = excluded.changed_at, resolved_at = excluded.resolved_at,"
        " told = excluded.told",
        [domain, *alert],
    )


def _alarm(alert: Alert) -> Alarm:
    """An alert's change, named by alert and state: told again, it is the same event."""
    is_over = alert.resolved_at is not None
    name = f"{alert.rule} of {alert.scope}"
    return Alarm(
        correlation_id=uuid5(alert.alert_id, alert.state),
        error="HealthAlertResolved" if is_over else "HealthAlert",
        message=f"{name} is over." if is_over else f"{alert.tier}: {name}: {alert.says}",
        operation=_OPERATION,
        occurred_at=alert.changed_at,
        context={
            "alert_id": str(alert.alert_id),
            "rule": alert.rule,
            "scope": alert.scope,
            "tier": alert.tier.value,
            "state": alert.state,
            "raised_at": alert.raised_at.isoformat(),
            "changed_at": alert.changed_at.isoformat(),
        },
    )

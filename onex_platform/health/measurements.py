"""What was measured is kept for a while: alerts look back at it, metrics read the newest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.alert_rules import LOOKS_BACK, Measurement
from onex_platform.health.thresholds import METRICS, EnumLevel, Reading

_KEPT = 2 * LOOKS_BACK
# A measurement that is older says nothing of now.
FRESH_FOR = timedelta(minutes=10)


def note_measurement(cursor: Cursor, domain: str, measurement: Measurement) -> None:
    """Keep a measurement, and forget those that nobody looks back at."""
    cursor.execute(
        "INSERT INTO health_measurements (domain, measured_at, readings) VALUES (%s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [domain, measurement.at, Jsonb([list(item) for item in measurement.readings])],
    )
    cursor.execute(
        "DELETE FROM health_measurements WHERE domain = %s AND measured_at < %s",
        [domain, measurement.at - _KEPT],
    )


def measurements(cursor: Cursor, domain: str, since: datetime) -> list[Measurement]:
    """Those from this moment on, oldest first."""
    rows = cursor.execute(
        "SELECT measured_at, readings FROM health_measurements"
        " WHERE domain = %s AND measured_at >= %s ORDER BY measured_at",
        [domain, since],
    )
    return [Measurement(row.measured_at.astimezone(UTC), _readings(row.readings)) for row in rows]


def newest_measurement(cursor: Cursor, domain: str) -> Measurement | None:
    """The last one, however old."""
    row = cursor.execute(
        "SELECT measured_at, readings FROM health_measurements WHERE domain = %s"
        " ORDER BY measured_at DESC LIMIT 1",
        [domain],
    ).fetchone()
    return row and Measurement(row.measured_at.astimezone(UTC), _readings(row.readings))


def _readings(stored: list[list[object]]) -> list[Reading]:
    """As they were kept; a metric that another release knew is left out."""
    return [
        Reading(str(metric), str(scope), float(str(value)), EnumLevel(str(level)))
        for metric, scope, value, level in stored
        if metric in METRICS
    ]

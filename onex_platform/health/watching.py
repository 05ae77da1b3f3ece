"""One look at the service: measured, kept, alerts advanced and told, numbers published."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from onex_platform.base.errors import InfraError
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.health.alert_rules import LOOKS_BACK, Measurement
from onex_platform.health.alerting import Alert, advance, alerts, tell_alerts
from onex_platform.health.measurements import FRESH_FOR, newest_measurement
from onex_platform.health.measuring import measure
from onex_platform.health.met_events import publish_measurement
from onex_platform.health.silences import Silence, active_silences
from onex_platform.log.page_log import PageLog
from onex_platform.snapshots.publish.publish_times import forget_times
from onex_platform.topics.signals import Published


class Look(NamedTuple):
    """What a look came to."""

    measurement: Measurement
    changed: list[Alert]
    told: int


def look_after(platform: PlatformContext, log: PageLog, now: datetime) -> Look:
    """Measure, and let alerts follow; a broker that is away is told of later."""
    measurement = measure(platform, log, now)
    changed = advance(platform, measurement)
    with platform.database.transaction() as cursor:
        forget_times(cursor, platform.domain, now - LOOKS_BACK)
    return Look(measurement, changed, tell_alerts(platform, now))


def report(platform: PlatformContext, published: Published, measurement: Measurement) -> int:
    """Publish the numbers; how many the broker took, none if it is away."""
    try:
        return publish_measurement(platform.settings, published, measurement)
    except InfraError as error:
        get_logger(__name__).warning("health.not_published", error=error.message)
        return 0


class Standing(NamedTuple):
    """How things stand: the last measurement, unless it is old, open alerts, silences in force."""

    measurement: Measurement | None
    alerts: list[Alert]
    silences: list[Silence]


def standing(platform: PlatformContext, now: datetime) -> Standing:
    """Read what is known; nothing is measured or written."""
    with platform.database.transaction() as cursor:
        last = newest_measurement(cursor, platform.domain)
        return Standing(
            last if last is not None and now - last.at <= FRESH_FOR else None,
            alerts(cursor, platform.domain),
            active_silences(cursor, platform.domain, now),
        )

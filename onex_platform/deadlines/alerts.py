"""A hold is told once: as an event that other systems read, and in the log."""

from __future__ import annotations

from datetime import datetime

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.deadlines.scan_state import HoldRecord, holds, writing
from onex_platform.topics.alarms import Alarm, tell

_OPERATION = "scan_deadlines"


def alert_of_holds(platform: PlatformContext, now: datetime) -> int:
    """Tell of every hold that was not told yet; how many the broker has acknowledged.

    A hold is marked after the acknowledgement. Whoever is killed in between tells it again, under
    the same event id. A broker that does not answer fails no scan: the next one tries again.
    """
    untold = holds(platform, "untold")
    alarms = [_alarm(hold) for hold in untold]
    told = tell(platform.settings, platform.catalogue, "expiry_hold", "expiry_hold.alert", alarms)
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
        operation=_OPERATION,
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

"""A lane that stopped is told as an event that other systems read, and in the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.consumer import log_alert
from onex_platform.delivery.work import Alert
from onex_platform.topics.alarms import Alarm, tell
from onex_platform.topics.signals import Published

_OPERATION = "deliver_records"


def alarms_of(
    settings: Settings, published: Published, config: DeliveryConfig
) -> Callable[[int, Alert], None]:
    """What a `RetryingConsumer` is given as `on_alert`; a broker that is away costs seconds.

    `published` is asked with each alert, so a topic that moves meanwhile is followed. The platform
    gives it what asks the database (`migration.publication`).
    """

    def raise_alarm(partition: int, alert: Alert) -> None:
        now = datetime.now(UTC)
        place = f"{config.group}/{config.source}/{partition}"
        alarm = Alarm(
            correlation_id=uuid5(NAMESPACE_URL, f"{place}/{alert.name}/{now.isoformat()}"),
            error="DeliveryStopped",
            message=f"Delivery of {config.source} to {config.group}: {alert.message}",
            operation=_OPERATION,
            occurred_at=now,
            context={"alert": alert.name, "group": config.group, "partition": partition},
        )
        try:
            with published() as catalogue:
                tell(settings, catalogue, "delivery_stopped", "delivery.alert", [alarm])
        except InfraError as error:  # nobody says which topics are written
            log_alert(partition, alert)
            get_logger(__name__).warning("delivery_stopped_not_published", error=error)

    return raise_alarm

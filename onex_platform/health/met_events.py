"""What was measured, for those who read Kafka: a record for each number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.health.alert_rules import Measurement
from onex_platform.health.thresholds import METRICS
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.schemas.published_values import publish_values
from onex_platform.topics.signals import Published

SERVICE_HEALTH = StreamName("platform", "met", "service-health", 1)


def publish_measurement(settings: Settings, published: Published, measurement: Measurement) -> int:
    """Publish the numbers and wait for the broker, not for long; how many it acknowledged."""
    values = [(SERVICE_HEALTH, value["reading_name"], value) for value in values_of(measurement)]
    with published() as catalogue:
        return publish_values(settings, catalogue, values, "health.report")


def values_of(measurement: Measurement) -> Iterator[dict[str, Any]]:
    """What is told of each number."""
    for item in measurement.readings:
        yield {
            "reading_name": f"{item.metric} {item.scope}",
            "occurred_at": measurement.at.isoformat(),
            "metric_name": item.metric,
            "scope_name": item.scope,
            "unit": METRICS[item.metric].unit,
            "value": item.value,
            "level": item.level.value,
        }

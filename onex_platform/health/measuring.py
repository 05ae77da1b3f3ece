"""Measuring: every source is asked for its numbers; one that does not answer is a number itself.

Nothing here writes or starts Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from onex_platform.base.errors import InfraError
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import BreakerStateChangedPayload
from onex_platform.engines.kafka.clients import open_admin, read_to_end
from onex_platform.engines.kafka.group_offsets import offsets_at
from onex_platform.health.alert_rules import Measurement
from onex_platform.health.beats import beat_readings, limits_of, sample_beats
from onex_platform.health.thresholds import Reading, percentile_of_classes, reading
from onex_platform.health.topic_numbers import (
    error_readings,
    group_readings,
    lag_readings,
    rate_readings,
)
from onex_platform.log.page_log import PageLog
from onex_platform.migration.present import platform_now
from onex_platform.projections.write import outbox
from onex_platform.snapshots.publish.publish_times import publication_times
from onex_platform.topics.signals import impatient

WINDOW = timedelta(minutes=5)
_CLOSED = "CLOSED"


def measure(platform: PlatformContext, log: PageLog, now: datetime) -> Measurement:
    """All numbers at this moment; a broker that is away costs seconds."""
    platform = replace(platform, settings=impatient(platform.settings))
    sources: Mapping[str, Callable[[], list[Reading]]] = {
        "publishing": lambda: _publishing(platform, now),
        "breakers": lambda: _breakers(platform, now),
        "heartbeats": lambda: _heartbeats(log, now),
        "lag": lambda: lag_readings(platform, now),
        "rates": lambda: rate_readings(platform, now),
        "errors": lambda: error_readings(platform, now),
        "groups": lambda: group_readings(platform, now),
    }
    readings: list[Reading] = []
    for name, ask in sources.items():
        try:
            readings += ask()
            answered = True
        except InfraError as error:
            get_logger(__name__).warning("health.unanswered", source=name, error=error.message)
            answered = False
        readings.append(reading("unanswered", name, not answered))
    return Measurement(now, readings)


def _publishing(platform: PlatformContext, now: datetime) -> list[Reading]:
    """What the relay noted lately, and what waits for it."""
    with platform.database.transaction() as cursor:
        noted = publication_times(cursor, platform.domain, now - WINDOW)
        waiting = outbox.waiting(cursor, platform.domain)
    found = [
        reading("event_queue_depth", "events", waiting.events),
        reading("event_queue_depth", "snapshots", waiting.rows),
    ]
    for what, times in noted.items():
        acknowledged = sum(times.classes.values())
        success = 100 * acknowledged / (acknowledged + times.failed)
        found.append(reading("publish_success_percent", what, success))
        if acknowledged:
            for percent in (50, 99):
                value = percentile_of_classes(times.classes, percent / 100)
                found.append(reading(f"publish_latency_p{percent}_ms", what, value))
    return found


def _breakers(platform: PlatformContext, now: datetime) -> list[Reading]:
    """How many breakers were last said to be other than closed."""
    topic = platform_now(platform).catalogue.for_kind(EnumEventKind.BREAKER_STATE_CHANGED).topic
    with open_admin(platform.settings) as admin:
        began = offsets_at(admin, topic, now - WINDOW)
    states = {}
    for message in read_to_end(platform.settings, [topic], began):
        # Others may write there, too: what is no such event says nothing.
        with suppress(ValueError, TypeError, KeyError):
            payload = json.loads(message.value() or b"")["payload"]
            said = BreakerStateChangedPayload.model_validate(payload)
            states[said.service_name] = said.new_state
    still_open = sum(state != _CLOSED for state in states.values())
    return [reading("circuit_breaker_open_count", "platform", still_open)]


def _heartbeats(log: PageLog, now: datetime) -> list[Reading]:
    beats = sample_beats(log, now)
    return beat_readings(beats, limits_of(log, beats), log.settings.registration)

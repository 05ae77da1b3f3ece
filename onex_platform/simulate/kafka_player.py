"""A fleet on Kafka, in real time: time is the broker's, so every record is sent when it is due."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import FrameType

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin, open_producer
from onex_platform.engines.kafka.sender import Sender
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.migration.present import catalogue_now
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.records import Summary
from onex_platform.simulate.routes import Routes, routes_of
from onex_platform.topics.catalogue import Catalogue

_PROGRESS_SECONDS = 0.2
# The client's own limit would refuse the records that are too large on purpose; compressed, as
# they travel, they are within every broker's.
_ROOM_FOR_OVERSIZE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayReport:
    """What was played, and what the broker acknowledged of it, per topic."""

    summary: Summary
    acknowledged: Counter[str]
    interrupted: bool
    seconds: float

    @property
    def is_complete(self) -> bool:
        return self.acknowledged == self.summary.by_topic


def play_to_kafka(
    settings: Settings,
    catalogue: Catalogue,
    plan: FleetPlan,
    on_progress: Callable[[Fleet], None] | None = None,
) -> PlayReport:
    """Play the fleet to the catalogue's topics, from now on until the plan ends or Ctrl-C.

    `settings` are attached, and the topics exist. Nodes speak on the names and in the versions that
    topics had moved to when the fleet began. Every record is acknowledged on return; one that is
    refused raises.
    """
    routes = routes_of(catalogue_now(settings, catalogue))
    _require_topics(settings, routes)
    limit = {"message.max.bytes": plan.max_event_bytes + _ROOM_FOR_OVERSIZE}
    acknowledged: Counter[str] = Counter()
    with open_producer(settings, **limit) as producer, _interruption() as interruption:
        fleet = Fleet(replace(plan, start=datetime.now(UTC)), routes, live=True)
        sender = Sender(producer)
        started = time.monotonic()
        told = 0.0
        while not interruption.is_set() and fleet.next_at_ms is not None:
            _play_on(fleet, routes, sender, acknowledged)
            if on_progress is not None and time.monotonic() > told + _PROGRESS_SECONDS:
                told = time.monotonic()
                on_progress(fleet)
    return PlayReport(
        summary=fleet.summary(),
        acknowledged=acknowledged,
        interrupted=interruption.is_set(),
        seconds=time.monotonic() - started,
    )


def _require_topics(settings: Settings, routes: Routes) -> None:
    """Say at once what the client would only say after half a minute of looking for a topic."""
    with open_admin(settings) as admin:
        missing = {route.topic for route in routes.values()} - topic_names(admin)
    if missing:
        raise ConfigurationError(
            f"Kafka at {settings.kafka.bootstrap_servers} lacks the topics "
            f"{', '.join(sorted(missing))}.",
            hint="Create them with `onex topics create`.",
        )


@contextmanager
def _interruption() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, so that no record is lost between counting and sending it.

    The second is heard at once. Threads hear no signals: there the caller's handling stays.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, usual)

    usual = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, usual)


def _play_on(fleet: Fleet, routes: Routes, sender: Sender, acknowledged: Counter[str]) -> None:
    """Wait for what is due next, though never long, and send it if its time has come."""
    due = (fleet.next_at_ms or 0) / 1000
    sender.wait(max(0.0, due - time.time()))
    if time.time() < due or (record := fleet.play_next()) is None:
        return

    def on_appended(appended_ms: int) -> None:
        acknowledged[record.topic] += 1
        fleet.confirm(record, appended_ms)

    spoken = routes[record.kind, record.legacy].spoken
    value = None if record.value is None else spoken(record.value)
    sender.send(KafkaRecord(record.topic, value, record.key, record.headers), on_appended)

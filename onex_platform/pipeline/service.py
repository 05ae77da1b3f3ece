"""A run in service: it drains, publishes what that led to, and watches the clock.

The three are one loop, so that an event becomes a snapshot, and a silence a fact, without waiting
for another run. They don't depend on each other's luck: while Kafka takes nothing, rows are still
folded and wait in the outbox; while the clock can't be judged, everything else goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onex_platform.deadlines.scan import scan_when_due
from onex_platform.errors import InfraError
from onex_platform.pages.archive import PageArchive
from onex_platform.pipeline.loop import DrainAccount, drain
from onex_platform.snapshots.relay import OutboxRelay, RelayAccount, open_relay
from onex_platform.telemetry import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A batch that takes longer leaves the rest for after the next fold.
_PUBLISH_SECONDS = 5


@dataclass(slots=True)
class ServiceAccount:
    """What a run did, station by station; `failures` are those that it could go on without."""

    drained: DrainAccount
    published: RelayAccount = field(default_factory=RelayAccount)
    ack_timed_out: int = 0
    expired: int = 0
    held: int = 0  # as of the last scan
    failures: list[str] = field(default_factory=list)


def serve(
    spark: SparkSession,
    archive: PageArchive,
    *,
    linger_seconds: float | None = None,
    on_progress: Callable[[DrainAccount], None] = lambda account: None,
) -> ServiceAccount:
    """Drain, publish and watch until nothing new came for the linger time."""
    account = ServiceAccount(DrainAccount())
    with open_relay(archive.settings, engine=archive.engine, domain=archive.domain) as relay:
        account.drained = drain(
            spark,
            archive,
            linger_seconds=linger_seconds,
            companions=[_Publisher(relay, account), _Clock(archive, account)],
            on_progress=on_progress,
        )
    return account


@dataclass(slots=True)
class _Publisher:
    """Empties the outbox after each fold."""

    relay: OutboxRelay
    account: ServiceAccount

    def __call__(self, drained: DrainAccount) -> bool:
        with drained.timing("publish"):
            try:
                published = self.relay.publish_pending(_PUBLISH_SECONDS)
            except InfraError as error:
                _note(self.account, error)
                return False
        self.account.published += published
        return bool(published.published)


@dataclass(slots=True)
class _Clock:
    """Looks at the deadlines every now and then, and scans them when one has passed."""

    archive: PageArchive
    account: ServiceAccount
    _next: float = 0.0

    def __call__(self, drained: DrainAccount) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self.archive.settings.pipeline.clock_seconds
        with drained.timing("deadlines"):
            try:
                found = scan_when_due(self.archive, datetime.now(UTC))
            except InfraError as error:
                _note(self.account, error)
                return False
        if found is None:
            return False
        self.account.ack_timed_out += found.ack_timed_out
        self.account.expired += found.expired
        if not found.stood_back:
            self.account.held = found.held
        return bool(found.declared)


def _note(account: ServiceAccount, error: InfraError) -> None:
    """Once per kind of trouble: a broker that is away would fill the run's history with it."""
    if error.message not in account.failures:
        account.failures.append(error.message)
        get_logger(__name__).warning("pipeline.goes_on_without", error=error.message)

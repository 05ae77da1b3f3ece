"""A run in service: it drains, publishes what that led to, and watches the clock.

The three are one loop, so that an event becomes a snapshot, and a silence a fact, without waiting
for another run. They don't depend on each other's luck: while Kafka takes nothing, rows are still
folded and wait in the outbox; while the clock can't be judged, everything else goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from onex_platform.base.errors import InfraError
from onex_platform.base.garbage import collected_rarely
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.deadlines.scan import scan_when_due
from onex_platform.delivery.lease_heartbeats import beating
from onex_platform.engines.postgres.leases import LeaseKeeper, draining_lease
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_topics import publish_letters
from onex_platform.migration.publication import LastPublished
from onex_platform.pipeline.loop import DrainAccount, FixedTerm, Term, drain
from onex_platform.pipeline.record_watch import watching_records
from onex_platform.pipeline.spark_watch import watched_spark
from onex_platform.pipeline.tenure import Tenure, Terms, held_lease
from onex_platform.projections.backlog import measure_backlog
from onex_platform.projections.fold.reducer import rehearse_fold
from onex_platform.projections.fold.set_aside import alert_of_set_aside
from onex_platform.snapshots.publish.relay import OutboxRelay, RelayAccount, open_relay
from onex_platform.topics.signals import Published, publishing_breakers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What takes longer leaves the rest for after the next fold.
_PUBLISH_SECONDS = 10
# How soon somebody is told; a broker that does not answer costs a few seconds each time.
_ALARM_SECONDS = 2
# Nobody waits for a dead letter.
_LETTER_SECONDS = 10.0
_LONGEST_LETTER_SECONDS = 600.0


@dataclass(slots=True)
class ServiceAccount:
    """What a run did, station by station; `failures` are those that it could go on without."""

    drained: DrainAccount
    published: RelayAccount = field(default_factory=RelayAccount)
    ack_timed_out: int = 0
    expired: int = 0
    held: int = 0  # as of the last scan
    failures: list[str] = field(default_factory=list)


def work(
    spark: SparkSession,
    archive: PageArchive,
    keeper: LeaseKeeper,
    *,
    published: Published | None = None,
    run_id: str | None = None,
    terms: Terms | None = None,
    while_waiting: Callable[[], None] = lambda: None,
    on_lease: Callable[[], None] = lambda: None,
    on_progress: Callable[[DrainAccount], None] = lambda account: None,
) -> ServiceAccount:
    """Stand by, warm, until the domain's lease is free; then serve until somebody else stands by
    to take over, or nothing new came for the linger time.

    `while_waiting` is called again and again before it is our turn; what it raises ends the wait.
    `published` says where signs of life go; without it none are given.
    """

    def wait() -> None:
        watch.require()
        while_waiting()

    pipeline, name = archive.settings.pipeline, draining_lease(archive.domain)
    with (
        publishing_breakers(
            archive.settings, LastPublished(archive.database, archive.platform.catalogue)
        ),
        watched_spark(
            spark, pipeline.stall_seconds, lambda: keeper.give_back(name, "stalled")
        ) as watch,
        held_lease(
            keeper,
            archive.domain,
            run_id=run_id,
            warm_up=lambda: rehearse(spark, archive),
            while_waiting=wait,
        ) as lease,
        beating(
            archive.settings,
            published,
            name,
            seconds=archive.settings.health.lease_beat_seconds,
            fence=lease.number,
        ) as beat,
    ):
        lease.when_renewed = beat
        on_lease()
        tenure = Tenure(lease, keeper, watch, pipeline, terms or Terms.of_run(pipeline))
        account = serve(spark, archive.fenced(lease.fence), term=tenure, on_progress=on_progress)
        lease.end("handed_over" if tenure.handed_over else "released")
    return account


def rehearse(spark: SparkSession, archive: PageArchive) -> None:
    """Do once what a run does, without an effect: classes are loaded then, workers are forked,
    connections are open. Not even a failure has one: the run itself will tell."""
    try:
        measure_backlog(archive.platform)
        archive.rehearse_cut(spark)
        rehearse_fold(spark, archive.log)
    except Exception as error:
        get_logger(__name__).warning("pipeline.rehearsal_failed", error=str(error))


def serve(
    spark: SparkSession,
    archive: PageArchive,
    *,
    linger_seconds: float | None = None,
    term: Term | None = None,
    on_progress: Callable[[DrainAccount], None] = lambda account: None,
) -> ServiceAccount:
    """Drain, publish and watch until nothing new came for the linger time, or the term is over."""
    platform, account = archive.platform, ServiceAccount(DrainAccount())
    alarms = _Alarms(platform, account)
    with (
        collected_rarely(),
        open_relay(
            platform.settings,
            platform.catalogue,
            database=platform.database,
            domain=platform.domain,
        ) as relay,
        watching_records(platform) as wait,
        Publisher(
            relay, account, large_batch=platform.settings.pages.small_cut_events
        ) as publisher,
    ):
        account.drained = drain(
            spark,
            archive,
            term=term or FixedTerm(platform.settings.pipeline, linger_seconds),
            companions=[publisher, _Clock(platform, account), _Letters(platform, account), alarms],
            wait=wait,
            on_progress=on_progress,
        )
        publisher.finish(account.drained)
    alarms.tell()  # of what the last fold brought
    return account


class Publisher:
    """Empties the outbox after each fold, while the next cut is taken and folded.

    One publication at a time; what came of it is known when the next one begins. What a large batch
    led to, a herd's for instance, waits for one more cut, which takes its stragglers; then no cut
    is taken until it is published. That would read little but its echo, and take the processors
    from what others wait for.
    """

    def __init__(self, relay: OutboxRelay, account: ServiceAccount, *, large_batch: int) -> None:
        self._relay = relay
        self._account = account
        self._large_batch = large_batch
        self._thread = ThreadPoolExecutor(1, "publisher")
        self._under_way: Future[tuple[RelayAccount, float]] | None = None
        self._came = 0
        self._awaits_stragglers = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def __call__(self, drained: DrainAccount) -> bool:
        published = self.collect(drained)
        before, self._came = self._came, drained.rows + drained.facts
        is_large = self._came - before > self._large_batch
        if is_large and not self._awaits_stragglers:
            self._awaits_stragglers = True
            return True
        under_way = self._begin()
        if is_large or self._awaits_stragglers:
            wait([under_way])
        self._awaits_stragglers = False
        return published

    def finish(self, drained: DrainAccount) -> None:
        """Publish what waited for a cut that is not taken any more, and wait for the rest."""
        self.collect(drained)
        if self._awaits_stragglers:
            self._begin()
            self.collect(drained)

    def collect(self, drained: DrainAccount) -> bool:
        """Wait for the publication under way; whether there was anything to publish."""
        if self._under_way is None:
            return False
        under_way, self._under_way = self._under_way, None
        try:
            published, spent = under_way.result()
        except InfraError as error:
            _note(self._account, error)
            return False
        drained.spent("publish", spent)
        self._account.published += published
        return bool(published.published)

    def _begin(self) -> Future[tuple[RelayAccount, float]]:
        self._under_way = self._thread.submit(copy_context().run, self._publish)
        return self._under_way

    def _publish(self) -> tuple[RelayAccount, float]:
        began = time.monotonic()
        published = self._relay.publish_pending(_PUBLISH_SECONDS)
        return published, time.monotonic() - began


@dataclass(slots=True)
class _Clock:
    """Looks at the deadlines every now and then, and scans them when one has passed."""

    platform: PlatformContext
    account: ServiceAccount
    _next: float = 0.0

    def __call__(self, drained: DrainAccount) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self.platform.settings.pipeline.clock_seconds
        with drained.timing("deadlines"):
            try:
                found = scan_when_due(self.platform, datetime.now(UTC))
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


@dataclass(slots=True)
class _Alarms:
    """Tells of what stands still: once, and again while the broker does not take it."""

    platform: PlatformContext
    account: ServiceAccount
    _next: float = 0.0

    def __call__(self, drained: DrainAccount) -> bool:
        if time.monotonic() < self._next:
            return False
        with drained.timing("alarms"):
            self.tell()
        self._next = time.monotonic() + _ALARM_SECONDS
        return False

    def tell(self) -> None:
        try:
            alert_of_set_aside(self.platform, datetime.now(UTC))
        except InfraError as error:
            _note(self.account, error)


@dataclass(slots=True)
class _Letters:
    """Publishes dead letters; a topic that takes none is tried less and less often."""

    platform: PlatformContext
    account: ServiceAccount
    _pause: float = _LETTER_SECONDS
    _next: float = 0.0

    def __call__(self, drained: DrainAccount) -> bool:
        if time.monotonic() < self._next:
            return False
        with drained.timing("letters"):
            try:
                published = publish_letters(self.platform, datetime.now(UTC))
                self._pause = _LETTER_SECONDS
            except InfraError as error:
                _note(self.account, error)
                published, self._pause = 0, min(2 * self._pause, _LONGEST_LETTER_SECONDS)
        self._next = time.monotonic() + self._pause
        return bool(published)


def _note(account: ServiceAccount, error: InfraError) -> None:
    """Once per kind of trouble: a broker that is away would fill the run's history with it."""
    if error.message not in account.failures:
        account.failures.append(error.message)
        get_logger(__name__).warning("pipeline.goes_on_without", error=error.message)

"""The outbox's way to Kafka: snapshots and tombstones of rows, and the registry's own events.

What holds, wherever it is stopped:
- An entry leaves the outbox after the broker acknowledged it, never before. After a crash it is
  sent again: the same version of a snapshot, or an event under the same id.
- A snapshot's entry says that a row changed, not how: what is sent is the row as it is now, once,
  however many entries wait. A row that is closed or gone becomes a tombstone.
- Events keep the order of their entries, and don't wait for snapshots: those are a convenience.
- A row that is too large for the topic leaves the outbox without it, so that others go on. It is
  named, and the sweep finds it as long as that is so. Events are short: the registry wrote them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka import KafkaProducer, KafkaRecord, open_producer, produce_all
from onex_platform.engines.postgres import Engine, open_engine, transaction
from onex_platform.errors import InfraError
from onex_platform.faults import effect
from onex_platform.projections import outbox
from onex_platform.resilience import CircuitBreaker, shared_breaker
from onex_platform.settings import Settings
from onex_platform.snapshots.cloud_events import attributes
from onex_platform.snapshots.records import RowState, take_waiting_rows
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.snapshots.turns import publication_turn
from onex_platform.snapshots.writer import SnapshotWriter, Turn
from onex_platform.topics.catalogue import load_catalogue

_PUBLISHED_REQUESTS = """
    INSERT INTO published_ack_requests (domain, entity_id, published_at)
    SELECT %(domain)s, entity_id, clock_timestamp() FROM unnest(%(ids)s::uuid[]) AS entity_id
    ON CONFLICT (domain, entity_id) DO UPDATE SET published_at = excluded.published_at"""


@dataclass(slots=True)
class RelayAccount:
    """What was acknowledged, and what still waits; entries that became one record are coalesced.

    `too_large` are the entities whose snapshot the topic could not take.
    """

    snapshots: int = 0
    tombstones: int = 0
    events: int = 0
    coalesced: int = 0
    waiting: int = 0
    too_large: list[str] = field(default_factory=list)

    @property
    def published(self) -> int:
        return self.snapshots + self.tombstones + self.events

    def __iadd__(self, other: RelayAccount) -> Self:
        """What both published; what waits is what waited last."""
        self.snapshots += other.snapshots
        self.tombstones += other.tombstones
        self.events += other.events
        self.coalesced += other.coalesced
        self.waiting = other.waiting
        self.too_large = list(dict.fromkeys(self.too_large + other.too_large))
        return self


class OutboxRelay:
    """Empties one domain's outbox. Its producers open when first needed and stay open."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        breaker: CircuitBreaker,
        config: ModelSnapshotTopicConfig,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.breaker = breaker
        self.writer = SnapshotWriter(settings, engine, breaker, config)
        self._events = ExitStack()
        self._producer: KafkaProducer | None = None

    @property
    def domain(self) -> str:
        return self.writer.config.domain

    def publish_pending(self, seconds: float | None = None) -> RelayAccount:
        """Publish what waits, batch by batch, until nothing does or the time is over.

        With an empty outbox it costs one query. If snapshots can't be published, events still are,
        and the failure is raised afterwards.
        """
        account = RelayAccount()
        deadline = None if seconds is None else time.monotonic() + seconds
        waiting, failures = self.waiting(), []
        steps = {self._publish_events: waiting.events, self._publish_rows: waiting.rows}
        steps = {step: entries for step, entries in steps.items() if entries}
        while steps and (deadline is None or time.monotonic() < deadline):
            for step in list(steps):
                try:
                    if not step(account):
                        del steps[step]
                except InfraError as error:
                    failures.append(error)
                    del steps[step]
        if failures:
            raise failures[0]
        account.waiting = sum(self.waiting()) if steps else 0
        return account

    def close(self) -> None:
        self.writer.close()
        self._events.close()

    def waiting(self) -> outbox.Waiting:
        """What the broker has not acknowledged yet."""
        with transaction(self.engine, self.breaker) as cursor:
            return outbox.waiting(cursor, self.domain)

    def _publish_rows(self, account: RelayAccount) -> bool:
        """Publish a batch; whether there may be another."""
        return self.writer.in_turn(lambda turn: self._publish_rows_in(turn, account))

    def _publish_rows_in(self, turn: Turn, account: RelayAccount) -> bool:
        limit = self.settings.snapshots.batch_records
        taken = removed = 0

        def states(waiting: Iterable[tuple[str, str, str | None, int]]) -> Iterator[RowState]:
            nonlocal taken, removed
            for key, version, value, entries in waiting:
                taken += entries
                removed += value is None
                yield key, version, value

        # Removed here and now, but for others only when the turn ends: after the acknowledgement.
        with take_waiting_rows(turn.cursor, self.domain, limit) as waiting:
            sent = turn.send(states(waiting))
        account.tombstones += removed
        account.snapshots += sent.acknowledged - removed
        account.coalesced += taken - sent.acknowledged - len(sent.too_large)
        account.too_large += sent.too_large
        return taken == limit

    def _publish_events(self, account: RelayAccount) -> bool:
        """Publish a batch; whether there may be another."""
        limit = self.settings.snapshots.batch_records
        turn = publication_turn(self.settings, self.engine, self.breaker, self.domain, "events")
        with turn as cursor:
            entries = outbox.pending_events(cursor, self.domain, limit)
            if not entries:
                return False
            with effect("events.send"):
                self._send_events([self._to_record(entry) for entry in entries])
            outbox.acknowledge(cursor, self.domain, [entry.id for entry in entries])
            requests = {e.entity_id for e in entries if e.event_kind == EnumEventKind.ACK_REQUESTED}
            cursor.execute(_PUBLISHED_REQUESTS, {"domain": self.domain, "ids": list(requests)})
        account.events += len(entries)
        return len(entries) == limit

    def _send_events(self, records: list[KafkaRecord]) -> None:
        if self._producer is None:
            # As patient as a snapshot's transaction: PostgreSQL's is open meanwhile.
            limit = int(self.settings.snapshots.transaction_seconds * 1000)
            producer = open_producer(self.settings, **{"delivery.timeout.ms": limit})
            self._producer = self._events.enter_context(producer)
        try:
            produce_all(self._producer, records)
        except BaseException:
            self._producer = None
            with suppress(InfraError):  # entered with an error, it does not wait for long
                self._events.__exit__(*sys.exc_info())
            raise

    def _to_record(self, entry: Any) -> KafkaRecord:
        topic = load_catalogue().for_kind(EnumEventKind(entry.event_kind)).topic
        key = entry.event_key or str(entry.event_id)
        cloudy = self.settings.snapshots.cloud_events
        headers = attributes(entry.envelope, key) if cloudy else []
        return KafkaRecord(topic, entry.envelope, key, headers)


@contextmanager
def open_relay(
    settings: Settings,
    config: ModelSnapshotTopicConfig | None = None,
    *,
    engine: Engine | None = None,
    domain: str = REGISTRATION_DOMAIN,
) -> Iterator[OutboxRelay]:
    """A relay for the block; by itself it opens nothing. An engine that is given stays open."""
    opened = open_engine(settings) if engine is None else engine
    breaker = shared_breaker("PostgreSQL", settings.breaker)
    config = config or ModelSnapshotTopicConfig.default(settings.environment, domain)
    relay = OutboxRelay(settings, opened, breaker, config)
    try:
        yield relay
    finally:
        relay.close()
        if engine is None:
            opened.dispose()

"""The outbox's way to Kafka: snapshots and tombstones of rows, and the registry's own events.

What holds, wherever it is stopped:
- An entry leaves the outbox after the broker acknowledged it, never before. After a crash it is
  sent again: the same version of a snapshot, or an event under the same id.
- A snapshot's entry says that a row changed, not how: what is sent is the row as it is now, once,
  however many entries wait. A row that is closed or gone becomes a tombstone.
- Events keep the order of their entries, and don't wait for snapshots: those are a convenience.
- A row that is too large for the topic leaves the outbox without it, so that others go on. It is
  named, and the sweep finds it as long as that is so.
- An event that Kafka refuses for what it is, or whose tenant has no key for its private fields, and
  those of its node behind it, stay in the outbox in their order; the node is named, told of and
  tried again later. All others are published. What was sent behind such an event is sent again
  after it, under the same id.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import dropwhile
from operator import attrgetter
from typing import Any, Self

from onex_platform.base.errors import InfraError, MissingTenantKeyError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka.clients import KafkaProducer, KafkaRecord, open_producer
from onex_platform.engines.kafka.sender import send_each
from onex_platform.engines.postgres.database import Database, database_of
from onex_platform.migration.phase_table import phases_to_publish_by
from onex_platform.projections.fold.containment import fault_of, is_of_a_node
from onex_platform.projections.snapshot_rows import RowState, take_waiting_rows
from onex_platform.projections.write import outbox
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.publish.cloud_events import attributes
from onex_platform.snapshots.publish.held_events import alert_of_held
from onex_platform.snapshots.publish.publish_times import What, note_failed, note_published
from onex_platform.snapshots.publish.publisher_lock import publication_lock
from onex_platform.snapshots.publish.writer import Publication, SnapshotWriter
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.signals import wrapped

# Nodes with an event that can't be published: the first such entry, and why.
Refused = dict[str, tuple[Any, str]]


@dataclass(slots=True)
class RelayAccount:
    """What was acknowledged, and what still waits; entries that became one record are coalesced.

    `too_large` are the entities whose snapshot the topic could not take, `held` those with an event
    that can't be published.
    """

    snapshots: int = 0
    tombstones: int = 0
    events: int = 0
    coalesced: int = 0
    waiting: int = 0
    too_large: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)

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
        self.held = list(dict.fromkeys(self.held + other.held))
        return self


class OutboxRelay:
    """Empties one domain's outbox. Its producers open when first needed and stay open."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        catalogue: Catalogue,
        config: ModelSnapshotTopicConfig,
    ) -> None:
        self.settings = settings
        self.database = database
        self.catalogue = catalogue
        self.writer = SnapshotWriter(settings, database, catalogue, config)
        self._wrapper = Wrapper(settings)
        self._wrapper.require_keys(
            contract.publish_rules for contract in catalogue if "node" not in contract.producers
        )
        self._events = ExitStack()
        self._producer: KafkaProducer | None = None
        self._outlets = cache(catalogue.outlets)

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
                    self._note_failed(step, steps.pop(step))
        if account.held:
            alert_of_held(self.settings, self.catalogue, self.database, self.domain)
        if failures:
            raise failures[0]
        account.waiting = sum(self.waiting()) if steps else 0
        return account

    def close(self) -> None:
        self.writer.close()
        self._events.close()

    def waiting(self) -> outbox.Waiting:
        """What the broker has not acknowledged yet."""
        with self.database.transaction() as cursor:
            return outbox.waiting(cursor, self.domain)

    def _note_failed(self, step: Callable[[RelayAccount], bool], entries: int) -> None:
        what: What = "events" if step == self._publish_events else "snapshots"
        tried = min(entries, self.settings.snapshots.batch_records)
        with suppress(InfraError), self.database.transaction() as cursor:
            note_failed(cursor, self.domain, what, tried)

    def _publish_rows(self, account: RelayAccount) -> bool:
        """Publish a batch; whether there may be another."""
        return self.writer.exclusively(
            lambda publication: self._publish_rows_in(publication, account)
        )

    def _publish_rows_in(self, publication: Publication, account: RelayAccount) -> bool:
        limit = self.settings.snapshots.batch_records
        taken = removed = 0

        def states(
            waiting: Iterable[tuple[str, str, str | None, str | None, int]],
        ) -> Iterator[RowState]:
            nonlocal taken, removed
            for key, version, value, tenant, entries in waiting:
                taken += entries
                removed += value is None
                yield key, version, value, tenant

        # Removed here and now, but for others only when the turn ends: after the acknowledgement.
        began = time.monotonic()
        with take_waiting_rows(publication.cursor, self.domain, limit) as waiting:
            sent = publication.send(states(waiting))
        seconds = time.monotonic() - began
        note_published(publication.cursor, self.domain, "snapshots", sent.acknowledged, seconds)
        note_failed(publication.cursor, self.domain, "snapshots", len(sent.too_large))
        account.tombstones += removed
        account.snapshots += sent.acknowledged - removed
        account.coalesced += taken - sent.acknowledged - len(sent.too_large)
        account.too_large += sent.too_large
        return taken == limit

    def _publish_events(self, account: RelayAccount) -> bool:
        """Publish a batch; whether there may be another."""
        limit = self.settings.snapshots.batch_records
        lock = publication_lock(self.settings, self.database, self.domain, "events.mark")
        with lock as cursor:
            entries = outbox.pending_events(cursor, self.domain, limit)
            if not entries:
                return False
            # Asked for each batch, and kept until it is marked: a change of phase waits for us.
            self._outlets = cache(self.catalogue.at(phases_to_publish_by(cursor)).outlets)
            began = time.monotonic()
            with effect("events.send"):
                refused = self._send_events(entries)
            seconds = time.monotonic() - began
            sent = [e for e in entries if _is_before(e, refused)] if refused else entries
            outbox.acknowledge(cursor, self.domain, [entry.id for entry in sent])
            requests = {e.entity_id for e in sent if e.event_kind == EnumEventKind.ACK_REQUESTED}
            outbox.note_requests(cursor, self.domain, requests)
            well = (entry.entity_id for entry in sent if entry.entity_id not in refused)
            outbox.let_go(cursor, self.domain, well)
            outbox.hold(cursor, self.domain, refused)
            note_published(cursor, self.domain, "events", len(sent), seconds)
            note_failed(cursor, self.domain, "events", len(refused))
        account.events += len(sent)
        account.held += refused
        return len(entries) == limit

    def _send_events(self, entries: list[Any]) -> Refused:
        """Send the events; of each node with one that is refused, the first such entry, and why."""
        if self._producer is None:
            # As patient as a snapshot's transaction: PostgreSQL's is open meanwhile.
            limit = int(self.settings.snapshots.transaction_seconds * 1000)
            producer = open_producer(self.settings, **{"delivery.timeout.ms": limit})
            self._producer = self._events.enter_context(producer)
        try:
            return self._deliver(self._producer, entries)
        except BaseException:
            self._producer = None
            with suppress(InfraError):  # entered with an error, it does not wait for long
                self._events.__exit__(*sys.exc_info())
            raise

    def _deliver(self, producer: KafkaProducer, entries: list[Any]) -> Refused:
        """Send events in their order.

        The broker refuses an event together with those that travel with it. So whoever has one
        refused is tried again from there on, with half of the others, and at last alone.
        """
        failed = self._attempt(producer, entries)
        if not failed:
            return Refused()
        waiting: dict[str, list[Any]] = {}
        for entry in entries:
            waiting.setdefault(entry.entity_id, []).append(entry)
        tails = {
            node: tail
            for node, some in waiting.items()
            if (tail := list(dropwhile(lambda e: e.id not in failed, some)))
        }
        if len(waiting) == 1:
            return self._one_by_one(producer, tails)
        nodes, refused = list(tails), Refused()
        for part in (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]):
            theirs = sorted((e for node in part for e in tails[node]), key=attrgetter("id"))
            if theirs:
                refused |= self._deliver(producer, theirs)
        return refused

    def _one_by_one(self, producer: KafkaProducer, tails: dict[str, list[Any]]) -> Refused:
        """Send a node's events, up to the first that is refused."""
        for node, entries in tails.items():
            for entry in entries:
                if failed := self._attempt(producer, [entry]):
                    return Refused({node: (entry, failed[entry.id])})
        return Refused()

    def _attempt(self, producer: KafkaProducer, entries: list[Any]) -> dict[int, str]:
        """Send entries; why some were refused, by their ids."""
        failed: dict[int, str] = {}
        ids: list[int] = []
        records: list[KafkaRecord] = []
        for entry in entries:
            try:
                made = self._to_records(entry)
            except Exception as error:
                if not isinstance(error, MissingTenantKeyError) and not is_of_a_node(error):
                    raise
                failed[entry.id] = fault_of(error).error
                continue
            ids += [entry.id] * len(made)
            records += made
        refused = send_each(producer, records)
        return failed | {ids[place]: error for place, error in refused.items()}

    def _to_records(self, entry: Any) -> list[KafkaRecord]:
        """One record, or two while the topic of such events moves."""
        key = entry.event_key or entry.event_id
        cloudy = self.settings.snapshots.cloud_events
        return wrapped(
            self._wrapper,
            self._outlets(EnumEventKind(entry.event_kind)),
            key,
            entry.envelope,
            more=attributes(entry.envelope, key) if cloudy else (),
        )


def _is_before(entry: Any, refused: Refused) -> bool:
    """Whether an entry was sent, and nothing of its node before it was refused."""
    if entry.entity_id not in refused:
        return True
    first, _ = refused[entry.entity_id]
    return bool(entry.id < first.id)


@contextmanager
def open_relay(
    settings: Settings,
    catalogue: Catalogue,
    config: ModelSnapshotTopicConfig | None = None,
    *,
    database: Database | None = None,
    domain: str = REGISTRATION_DOMAIN,
) -> Iterator[OutboxRelay]:
    """A relay for the block; by itself it opens nothing. A database that is given stays open."""
    config = config or ModelSnapshotTopicConfig.default(catalogue, settings.environment, domain)
    with database_of(settings, database) as opened:
        relay = OutboxRelay(settings, opened, catalogue, config)
        try:
            yield relay
        finally:
            relay.close()

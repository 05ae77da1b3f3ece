"""Copies a topic's events to another topic, for producers that can't write both.

What holds, wherever it is stopped, and whoever else writes the destination:
- An event that the destination has is not copied again: before anything is sent, the destination is
  read from the time of the oldest waiting record on. So a crash between sending and noting the
  position repeats nothing that it could see.
- Records of a partition are taken in order, and sent through one producer that leaves no gap. Key,
  headers, event id and, where both topics have as many partitions, the partition stay the same.
- A record of a producer that writes both (`ALSO_ON`) is left to that producer until it has settled.
  If the other record has not come by then, the producer died in between, and the mirror sends it.
- A copy names the topic that it came from (`MIRRORED_FROM`) and is never copied home: it may be
  younger than anything that is looked at there.
- A record that can't be lifted, or is too large for the destination, is named, and holds up its
  partition; the others go on.
- A position moves after the broker has acknowledged everything before it.

`Route.copy` is what a record becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple, Self, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger, redact
from onex_platform.engines.kafka.clients import (
    Deliveries,
    KafkaProducer,
    Positions,
    flush_all,
    open_admin,
    open_producer,
    read_to_end,
    translated,
)
from onex_platform.engines.kafka.group_offsets import end_offsets, first_offsets, offsets_at
from onex_platform.engines.kafka.topic_admin import most_bytes
from onex_platform.engines.kafka.transactions import record_bytes
from onex_platform.engines.postgres.database import Database
from onex_platform.migration import phase_table
from onex_platform.migration.event_ids import Headers, event_id_of, id_to_add
from onex_platform.topics.catalogue import ALSO_ON
from onex_platform.topics.migration_intent import Lift

# On each copy: the topic of the record that it was made of.
MIRRORED_FROM = "x-mirrored-from"
BATCH_RECORDS = 2000
_BEGINNING = datetime.fromtimestamp(0, UTC)
_QUEUE_WAIT_SECONDS = 0.5
# What lengths and the like add to a record, and to each of its headers.
_FIELD_BYTES = 40


class Copy(NamedTuple):
    """A record for the destination."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    partition: int  # -1: by the key

    @property
    def size(self) -> int:
        """Its bytes on the wire, at most."""
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        fields = 1 + len(self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers + fields * _FIELD_BYTES


@dataclass(frozen=True)
class Route:
    """From where to where, and what a value goes through on the way."""

    origin: str
    destination: str
    lift: Lift | None
    settle: timedelta
    # The destination may have been made anew: it gets all that it lacks, also what was there once.
    refills: bool = False

    def copy(self, message: Message, *, same_partitions: bool) -> Copy:
        """The record as the destination's readers expect it."""
        key, value = _bytes(message.key()), _bytes(message.value())
        marks = (ALSO_ON, MIRRORED_FROM)
        headers = [(name, content) for name, content in headers_of(message) if name not in marks]
        headers += id_to_add(key, value, headers)
        headers.append((MIRRORED_FROM, self.origin))
        lifted = value if value is None or self.lift is None else self.lift.apply(value)
        kind, stamp = message.timestamp()
        return Copy(
            lifted,
            key,
            headers,
            stamp if kind == TIMESTAMP_CREATE_TIME else 0,
            cast("int", message.partition()) if same_partitions else -1,
        )

    def would_return(self, headers: Headers) -> bool:
        """Whether the record is itself a copy of one that the destination has."""
        home = self.destination
        return not self.refills and any(
            name == MIRRORED_FROM and content in (home, home.encode()) for name, content in headers
        )


@dataclass
class MirrorAccount:
    """What one pass did: copied, found on the destination, left for later, and where it stopped
    at a record that can't be copied, with the reason."""

    copied: int = 0
    known: int = 0
    waiting: int = 0
    stuck: list[str] = field(default_factory=list)

    def __iadd__(self, other: MirrorAccount) -> Self:
        self.copied += other.copied
        self.known += other.known
        self.waiting += other.waiting
        self.stuck += other.stuck
        return self


@dataclass
class _Known:
    """The events that the destination has, as far as it was read."""

    settings: Settings
    topic: str
    since: datetime
    reached: Positions
    ids: set[str] = field(default_factory=set)

    def refresh(self) -> None:
        for message in read_to_end(self.settings, [self.topic], self.reached):
            self.ids.add(id_of(message))
            self.reached[place_of(message)] = cast("int", message.offset()) + 1


def mirror_once(
    settings: Settings, database: Database, route: Route, until: Positions | None = None
) -> MirrorAccount:
    """Copy what the origin has beyond the mirror's position, `until` there or till its end now; one
    pass at a time, anywhere.

    A mirror that was never set to a beginning does nothing.
    """
    with phase_table.mirror_alone(database, route.origin, route.destination):
        with database.transaction() as cursor:
            start = phase_table.mirror_positions(cursor, route.origin, route.destination)
        if not start:
            return MirrorAccount()
        return _Pass(settings, database, route, start, until).run()


class _Pass:
    """The state of one pass."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        route: Route,
        start: Positions,
        until: Positions | None,
    ) -> None:
        self._settings, self._database, self._route = settings, database, route
        self._positions = start
        self._settled = datetime.now(UTC) - route.settle
        self._held: set[tuple[str, int]] = set()
        self._known: _Known | None = None
        self._account = MirrorAccount()
        with open_admin(settings) as admin:
            self._ends = until or end_offsets(admin, route.origin)
            self._first = first_offsets(admin, route.origin)
            _require_kept(self._first, start)
            other = end_offsets(admin, route.destination)
            self._most_bytes = record_bytes(most_bytes(admin, route.destination))
        self._same_partitions = len(other) == len(self._ends)

    def run(self) -> MirrorAccount:
        # A partition that was added meanwhile is read from its beginning.
        start = {**self._first, **self._positions}
        records = read_to_end(self._settings, [self._route.origin], start, dict(self._ends))
        # One that the broker refused would end the producer, so what is too large is never sent.
        config = {"enable.gapless.guarantee": True, "message.max.bytes": self._most_bytes}
        with open_producer(self._settings, **config) as producer:
            for batch in _batches(records, BATCH_RECORDS):
                self._copy(producer, batch)
        # Markers of transactions take offsets, too, and are no records.
        rest = {
            place: end
            for place, end in self._ends.items()
            if place not in self._held and self._positions.get(place, 0) < end
        }
        if rest:
            self._advance(rest)
        return self._account

    def _copy(self, producer: KafkaProducer, batch: list[Message]) -> None:
        """Send what the destination lacks, then note the position."""
        known = self._refreshed(batch)
        copies, passed = [], Positions()
        for message in batch:
            place, event_id = place_of(message), id_of(message)
            if place in self._held:
                self._account.waiting += 1
            elif event_id in known.ids or self._route.would_return(headers_of(message)):
                self._account.known += 1
                passed[place] = cast("int", message.offset()) + 1
            elif self._is_left_to_its_producer(message):
                self._held.add(place)
                self._account.waiting += 1
            elif (copy := self._copied(message)) is None:
                self._held.add(place)
            else:
                copies.append(copy)
                known.ids.add(event_id)
                passed[place] = cast("int", message.offset()) + 1
        if copies:
            with effect("migration.mirror_send"):
                _send(producer, self._route.destination, copies)
        if passed:
            self._advance(passed)
        self._account.copied += len(copies)

    def _copied(self, message: Message) -> Copy | None:
        """What the record becomes; None and named if that can't be, or can't be sent."""
        try:
            copy = self._route.copy(message, same_partitions=self._same_partitions)
        except Exception as error:  # a function of the intent's may raise anything
            reason = redact(f"{type(error).__name__}: {error}")
        else:
            if copy.size <= self._most_bytes:
                return copy
            reason = f"{copy.size} bytes, and {self._route.destination} takes {self._most_bytes}"
        where = f"{message.topic()}[{message.partition()}] {message.offset()}"
        self._account.stuck.append(f"{where}: {reason}")
        get_logger(__name__).error("migration.not_copied", record=where, reason=reason)
        return None

    def _advance(self, passed: Positions) -> None:
        with effect("migration.mirror_advance"), self._database.transaction() as cursor:
            phase_table.move_mirror(cursor, self._route.destination, passed)
        self._positions |= passed

    def _refreshed(self, batch: list[Message]) -> _Known:
        """What the destination has, from before the oldest record of the batch on: partitions are
        read one after the other, and a later one may begin earlier."""
        oldest = datetime.fromtimestamp(min(m.timestamp()[1] for m in batch) / 1000, UTC)
        whole = self._route.refills
        since = _BEGINNING if whole else max(oldest - self._route.settle, _BEGINNING)
        if self._known is None or since < self._known.since:
            with open_admin(self._settings) as admin:
                reached = offsets_at(admin, self._route.destination, since)
            self._known = _Known(self._settings, self._route.destination, since, reached)
        self._known.refresh()
        return self._known

    def _is_left_to_its_producer(self, message: Message) -> bool:
        marked = any(name == ALSO_ON for name, _ in headers_of(message))
        return marked and message.timestamp()[1] / 1000 > self._settled.timestamp()


def id_of(message: Message) -> str:
    """The id of a record's event."""
    return event_id_of(_bytes(message.key()), _bytes(message.value()), headers_of(message))


def place_of(message: Message) -> tuple[str, int]:
    return cast("tuple[str, int]", (message.topic(), message.partition()))


def headers_of(message: Message) -> Headers:
    return cast("Headers", message.headers() or [])


def _require_kept(first: Positions, start: Positions) -> None:
    """Refuse to go on over records that were deleted before they were copied."""
    for (topic, partition), offset in start.items():
        kept = first.get((topic, partition), offset)
        if kept > offset:
            raise InfraError(
                f"{topic}[{partition}] lost offsets {offset} to {kept - 1} before they were "
                "mirrored.",
                hint="Go back with `onex migrate rollback`; keep the mirror running next time.",
            )


def _send(producer: KafkaProducer, topic: str, copies: Iterable[Copy]) -> None:
    deliveries = Deliveries()
    with translated(producer.settings, f"take the copies for {topic}"):
        for copy in copies:
            _enqueue(producer, topic, copy, deliveries)
        flush_all(producer)
        deliveries.require_no_failure()


def _enqueue(producer: KafkaProducer, topic: str, copy: Copy, deliveries: Deliveries) -> None:
    while True:
        try:
            producer.produce(
                topic,
                copy.value,
                copy.key,
                partition=copy.partition,
                headers=list(copy.headers),
                timestamp=copy.timestamp_ms,
                on_delivery=deliveries.note,
            )
            return
        except BufferError:
            producer.poll(_QUEUE_WAIT_SECONDS)
            deliveries.require_no_failure()


def _batches(records: Iterator[Message], size: int) -> Iterator[list[Message]]:
    while batch := list(islice(records, size)):
        yield batch


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content

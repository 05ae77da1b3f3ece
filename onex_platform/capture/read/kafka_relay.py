"""Captured registration events go on to the catalogue's Kafka topics, in order, at least once.

The relay reads from the durable watermark, not from pages: a heartbeat must not wait for a page. An
event that names a topic in its attributes is sent there; its segment of the log stays until the
broker has acknowledged it, and only then the writer's cursor moves. A crash in between sends it
again, which the ledger of event ids makes harmless.

The relay's delay is ours. It leaves marks in PostgreSQL that say what was relayed when; the
deadline watch takes no moment for evident that a mark does not cover (`evident_until`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.wal.segments import Location
from onex_platform.capture.writers import WriterKey
from onex_platform.checks import Verdict
from onex_platform.engines.kafka.clients import KafkaProducer, KafkaRecord, open_producer
from onex_platform.engines.kafka.sender import send_each
from onex_platform.engines.postgres.database import Cursor, Database, open_database
from onex_platform.records.wrapping import Wrapper

TOPIC = "x-onex-topic"
KEY = "x-onex-key"
_BATCH = 500
_MARK_SECONDS = 1.0
_UNSEEN_SECONDS = 1.0  # an event this young may have arrived and not be in the log yet
_KEPT_MARKS = timedelta(hours=1)
_SILENT = timedelta(seconds=60)
_LONGEST_PAUSE_SECONDS = 30.0  # between attempts: whoever waits for us is the deadline watch


class Captured(NamedTuple):
    """An event that waits to be relayed; the log has it."""

    key: WriterKey
    sequence: int
    arrived_at: float  # wall clock, seconds
    location: Location


class RelayStore(Protocol):
    """Where cursors and marks stand."""

    def cursors(self) -> dict[WriterKey, int]: ...

    def relayed_until(self) -> float | None:
        """The last mark: everything that arrived before was relayed."""
        ...

    def advance(self, cursors: dict[WriterKey, int], relayed_until: float) -> None:
        """Move cursors and leave a mark, together."""
        ...

    def retire(self) -> None:
        """Nothing is left to relay, and nothing will come: the watch need not wait for us."""
        ...


class Relay:
    """Lives on the service's loop; sending and PostgreSQL happen in threads."""

    def __init__(
        self,
        topics: Sequence[str],
        send: Callable[[Sequence[CapturedEvent]], None],
        store: RelayStore,
        backoff: Backoff | None = None,
    ) -> None:
        self._topics = frozenset(topics)
        self._send = send
        self._store = store
        self._backoff = backoff or Backoff(max_seconds=_LONGEST_PAUSE_SECONDS)
        self._cursors: dict[WriterKey, int] = {}
        self._last_mark: float | None = None  # not asked yet
        self._waiting: deque[Captured] = deque()
        self._news = asyncio.Event()

    async def open(self) -> bool:
        """Take up cursors and marks; False if the store can't be asked now. Then everything for
        our topics waits, and `run` goes on asking: capturing must not wait for PostgreSQL."""
        try:
            await asyncio.to_thread(self._take_up)
        except InfraError as error:
            get_logger(__name__).warning("capture.relay_waits", error=str(error))
            return False
        return True

    def _take_up(self) -> None:
        """Let the watch know of us before the first event can come."""
        cursors, mark = self._store.cursors(), self._store.relayed_until()
        if mark is None:
            mark = time.time()
            self._store.advance({}, mark)
        self._cursors, self._last_mark = cursors, mark

    def wants(self, event: CapturedEvent) -> bool:
        """Whether the event is for a topic of ours and was not relayed before."""
        if event.attributes.get(TOPIC) not in self._topics:
            return False
        return event.sequence > self._cursors.get((event.tenant, event.writer_id), 0)

    def add(self, event: CapturedEvent, location: Location, *, recovered: bool = False) -> None:
        """Let an event wait. One that an earlier process captured arrived when its mark stood, or
        before: no mark may pass it."""
        arrived_at = 0.0 if recovered else time.time()
        key = (event.tenant, event.writer_id)
        self._waiting.append(Captured(key, event.sequence, arrived_at, location))
        self._news.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(
        self,
        read: Callable[[Location], CapturedEvent],
        relayed: Callable[[Sequence[Captured]], None],
    ) -> None:
        """Send whatever waits, for ever; `relayed` hears when the log may forget events."""
        failures = 0
        while self._last_mark is None:
            if not await self.open():
                failures += 1
                await asyncio.sleep(self._backoff.delay(failures))
        self._drop_relayed(relayed)
        failures = 0
        while True:
            batch = [self._waiting[place] for place in range(min(len(self._waiting), _BATCH))]
            try:
                await asyncio.to_thread(self._relay, batch, read)
            except InfraError as error:
                failures += 1
                get_logger(__name__).warning("capture.relay_failed", error=str(error))
                await asyncio.sleep(self._backoff.delay(failures))
                continue
            failures = 0
            for _ in batch:
                self._waiting.popleft()
            relayed(batch)
            await self._rest()

    def _drop_relayed(self, relayed: Callable[[Sequence[Captured]], None]) -> None:
        """Forget what began to wait before the cursors were known, and was sent long ago."""
        sent = [one for one in self._waiting if one.sequence <= self._cursors.get(one.key, 0)]
        if sent:
            known = set(sent)
            self._waiting = deque(one for one in self._waiting if one not in known)
            relayed(sent)

    async def _rest(self) -> None:
        if self._waiting:
            return
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), _MARK_SECONDS)
        except TimeoutError:
            return

    def _relay(self, batch: Sequence[Captured], read: Callable[[Location], CapturedEvent]) -> None:
        """Send a batch and move the cursors; an empty one only says that nothing waits."""
        now = time.time()
        if batch:
            with effect("relay.send"):
                self._send([read(captured.location) for captured in batch])
        moved = {captured.key: captured.sequence for captured in batch}
        following = self._waiting[len(batch)].arrived_at if len(self._waiting) > len(batch) else now
        mark = max(min(following, now - _UNSEEN_SECONDS), self._last_mark or 0.0)
        with effect("relay.advance"):
            self._store.advance(moved, mark)
        self._last_mark = mark
        self._cursors |= moved

    def retire_if_done(self) -> None:
        """On an orderly end: nobody need wait for an instance that holds nothing back. If that
        can't be noted, the watch waits for the next start, or for an operator."""
        if self._waiting or self._last_mark is None:
            return
        try:
            self._store.retire()
        except InfraError as error:
            get_logger(__name__).warning("capture.relay_not_retired", error=str(error))


@contextmanager
def open_relay(settings: Settings, instance: str, topics: Sequence[str]) -> Iterator[Relay]:
    """A relay to the platform's Kafka, with its cursors in the platform's database."""
    # The relay tries again itself; a service that is told to stop must not wait for a broker, nor
    # one that starts: the producer is opened when there is something to send.
    patience = {"delivery.timeout.ms": 5000}
    opened = ExitStack()
    sender: Callable[[Sequence[CapturedEvent]], None] | None = None

    def send(events: Sequence[CapturedEvent]) -> None:
        nonlocal sender
        if sender is None:
            producer = opened.enter_context(open_producer(settings, **patience))
            sender = kafka_sender(producer, Wrapper(settings))
        sender(events)

    with opened, open_database(settings) as database:
        yield Relay(topics, send, PostgresRelayStore(database, instance))


def kafka_sender(
    producer: KafkaProducer, wrapper: Wrapper
) -> Callable[[Sequence[CapturedEvent]], None]:
    """Sends events to the topics that they name and waits for the acknowledgements."""

    def send(events: Sequence[CapturedEvent]) -> None:
        refused = send_each(producer, [kafka_record(event, wrapper) for event in events])
        for place, reason in refused.items():
            # It stays in its page, from where an operator may replay it.
            event_id = events[place].event_id
            get_logger(__name__).error("capture.relay_refused", event_id=event_id, reason=reason)

    return send


def kafka_record(event: CapturedEvent, wrapper: Wrapper) -> KafkaRecord:
    """An event as a record: its other attributes become headers, with those beside them that its
    writer left out."""
    headers = [
        (name, value) for name, value in event.attributes.items() if name not in {TOPIC, KEY}
    ]
    captured_at = datetime.fromtimestamp(event.timestamp_us / 1_000_000, UTC)
    headers.append(("x-captured-at", captured_at.isoformat()))
    return KafkaRecord(
        topic=event.attributes[TOPIC],
        value=event.payload,
        key=event.attributes.get(KEY, event.writer_id),
        headers=wrapper.completed(headers, event.payload, event.event_id),
    )


class PostgresRelayStore:
    """Cursors and marks of one instance."""

    def __init__(self, database: Database, instance: str) -> None:
        self._database = database
        self._instance = instance

    def cursors(self) -> dict[WriterKey, int]:
        query = "SELECT tenant, writer_id, sequence FROM capture_relay_cursors WHERE instance = %s"
        with self._database.transaction() as cursor:
            rows = cursor.execute(query, [self._instance]).fetchall()
        return {(row.tenant, row.writer_id): row.sequence for row in rows}

    def relayed_until(self) -> float | None:
        query = "SELECT max(relayed_until) AS until FROM capture_relay_marks WHERE instance = %s"
        with self._database.transaction() as cursor:
            row = cursor.execute(query, [self._instance]).fetchone()
        return row.until.timestamp() if row is not None and row.until is not None else None

    def advance(self, cursors: dict[WriterKey, int], relayed_until: float) -> None:
        with self._database.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO capture_relay_cursors (instance, tenant, writer_id, sequence)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (instance, tenant, writer_id)"
                " DO UPDATE SET sequence = greatest(excluded.sequence,"
                "  capture_relay_cursors.sequence)",
                [(self._instance, *key, sequence) for key, sequence in sorted(cursors.items())],
            )
            cursor.execute(
                "INSERT INTO capture_relay_marks (instance, relayed_until) VALUES (%s, %s)",
                [self._instance, datetime.fromtimestamp(relayed_until, UTC)],
            )
            cursor.execute(
                "DELETE FROM capture_relay_marks WHERE instance = %s"
                " AND acknowledged_at < clock_timestamp() - %s",
                [self._instance, _KEPT_MARKS],
            )

    def retire(self) -> None:
        with self._database.transaction() as cursor:
            cursor.execute("DELETE FROM capture_relay_marks WHERE instance = %s", [self._instance])


class RelayState(NamedTuple):
    """How far one instance's relay is, as the deadline watch sees it."""

    instance: str
    relayed_until: datetime
    acknowledged_at: datetime  # when it said so
    silent_for: timedelta

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard of it for so long that it holds expiry back."""
        return self.silent_for > _SILENT


def relay_states(cursor: Cursor) -> list[RelayState]:
    """The relays that the deadline watch waits for, the most silent one first."""
    rows = cursor.execute(
        "SELECT instance, max(relayed_until) AS until, max(acknowledged_at) AS heard,"
        " clock_timestamp() - max(acknowledged_at) AS silent"
        " FROM capture_relay_marks GROUP BY instance ORDER BY heard, instance"
    ).fetchall()
    return [RelayState(row.instance, row.until, row.heard, row.silent) for row in rows]


def relays_are_heard_of(cursor: Cursor) -> Verdict:
    """No dead snapshotter keeps the deadline watch from judging."""
    states = relay_states(cursor)
    silent = [state for state in states if state.is_silent]
    if not states:
        says = "No snapshotter relays."
    elif not silent:
        says = f"{len(states)} snapshotters relay."
    else:
        says = " ".join(
            f"Nothing was heard of the snapshotter {state.instance!r} since"
            f" {state.acknowledged_at:%Y-%m-%d %H:%M:%S} UTC; nobody expires until it is back."
            for state in silent
        )
        says += " If it never will be: `onex snapshotter retire INSTANCE`."
    longest = max((state.silent_for.total_seconds() for state in states), default=0.0)
    return Verdict(
        not silent, says, {"relays": len(states), "longest silence in seconds": round(longest, 1)}
    )


def retire_relay(database: Database, instance: str) -> bool:
    """Give up waiting for an instance; False if nobody waits for it. Its cursors stay: if it comes
    back after all, it goes on where it was."""
    with database.transaction() as cursor:
        known = any(state.instance == instance for state in relay_states(cursor))
    if known:
        PostgresRelayStore(database, instance).retire()
    return known


def captured_until(cursor: Cursor, folded: datetime) -> datetime | None:
    """The moment before which everything that relays captured had been acknowledged when the fold
    passed `folded`; None if no relay holds anything back."""
    row = cursor.execute(
        "SELECT min(evident) AS evident FROM (SELECT coalesce("
        "   max(relayed_until) FILTER (WHERE acknowledged_at <= %s), to_timestamp(0)) AS evident"
        "  FROM capture_relay_marks GROUP BY instance) AS instances",
        [folded],
    ).fetchone()
    return row.evident if row is not None else None

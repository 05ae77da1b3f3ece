"""The herd's rivals: the least that any design does, and a plain consumer that does the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from pydantic_core import to_json

from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import Settings
from onex_platform.domain.batch import Decider
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.domain.projection import ModelRegistrationProjection, ModelRegistrationSnapshot
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import fold_batch
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    Positions,
    open_admin,
    open_producer,
    produce_all,
    read_to_end,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, create
from onex_platform.engines.postgres.database import Database, open_engine
from onex_platform.ingest.inputs import intake_rules
from onex_platform.projections.fold.reducer import policy_of

_PARTITIONS = 3
_AT_ONCE = 10_000


class Rival(ABC):
    """Reads the same records, and has a topic and a table of its own."""

    name: str

    @abstractmethod
    def work(self, kind: EnumEventKind, start: Positions, end: Positions) -> None:
        """Do with these records what belongs to a contestant."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topic = f"herd.{self.name}"
        with open_admin(settings) as admin:
            create(admin, [TopicLayout(self.topic, _PARTITIONS, 1, {})])
        with self.transaction() as cursor:
            cursor.execute(
                f"CREATE TABLE herd_{self.name} (id uuid PRIMARY KEY, value text NOT NULL)"
            )

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        database = Database(open_engine(self.settings), CircuitBreaker("PostgreSQL"))
        try:
            with database.transaction() as cursor:
                yield cursor
        finally:
            database.engine.dispose()

    def read(self, start: Positions, end: Positions) -> Iterator[Message]:
        topics = {topic for topic, _ in start}
        return read_to_end(self.settings, topics, start, end)


class Floor(Rival):
    """Read, one COPY and one upsert, one record per node."""

    name = "floor"

    def work(self, kind: EnumEventKind, start: Positions, end: Positions) -> None:
        messages = [((m.key() or b"").decode(), m.value() or b"") for m in self.read(start, end)]
        with self.transaction() as cursor:
            cursor.execute("CREATE TEMP TABLE arrived (id uuid, value text) ON COMMIT DROP")
            with cursor.copy("COPY arrived FROM STDIN") as copy:
                for key, value in messages:
                    copy.write_row((key, value.decode()))
            cursor.execute(
                "INSERT INTO herd_floor SELECT * FROM arrived"
                " ON CONFLICT (id) DO UPDATE SET value = excluded.value"
            )
        with open_producer(self.settings) as producer:
            produce_all(producer, (KafkaRecord(self.topic, value, key) for key, value in messages))


class Plain(Rival):
    """Admits, folds and decides event by event, in one process that keeps its rows in memory."""

    name = "plain"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._rows: dict[EntityKey, ModelRegistrationProjection] = {}
        self._rules = intake_rules(settings, None)

    def work(self, kind: EnumEventKind, start: Positions, end: Positions) -> None:
        policy = policy_of(self.settings)
        assert policy is not None
        with open_producer(self.settings) as producer:
            waiting = self.read(start, end)
            while messages := list(islice(waiting, _AT_ONCE)):
                events = [self._admitted(message, kind) for message in messages]
                times = [event.occurred_at for event in events]
                closed, instant = min(times), max(times) + timedelta(seconds=1)
                numbered = mark_duplicates(number(events, closed, instant), frozenset())
                decider = Decider(policy=policy, now=datetime.now(UTC))
                fold = fold_batch(self._rows, numbered, decider)
                changed = [_next_version(change.row) for change in fold.changes.values()]
                self._rows |= {row.key: row for row in changed}
                self._write(changed)
                produce_all(producer, self._published(fold.facts, changed))

    def _admitted(self, message: Message, kind: EnumEventKind) -> LogEvent:
        stamp, milliseconds = message.timestamp()
        record = RawRecord(
            topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            timestamp=datetime.fromtimestamp(milliseconds / 1000, UTC),
            append_time=stamp == TIMESTAMP_LOG_APPEND_TIME,
            key=message.key(),
            value=message.value(),
            kind=kind,
        )
        event = admit(record, self._rules, datetime.now(UTC))
        assert isinstance(event, LogEvent)
        return event

    def _write(self, rows: list[ModelRegistrationProjection]) -> None:
        with self.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO herd_plain VALUES (%s, %s)"
                " ON CONFLICT (id) DO UPDATE SET value = excluded.value",
                [(row.entity_id, row.model_dump_json()) for row in rows],
            )

    def _published(
        self, facts: list[LogEvent], rows: list[ModelRegistrationProjection]
    ) -> Iterator[KafkaRecord]:
        for fact in facts:
            about = {
                "event_id": fact.event_id,
                "event_type": fact.kind.event_type,
                "payload": fact.payload,
            }
            yield KafkaRecord(self.topic, to_json(about), fact.node_id)
        now = datetime.now(UTC)
        for row in rows:
            snapshot = ModelRegistrationSnapshot.from_projection(row, snapshot_created_at=now)
            yield KafkaRecord(self.topic, snapshot.model_dump_json(), snapshot.to_kafka_key())


def _next_version(row: ModelRegistrationProjection) -> ModelRegistrationProjection:
    return row.model_copy(update={"row_version": row.row_version + 1})

"""Topics that move to another name or version, with producers, groups and what they saw."""

from __future__ import annotations

import json
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_consumer,
    open_producer,
    produce_all,
    read_to_end,
)
from onex_platform.engines.postgres.database import Database, open_database
from onex_platform.governance.provision import create_topics
from onex_platform.migration.dual_publisher import open_dual_publisher
from onex_platform.migration.event_ids import event_id_of
from onex_platform.migration.mirror import id_of
from onex_platform.migration.move import Move, move_of
from onex_platform.migration.moves import Migrator, Order
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase, MigrationIntent
from onex_platform_tests.support.contracts import event, legacy

OLD_GROUP = "readers"
# Where there is no authoriser, and nobody waits for an hour of retention, it takes a reason.
FORCED = Order("tests", "the broker of the tests asks nobody for rights", forced=True)
LIFT = {"rename": {"mood": "health"}, "add": {"unit": "s"}, "schema_version": 2}
BACK = {"rename": {"health": "mood"}, "drop": ["unit"], "schema_version": 1}


def intent(to: str, **fields: Any) -> MigrationIntent:
    return MigrationIntent.model_validate({"to": to, "window": "PT1H", "settle": "PT0.1S"} | fields)


def name_pair(kind: str) -> tuple[Catalogue, str, str]:
    """A catalogue with one move of its own: of a `name`, of a `version`, or of a `namespace`
    topic's version, whose records are not JSON. Its topics as their contracts call them."""
    number = secrets.randbelow(10**8) + 2
    if kind == "namespace":
        return _namespace_pair(number)
    target = event(topic=f"onex.node.heartbeat.published.v{number + 1}")
    groups = {"groups": {f"{OLD_GROUP}-{number}": f"{OLD_GROUP}-{number}-onex-v{number + 1}"}}
    if kind == "name":
        source = legacy(topic=f"node.heartbeat{number}", legacy_of=target.topic)
        intents = {source.topic: intent(target.topic, **groups)}
    else:
        source = event(topic=f"onex.node.heartbeat.published.v{number}")
        intents = {source.topic: intent(target.topic, lift=LIFT, back=BACK, **groups)}
    return Catalogue([source, target], intents), source.topic, target.topic


def _namespace_pair(number: int) -> tuple[Catalogue, str, str]:
    about = {"registration_input": False, "timestamp_type": "CreateTime"}
    names = {
        part: [f"platform.{part}.run-{number}.v{version}" for version in (1, 2)]
        for part in ("evt", "rty", "dlt")
    }
    source, target = (
        event(topic=topic, retry={"topic": retry, "tiers": ["PT1M"]}, dead_letters=dead, **about)
        for topic, retry, dead in zip(*names.values(), strict=True)
    )
    failures = [event(topic=topic, **about) for topic in (*names["rty"], *names["dlt"])]
    ways = {"lift": {"function": f"{__name__}:lifted"}, "back": {"function": f"{__name__}:lowered"}}
    groups = {f"{OLD_GROUP}-{number}": f"{OLD_GROUP}-{number}-onex-v2"}
    intents = {source.topic: intent(target.topic, groups=groups, **ways)}
    return Catalogue([source, target, *failures], intents), source.topic, target.topic


def lifted(value: bytes) -> bytes:
    """The way of values that are not JSON to the next version."""
    return b"\x02" + value.removeprefix(b"\x01")


def lowered(value: bytes) -> bytes:
    return b"\x01" + value.removeprefix(b"\x02")


@dataclass
class MovingTopic:
    """One move, and everything that a test does with it; topics as the broker calls them."""

    settings: Settings
    database: Database
    catalogue: Catalogue
    source: str
    target: str
    archived: dict[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def intent(self) -> MigrationIntent:
        return self.move.intent

    @property
    def move(self) -> Move:
        return move_of(self.settings, self.catalogue, self.source)

    def settling(self, seconds: float) -> MovingTopic:
        """The same move, with more time for events on their way."""
        slower = self.intent.model_copy(update={"settle": timedelta(seconds=seconds)})
        moves = {self.move.source.topic: slower}
        return replace(self, catalogue=Catalogue(list(self.catalogue), moves))

    @property
    def groups(self) -> tuple[str, str]:
        [pair] = self.intent.groups.items()
        return pair

    @property
    def migrator(self) -> Migrator:
        return Migrator(self.settings, self.database, self.catalogue, self._archived)

    def _archived(self, topic: str) -> Mapping[int, int]:
        return self.archived.get(topic, dict.fromkeys(range(3), 2**62))

    def advance(self, order: Order = FORCED) -> EnumMigrationPhase:
        return self.migrator.advance(self.source, order)

    def rollback(self) -> EnumMigrationPhase:
        return self.migrator.rollback(self.source, Order("tests", "as a test"))

    def unmet(self) -> dict[str, tuple[str, ...]]:
        """The conditions that do not hold, and whom they name; nobody waits for a week."""
        found = self.migrator.status(self.source).conditions
        unmet = {condition.name: condition.named for condition in found if not condition.holds}
        return {name: named for name, named in unmet.items() if name != "time in dual"}

    def event(self, key: str, number: int) -> bytes:
        if self.move.source.stream_class is not None:
            return b"\x01" + uuid4().bytes + f"{key}/{number}".encode()
        document = {
            "event_id": str(uuid4()),
            "event_type": "node.heartbeat",
            "payload": {"node_id": key, "mood": "good", "number": number},
        }
        return json.dumps(document).encode()

    def write(self, topic: str, count: int, *, keys: int = 5) -> list[str]:
        """Events of a producer that knows one name only; their ids."""
        values = [(f"node-{n % keys}", self.event(f"node-{n % keys}", n)) for n in range(count)]
        records = [self.record(topic, key, value) for key, value in values]
        with open_producer(self.settings) as producer:
            produce_all(producer, records)
        return [written_id(record) for record in records]

    def record(self, topic: str, key: str, value: bytes) -> KafkaRecord:
        """A producer's record; without JSON, half of them say their id as CloudEvents do."""
        says_id = not value.startswith(b"{") and value[1] % 2 == 0
        return KafkaRecord(topic, value, key, [("ce_id", str(uuid4()))] if says_id else [])

    def write_both(self, count: int, *, keys: int = 5) -> list[str]:
        """Events of a producer that writes both; their ids."""
        values = [(self.event(f"dual-{n % keys}", n), f"dual-{n % keys}") for n in range(count)]
        with open_dual_publisher(self.settings, self.catalogue, self.source) as publisher:
            publisher.publish_all(values)
        return [event_id_of(key.encode(), value, []) for value, key in values]

    def read(self, group: str, topic: str, count: int) -> list[str]:
        """Let a group's consumer handle so many records, commit and leave; the events' ids."""
        return self._read_while(group, topic, lambda seen: len(seen) < count)

    def read_all(self, group: str, topic: str, wanted: set[str]) -> list[str]:
        """Let a group's consumer go on until it has handled these events; all that it handled."""
        return self._read_while(group, topic, lambda seen: not wanted <= set(seen))

    def _read_while(
        self, group: str, topic: str, goes_on: Callable[[list[str]], bool]
    ) -> list[str]:
        seen: list[str] = []
        with open_consumer(self.settings, group, **{"session.timeout.ms": 6000}) as consumer:
            consumer.subscribe([topic])
            while goes_on(seen):
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    seen.append(id_of(message))
            if seen:
                consumer.commit(asynchronous=False)
        return seen

    def ids(self, topic: str) -> list[str]:
        return [id_of(message) for message in read_to_end(self.settings, [topic])]

    def orders(self, topic: str) -> dict[bytes, list[str]]:
        """The events of each key in their order, repeats left out."""
        found: dict[bytes, dict[str, None]] = defaultdict(dict)
        for message in read_to_end(self.settings, [topic]):
            key = message.key()
            assert isinstance(key, bytes)
            found[key].setdefault(id_of(message))
        return {key: list(ids) for key, ids in found.items()}

    def speaks_as_before(self, topic: str) -> bool:
        """Whether all that the topic has is in the source's version."""
        if self.move.source.stream_class is None:
            return all("mood" in payload for payload in self.payloads(topic))
        messages = read_to_end(self.settings, [topic])
        return all((message.value() or b"").startswith(b"\x01") for message in messages)

    def payloads(self, topic: str) -> list[dict[str, Any]]:
        messages = read_to_end(self.settings, [topic])
        return [json.loads(message.value() or b"")["payload"] for message in messages]


@contextmanager
def moving_topic(settings: Settings, kind: str) -> Iterator[MovingTopic]:
    """A move whose topics are on the broker."""
    catalogue, source, _ = name_pair(kind)
    with ExitStack() as opened:
        create_topics(settings, catalogue)
        database = opened.enter_context(open_database(settings))
        move = move_of(settings, catalogue, source)
        yield MovingTopic(settings, database, catalogue, move.origin, move.destination)


def written_id(record: KafkaRecord) -> str:
    assert record.key is not None
    assert isinstance(record.value, bytes)
    key = record.key.encode() if isinstance(record.key, str) else record.key
    return event_id_of(key, record.value, record.headers)


class Load:
    """A producer that knows the source only, and goes on writing while a test changes phases."""

    def __init__(self, moving: MovingTopic) -> None:
        self._moving = moving
        self._stop = threading.Event()
        self.sent: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with open_producer(self._moving.settings) as producer:
            while not self._stop.wait(0.005):
                key = f"node-{number % 7}"
                value = self._moving.event(key, number)
                record = self._moving.record(self._moving.source, key, value)
                produce_all(producer, [record])
                self.sent.append(written_id(record))
                number += 1

"""New nodes announce themselves, and somebody notes how long the registry takes to answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID, uuid4

from confluent_kafka import KafkaException, TopicPartition
from pydantic_core import to_json

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka.clients import (
    KafkaConsumer,
    KafkaProducer,
    KafkaRecord,
    end_positions,
    open_consumer,
    open_producer,
)
from onex_platform.engines.kafka.sender import Sender
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.waiting import eventually

_PATIENCE_SECONDS = 60


class Answer(NamedTuple):
    """A node that announced itself, and when the first snapshot of it was there."""

    node: UUID
    sent: float
    answered: float | None

    @property
    def seconds(self) -> float | None:
        return None if self.answered is None else self.answered - self.sent


class Arrivals:
    """Follows the snapshot topic, and notes when each node's first snapshot is there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: dict[UUID, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def seen(self, node: UUID) -> float | None:
        return self._seen.get(node)

    def await_all(self, nodes: Iterable[UUID], seconds: float) -> bool:
        """Wait until every node has a snapshot; False if one has none in time."""
        awaited = set(nodes)
        return eventually(lambda: awaited <= self._seen.keys(), seconds)

    def _follow(self) -> None:
        # Small waits: the clock is read when the record is handed over.
        with open_consumer(self._settings, None, **{"fetch.wait.max.ms": 10}) as consumer:
            assign_ends(self._settings, consumer, snapshot_topic())
            self._ready.set()
            while not self._stop.is_set():
                try:
                    message = consumer.poll(0.1)
                except KafkaException:  # a broker that is restarted comes back
                    continue
                if message is not None and message.error() is None:
                    key = UUID((message.key() or b"").decode())
                    self._seen.setdefault(key, time.time())


class Fleet:
    """Lets new nodes announce themselves one after the other, until it is left."""

    def __init__(self, settings: Settings, pause_seconds: float = 1.0) -> None:
        self.arrivals = Arrivals(settings)
        self._settings = settings
        self._pause = pause_seconds
        self._sent: dict[UUID, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._announce, daemon=True)

    def __enter__(self) -> Self:
        self.arrivals.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.hush()
        self.arrivals.__exit__(kind, error, traceback)

    def hush(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()

    def await_answer_after(self, moment: float, seconds: float) -> Answer | None:
        """The first answer that came after a moment, to a node that was sent after it."""

        def first() -> Answer | None:
            later = (answer for answer in self.answers() if answer.sent >= moment)
            return next((answer for answer in later if answer.answered is not None), None)

        return first() if eventually(lambda: first() is not None, seconds) else None

    def await_all(self, seconds: float) -> bool:
        """Wait until every node that was sent has its answer."""
        return self.arrivals.await_all(list(self._sent), seconds)

    def answers(self) -> list[Answer]:
        """Every node that the broker took, in the order of its times."""
        return [Answer(n, sent, self.arrivals.seen(n)) for n, sent in list(self._sent.items())]

    def _announce(self) -> None:
        with open_producer(self._settings, **{"linger.ms": 0}) as producer:
            while not self._stop.is_set():
                node = uuid4()
                try:
                    self._sent[node] = announce(producer, node)
                except InfraError:  # the broker is away; a node would try again as well
                    continue
                self._stop.wait(self._pause)


def announce(producer: KafkaProducer, node: UUID) -> float:
    """Send a node's introspection; the time that the broker gave it."""
    appended: list[int] = []
    sender = Sender(producer)
    sender.send(introspection(node), appended.append)
    while not appended:
        sender.wait(0.1)
    return appended[0] / 1000


def introspection(node: UUID) -> KafkaRecord:
    kind = EnumEventKind.NODE_INTROSPECTION
    envelope = {
        "event_id": uuid4(),
        "event_type": kind.event_type,
        "source": "probe",
        "timestamp": "2026-01-01T00:00:00Z",
        "payload": {
            "node_id": node,
            "node_type": "effect",
            "node_version": "1.0.0",
            "capabilities": {"database": True},
        },
    }
    return KafkaRecord(load_catalogue().for_kind(kind).topic, to_json(envelope), str(node))


def snapshot_topic() -> str:
    return load_catalogue().snapshot(REGISTRATION_DOMAIN).topic


def assign_ends(settings: Settings, consumer: KafkaConsumer, topic: str) -> None:
    ends = end_positions(settings, [topic])
    consumer.assign([TopicPartition(*place, offset) for place, offset in ends.items()])

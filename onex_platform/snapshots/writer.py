"""The one door to the snapshot topic: publishers take turns, and nobody returns from the dead.

What holds, however many publishers there are and wherever one of them stops:
- Turns are a lock in PostgreSQL. It keeps live publishers out of each other's way, no more.
- Each publisher sends in transactions under the one name of its domain and topic. It takes that
  name before it reads a row. If its send succeeds, nobody else has taken the name since, so nobody
  has published since: what it sends is not older than what the topic has.
- Who wakes up after somebody else took over is refused by the broker, and reads everything anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from onex_platform.engines.kafka_transactions import TakenOverError, TransactionalProducer
from onex_platform.engines.postgres import Cursor, Engine, transaction
from onex_platform.errors import InfraError
from onex_platform.faults import effect
from onex_platform.resilience import CircuitBreaker
from onex_platform.settings import Settings
from onex_platform.snapshots.records import RowState, to_messages
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.telemetry import get_logger

_ATTEMPTS = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """What a publisher may use while it is its turn: one transaction here, one there."""

    cursor: Cursor
    send: Callable[[Iterable[RowState]], int]


class SnapshotWriter:
    """Sends rows to one domain's snapshot topic; keeps its producer open between turns."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        breaker: CircuitBreaker,
        config: ModelSnapshotTopicConfig,
    ) -> None:
        self.config = config
        self._engine = engine
        self._breaker = breaker
        self._producer = TransactionalProducer(
            settings,
            f"onex-snapshots.{config.domain}.{config.topic}",
            settings.snapshots.transaction_seconds,
        )

    def in_turn(self, work: Callable[[Turn], T]) -> T:
        """Do the work as the domain's only publisher.

        Its transaction in PostgreSQL is committed when it ends, and rolled back when it raises. It
        is done again from the start if somebody else took over, so it must read what it sends.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._once(work)
            except TakenOverError:
                get_logger(__name__).info("snapshots.taken_over", topic=self.config.topic)
        return self._once(work)

    def close(self) -> None:
        self._producer.close()

    def _once(self, work: Callable[[Turn], T]) -> T:
        domain = self.config.domain
        with publication_turn(self._engine, self._breaker, domain, "snapshots") as cursor:
            self._producer.open()
            return work(Turn(cursor, self._send))

    def _send(self, rows: Iterable[RowState]) -> int:
        with effect("snapshots.send"):
            return self._producer.send(self.config.topic, to_messages(rows))


@contextmanager
def publication_turn(
    engine: Engine, breaker: CircuitBreaker, domain: str, what: str
) -> Iterator[Cursor]:
    """One transaction in which nobody else publishes for the domain.

    Kafka's failures pass through it without counting against PostgreSQL.
    """
    failure = None
    with transaction(engine, breaker) as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_turn_key(domain)])
        try:
            yield cursor
            with effect(f"{what}.mark"):
                cursor.connection.commit()
        except InfraError as error:
            cursor.connection.rollback()
            failure = error
    if failure is not None:
        raise failure


def _turn_key(domain: str) -> int:
    digest = hashlib.sha256(f"publication of {domain}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)

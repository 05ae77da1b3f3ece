"""The platform's own signals as events: failures, breakers that change, runs that begin and end.

Publishing never holds up what it reports. Whoever has time sends signals and waits for the broker;
whoever has none hands them to a `SignalPublisher`, whose queue is bounded and whose thread sends
them. What does not fit is dropped and counted; what a process holds when it dies is lost with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID, uuid4

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.resilience import BreakerStateChange, heard_by
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.domain.envelope import UPCASTERS, ModelEventEnvelope
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import BreakerStateChangedPayload, Payload
from onex_platform.engines.kafka.clients import (
    KafkaProducer,
    KafkaRecord,
    open_producer,
    produce_all,
)
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import Catalogue, Outlet, with_marks

# The catalogue with its topics moved as far as they are at this moment, and during the block.
Published = Callable[[], AbstractContextManager[Catalogue]]

_SOURCE = "onex-platform"
_RECOVERED = "CLOSED"
# Whoever sends a signal has other work to do.
_PATIENCE_SECONDS = 3.0
_MOST_WAITING = 1000
_AT_ONCE = 100
# After the first failure; twice as long after each further one, up to so many times that.
_RETRY_SECONDS = 1.0
_MOST_RETRY_PAUSES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something that the platform says of itself. Its id is fixed: sent twice, it is one event."""

    kind: EnumEventKind
    key: str
    event_id: UUID
    correlation_id: UUID
    occurred_at: datetime
    payload: Payload

    def envelope(self, tenant: str) -> ModelEventEnvelope:
        return ModelEventEnvelope(
            event_id=self.event_id,
            event_type=self.kind.event_type,
            source=_SOURCE,
            correlation_id=self.correlation_id,
            timestamp=self.occurred_at,
            schema_version=UPCASTERS.current_version(self.kind),
            tenant=tenant,
            payload=self.payload.model_dump(mode="json", exclude_none=True),
        )


def publish_signals(settings: Settings, catalogue: Catalogue, signals: Sequence[Signal]) -> int:
    """Publish signals and wait for the broker; how many it acknowledged."""
    with effect("signals.send"):
        return send_signals(settings, catalogue, signals)


def send_signals(settings: Settings, catalogue: Catalogue, signals: Sequence[Signal]) -> int:
    """Send signals to the topics of their kinds and wait; how many the broker acknowledged."""
    wrapper = Wrapper(settings)
    records = [
        record
        for signal in signals
        for record in wrapped(
            wrapper,
            catalogue.outlets(signal.kind),
            signal.key,
            signal.envelope(settings.tenant).model_dump_json(),
        )
    ]
    send_soon(settings, records)
    return len(signals)


def wrapped(
    wrapper: Wrapper,
    outlets: Sequence[Outlet],
    key: str,
    envelope: str,
    more: Iterable[tuple[str, str]] = (),
) -> list[KafkaRecord]:
    """One event as a record of each topic that it is published to, as their contracts want it."""
    return [
        wrapper.wrap(
            outlet.contract.publish_rules,
            key,
            outlet.value(envelope).decode() if outlet.lifts else envelope,
            more=[*more, *mark],
        )
        for outlet, mark in with_marks(outlets)
    ]


def send_soon(settings: Settings, records: Iterable[KafkaRecord]) -> int:
    """Send records and wait for the broker, not for long; how many it acknowledged."""
    with impatient_producer(settings) as producer:
        return produce_all(producer, records)


def impatient_producer(settings: Settings) -> AbstractContextManager[KafkaProducer]:
    """A producer to which a broker that does not answer costs a few seconds."""
    return open_producer(impatient(settings))


def impatient(settings: Settings) -> Settings:
    """Settings by which a broker that does not answer costs a few seconds, whatever others grant
    it."""
    kafka = settings.kafka
    limits = {
        "connect_timeout_seconds": min(kafka.connect_timeout_seconds, _PATIENCE_SECONDS),
        "request_timeout_seconds": min(kafka.request_timeout_seconds, _PATIENCE_SECONDS),
        "delivery_timeout_seconds": min(kafka.delivery_timeout_seconds, _PATIENCE_SECONDS),
    }
    return settings.model_copy(update={"kafka": kafka.model_copy(update=limits)})


class SignalPublisher:
    """Sends signals from a thread of its own, in their order; nobody waits for it.

    While the broker is away it tries again, less and less often. It is itself a user of Kafka, so
    its attempts move Kafka's breaker: of those changes it tells only the good one, that the breaker
    has closed. Otherwise every attempt to tell of an outage would be another thing to tell.
    """

    def __init__(
        self,
        settings: Settings,
        published: Published,
        *,
        most_waiting: int = _MOST_WAITING,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self.published = 0
        self.dropped = 0
        self._settings = settings
        self._catalogue_now = published
        self._most = most_waiting
        self._retry_seconds = retry_seconds
        self._waiting: deque[Signal] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)
        self._thread.start()

    def publish(self, signal: Signal) -> bool:
        """Hand a signal over; whether there was room for it."""
        with self._news:
            if self._closing or len(self._waiting) >= self._most:
                self.dropped += 1
                return False
            self._waiting.append(signal)
            self._news.notify()
            return True

    def hear(self, change: BreakerStateChange) -> None:
        """Tell of a breaker that changed."""
        is_ours = threading.get_ident() == self._thread.ident
        if is_ours and change.new_state != _RECOVERED:
            return
        event_id = uuid4()
        self.publish(
            Signal(
                kind=EnumEventKind.BREAKER_STATE_CHANGED,
                key=change.service_name,
                event_id=event_id,
                correlation_id=event_id,
                occurred_at=datetime.now(UTC),
                payload=BreakerStateChangedPayload(**vars(change)),
            )
        )

    def close(self) -> None:
        """Send what waits, if the broker takes it at once; the rest is dropped."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(timeout=3 * _PATIENCE_SECONDS)
        with self._news:
            self.dropped += len(self._waiting)
        if self.dropped:
            get_logger(__name__).warning("signals.dropped", signals=self.dropped)

    def _run(self) -> None:
        pause = self._retry_seconds
        while some := self._next():
            refused = 0
            try:
                with self._catalogue_now() as catalogue:
                    self.published += publish_signals(self._settings, catalogue, some)
                pause = self._retry_seconds
            except InfraError as error:
                get_logger(__name__).warning("signals.not_published", error=error.message)
                if self._is_closing_after(pause):
                    return
                pause = min(2 * pause, _MOST_RETRY_PAUSES * self._retry_seconds)
                continue
            except Exception as error:
                # Nothing that another attempt would change.
                get_logger(__name__).error("signals.refused", error=str(error))
                refused = len(some)
            with self._news:
                self.dropped += refused
                for _ in some:
                    self._waiting.popleft()

    def _next(self) -> list[Signal]:
        """Signals to send, which stay in the queue until they are sent; none: it is the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            return list(islice(self._waiting, _AT_ONCE))

    def _is_closing_after(self, seconds: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._closing, seconds)


@contextmanager
def publishing_breakers(
    settings: Settings, published: Published, *, retry_seconds: float = _RETRY_SECONDS
) -> Iterator[SignalPublisher]:
    """Publish, during the block, every change of a circuit breaker of this process."""
    publisher = SignalPublisher(settings, published, retry_seconds=retry_seconds)
    try:
        with heard_by(publisher.hear):
            yield publisher
    finally:
        publisher.close()

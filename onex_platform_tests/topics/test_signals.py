"""The platform's signals: as their contracts say, in order, never in the way of what they tell."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.errors import InfraConnectionError, InfraTimeoutError
from onex_platform.base.paths import project_folder
from onex_platform.base.resilience import BreakerStateChange, CircuitBreaker, heard_by
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import (
    BreakerStateChangedPayload,
    Payload,
    WorkflowFailedPayload,
    WorkflowPayload,
)
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.stack.processes import wait_until
from onex_platform.topics import signals
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.schemas import read_schema
from onex_platform.topics.signals import Signal, SignalPublisher, publishing_breakers
from onex_platform_tests.support.events import TENANT, at, number_id

Kind = EnumEventKind
CATALOGUE = load_catalogue()
BREAKERS = CATALOGUE.for_kind(Kind.BREAKER_STATE_CHANGED).topic
OPENED = BreakerStateChange("postgres", "CLOSED", "OPEN", 5, 60.0)
PAYLOADS: dict[EnumEventKind, tuple[str, Payload]] = {
    Kind.BREAKER_STATE_CHANGED: ("infra", BreakerStateChangedPayload(**vars(OPENED))),
    Kind.WORKFLOW_STARTED: ("registry", WorkflowPayload(workflow_id="run")),
    Kind.WORKFLOW_COMPLETED: ("registry", WorkflowPayload(workflow_id="run")),
    Kind.WORKFLOW_FAILED: (
        "registry",
        WorkflowFailedPayload(workflow_id="run", error_code="NO", error_message="not today"),
    ),
}


def unmoved() -> nullcontext[Catalogue]:
    return nullcontext(CATALOGUE)


def signal(number: int = 0, kind: EnumEventKind = Kind.BREAKER_STATE_CHANGED) -> Signal:
    return Signal(
        kind=kind,
        key="key",
        event_id=number_id(number),
        correlation_id=number_id(number),
        occurred_at=at(0),
        payload=PAYLOADS[kind][1],
    )


@pytest.mark.parametrize("kind", PAYLOADS)
def test_signals_are_what_their_contracts_say(kind: EnumEventKind) -> None:
    context, _ = PAYLOADS[kind]
    _, entity, word = kind.split(".")
    folder = project_folder("contracts") / context / "evt" / f"{entity}-{word}" / "v1"
    envelope = signal(kind=kind).envelope(TENANT).model_dump(mode="json")
    read_schema(folder / "value.schema.json").check(envelope)
    assert CATALOGUE.for_kind(kind).key in envelope["payload"]


class Broker:
    """Takes signals when it is let to, and fails as it is told to."""

    def __init__(self, failures: list[Exception]) -> None:
        self.taken: list[UUID] = []
        self.catalogues: list[Any] = []
        self.failures = failures
        self.is_open = threading.Event()

    def __call__(self, settings: Settings, catalogue: Any, some: list[Signal]) -> int:
        self.is_open.wait()
        self.catalogues.append(catalogue)
        if self.failures:
            raise self.failures.pop()
        self.taken += [item.event_id for item in some]
        return len(some)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Broker]:
    def make(*failures: Exception) -> Broker:
        made = Broker(list(failures))
        monkeypatch.setattr(signals, "publish_signals", made)
        return made

    return make


def test_whoever_tells_waits_for_nobody_and_what_does_not_fit_is_counted(
    broker: Callable[..., Broker],
) -> None:
    stuck = broker()
    publisher = SignalPublisher(Settings(), unmoved, most_waiting=10)
    told = [publisher.publish(signal(number)) for number in range(15)]  # the broker takes nothing
    assert told == [True] * 10 + [False] * 5
    stuck.is_open.set()
    publisher.close()
    assert (publisher.published, publisher.dropped) == (10, 5)
    assert stuck.taken == [number_id(number) for number in range(10)]
    assert not publisher.publish(signal())  # nobody sends it any more
    assert publisher.dropped == 6


@given(st.lists(st.booleans(), max_size=6), st.integers(0, 250))
def test_every_signal_is_sent_once_and_in_order_whatever_fails_meanwhile(
    failures: list[bool], count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        flaky = Broker([InfraTimeoutError("asleep") for _ in failures])
        patch.setattr(signals, "publish_signals", flaky)
        flaky.is_open.set()
        publisher = SignalPublisher(Settings(), unmoved, retry_seconds=0)
        for number in range(count):
            publisher.publish(signal(number))
        assert wait_until(lambda: len(flaky.taken) == count, 10)
        publisher.close()
    assert flaky.taken == [number_id(number) for number in range(count)]
    assert (publisher.published, publisher.dropped) == (count, 0)


def test_what_no_attempt_can_send_does_not_hold_up_the_rest(broker: Callable[..., Broker]) -> None:
    picky = broker(LookupError("no such topic"))
    picky.is_open.set()
    publisher = SignalPublisher(Settings(), unmoved)
    publisher.publish(signal(1))
    assert wait_until(lambda: publisher.dropped == 1, 10)
    publisher.publish(signal(2))
    publisher.close()
    assert picky.taken == [number_id(2)]


def test_every_attempt_asks_anew_how_far_topics_have_moved(broker: Callable[..., Broker]) -> None:
    moving = broker(InfraTimeoutError("asleep"))
    moving.is_open.set()
    moves = iter(CATALOGUE.at({}) for _ in range(3))
    asked = list[Catalogue]()

    def published() -> nullcontext[Catalogue]:
        asked.append(next(moves))
        return nullcontext(asked[-1])

    publisher = SignalPublisher(Settings(), published, retry_seconds=0)
    publisher.publish(signal(1))
    assert wait_until(lambda: publisher.published == 1, 10)
    publisher.publish(signal(2))
    publisher.close()
    assert moving.catalogues == asked
    assert len(asked) == 3


def test_an_end_without_a_broker_drops_what_waits_and_says_so(
    broker: Callable[..., Broker],
) -> None:
    absent = broker(*[InfraConnectionError("away") for _ in range(1000)])
    absent.is_open.set()
    publisher = SignalPublisher(Settings(), unmoved)
    publisher.publish(signal(1))
    publisher.close()
    assert (publisher.published, publisher.dropped) == (0, 1)


def test_attempts_to_tell_of_an_outage_are_no_news_but_its_end_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = CircuitBreaker("Kafka", BreakerSettings(failure_threshold=1, reset_seconds=0.01))
    attempts, taken = [], list[str]()

    def send(settings: Settings, catalogue: Any, some: list[Signal]) -> int:
        with kafka.guard():
            attempts.append(kafka.state)
            if len(attempts) < 4:
                raise InfraConnectionError("away")
        taken.extend(item.payload.model_dump()["new_state"] for item in some)
        return len(some)

    monkeypatch.setattr(signals, "publish_signals", send)
    with publishing_breakers(Settings(), unmoved, retry_seconds=0.02) as publisher:
        with pytest.raises(InfraConnectionError), kafka.guard():
            raise InfraConnectionError("away")  # somebody else's call
        assert wait_until(lambda: publisher.published == 2, 10)
    # It opened and half opened with each attempt; told are the first and the last change.
    assert attempts.count("HALF_OPEN") == 4
    assert taken == ["OPEN", "CLOSED"]
    assert publisher.dropped == 0


def test_after_the_block_nobody_listens() -> None:
    heard: list[BreakerStateChange] = []
    breaker = CircuitBreaker("one", BreakerSettings(failure_threshold=1))
    with heard_by(heard.append), pytest.raises(InfraTimeoutError), breaker.guard():
        raise InfraTimeoutError("slow")
    other = CircuitBreaker("other", BreakerSettings(failure_threshold=1))
    with pytest.raises(InfraTimeoutError), other.guard():
        raise InfraTimeoutError("slow")
    assert [change.service_name for change in heard] == ["one"]


@pytest.mark.servers
def test_a_breaker_that_opens_is_heard_of_in_its_topic(kafka_settings: Settings) -> None:
    create_topics(kafka_settings, CATALOGUE)
    before = end_positions(kafka_settings, [BREAKERS])
    breaker = CircuitBreaker("postgres", BreakerSettings(failure_threshold=2))
    with publishing_breakers(kafka_settings, unmoved) as publisher:
        for _ in range(2):
            with pytest.raises(InfraTimeoutError), breaker.guard():
                raise InfraTimeoutError("slow")
        assert wait_until(lambda: publisher.published == 1, 30)
    [message] = read_to_end(kafka_settings, [BREAKERS], before)
    event = json.loads(message.value() or b"")
    assert (message.key(), event["event_type"]) == (
        b"postgres",
        Kind.BREAKER_STATE_CHANGED.event_type,
    )
    assert event["payload"]["new_state"] == "OPEN"
    assert event["payload"]["failure_count"] == 2

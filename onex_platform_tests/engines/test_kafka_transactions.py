"""Sending in transactions: all or nothing, and only by the one who opened the name last."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from onex_platform.engines.kafka import (
    open_admin,
    read_to_end,
    written_positions,
)
from onex_platform.engines.kafka_topics import TopicLayout, create
from onex_platform.engines.kafka_transactions import Outgoing, TakenOverError, TransactionalProducer
from onex_platform.errors import InfraError
from onex_platform.settings import Settings

pytestmark = pytest.mark.servers


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    name = f"transactions-{uuid4().hex}"
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, 2, 1, {})])
    return name


def _values(settings: Settings, topic: str) -> set[bytes | None]:
    ends = written_positions(settings, [topic])
    return {message.value() for message in read_to_end(settings, [topic], ends=ends)}


def _messages(*values: bytes) -> list[Outgoing]:
    return [(value, value, []) for value in values]


def test_a_send_counts_and_is_readable(kafka_settings: Settings, topic: str) -> None:
    producer = TransactionalProducer(kafka_settings, topic, 10)
    producer.open()
    assert producer.send(topic, _messages(b"a", b"b")) == 2
    assert producer.send(topic, _messages(b"c")) == 1
    assert producer.send(topic, []) == 0
    producer.close()
    assert _values(kafka_settings, topic) == {b"a", b"b", b"c"}


def test_nothing_of_a_send_is_readable_whose_records_fail(
    kafka_settings: Settings, topic: str
) -> None:
    def failing() -> Iterator[Outgoing]:
        yield from _messages(b"a")
        raise LookupError

    producer = TransactionalProducer(kafka_settings, topic, 10)
    producer.open()
    with pytest.raises(LookupError):
        producer.send(topic, failing())
    with pytest.raises(RuntimeError, match="open"):
        producer.send(topic, [])
    producer.open()
    producer.send(topic, _messages(b"b"))
    producer.close()
    assert _values(kafka_settings, topic) == {b"b"}


def test_who_opens_a_name_shuts_out_whoever_had_it(
    kafka_settings: Settings, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (TransactionalProducer(kafka_settings, topic, 10) for _ in range(2))
    first.open()
    second.open()
    with pytest.raises(TakenOverError):
        first.send(topic, _messages(b"late"))
    assert second.send(topic, _messages(b"a")) == 1
    first.open()
    assert first.send(topic, _messages(b"b")) == 1
    with pytest.raises(TakenOverError):
        second.send(topic, _messages(b"late"))
    first.close()
    assert _values(kafka_settings, topic) == {b"a", b"b"}
    assert caplog.messages == []  # the errors above say it all; nobody need be alarmed as well


def test_a_record_that_the_broker_refuses_fails_the_send(
    kafka_settings: Settings, topic: str
) -> None:
    producer = TransactionalProducer(kafka_settings, topic, 10)
    producer.open()
    with pytest.raises(InfraError, match="too large"):
        producer.send(topic, _messages(b"small", b"x" * 2_000_000))
    assert _values(kafka_settings, topic) == set()

"""Sending in transactions: all or nothing, and only by the one who opened the name last."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    open_admin,
    read_to_end,
    written_positions,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, alter, create
from onex_platform.engines.kafka.transactions import (
    LowerLimitError,
    Outgoing,
    Sent,
    TakenOverError,
    TransactionalProducer,
)

pytestmark = pytest.mark.servers

LIMIT = 3 * 1024 * 1024


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    name = f"transactions-{uuid4().hex}"
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, 2, 1, {})])
    return name


def _producer(settings: Settings, name: str) -> TransactionalProducer:
    return TransactionalProducer(settings, name, 10, LIMIT)


def _values(settings: Settings, topic: str) -> set[bytes | None]:
    ends = written_positions(settings, [topic])
    return {message.value() for message in read_to_end(settings, [topic], ends=ends)}


def _messages(*values: bytes) -> list[Outgoing]:
    return [(value, value, []) for value in values]


def test_a_send_counts_and_is_readable(kafka_settings: Settings, topic: str) -> None:
    producer = _producer(kafka_settings, topic)
    producer.open()
    assert producer.send(topic, _messages(b"a", b"b")) == Sent(2)
    assert producer.send(topic, _messages(b"c")) == Sent(1)
    assert producer.send(topic, []) == Sent(0)
    producer.close()
    assert _values(kafka_settings, topic) == {b"a", b"b", b"c"}


def test_nothing_of_a_send_is_readable_whose_records_fail(
    kafka_settings: Settings, topic: str
) -> None:
    def failing() -> Iterator[Outgoing]:
        yield from _messages(b"a")
        raise LookupError

    producer = _producer(kafka_settings, topic)
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
    first, second = (_producer(kafka_settings, topic) for _ in range(2))
    first.open()
    second.open()
    with pytest.raises(TakenOverError):
        first.send(topic, _messages(b"late"))
    assert second.send(topic, _messages(b"a")) == Sent(1)
    first.open()
    assert first.send(topic, _messages(b"b")) == Sent(1)
    with pytest.raises(TakenOverError):
        second.send(topic, _messages(b"late"))
    first.close()
    assert _values(kafka_settings, topic) == {b"a", b"b"}
    assert caplog.messages == []  # the errors above say it all; nobody need be alarmed as well


def test_a_record_above_the_limit_is_named_and_the_others_are_sent(
    kafka_settings: Settings, topic: str
) -> None:
    with open_admin(kafka_settings) as admin:
        alter(admin, topic, {"max.message.bytes": str(LIMIT)})
    producer = _producer(kafka_settings, topic)
    producer.open()
    large = random.Random(1).randbytes(2_000_000)  # nothing that compression would make small
    messages: list[Outgoing] = [
        ("a", b"small", []),
        ("b", large + large, []),
        ("c", large, []),
        ("d", b"also small", []),
    ]
    assert producer.send(topic, messages) == Sent(3, ("b",))
    assert producer.send(topic, messages[1:2]) == Sent(0, ("b",))
    producer.close()
    assert _values(kafka_settings, topic) == {b"small", large, b"also small"}


@pytest.mark.parametrize(
    ("setting", "limit", "size", "too_large"),
    [
        ("max.message.bytes", 1_048_588, 1_500_000, 1),
        ("segment.bytes", 1_048_576, 1_500_000, 1),
        ("max.message.bytes", 5000, 4500, 1),
        ("max.message.bytes", 5000, 1500, 0),
    ],
)
def test_a_topic_with_a_lower_limit_is_asked_for_it(
    kafka_settings: Settings, topic: str, setting: str, limit: int, size: int, too_large: int
) -> None:
    with open_admin(kafka_settings) as admin:
        alter(admin, topic, {"max.message.bytes": str(LIMIT), setting: str(limit)})
    noise = random.Random(1)
    messages: list[Outgoing] = [(str(n), noise.randbytes(1500), []) for n in range(20)]
    messages.append(("last", noise.randbytes(size), []))
    producer = _producer(kafka_settings, topic)
    producer.open()
    with pytest.raises(LowerLimitError, match=f"up to {limit} bytes"):
        producer.send(topic, messages)
    assert _values(kafka_settings, topic) == set()
    producer.open()
    assert producer.send(topic, messages) == Sent(21 - too_large, ("last",) * too_large)
    producer.close()
    assert len(_values(kafka_settings, topic)) == 21 - too_large

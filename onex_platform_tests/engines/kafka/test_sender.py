"""Records sent one at a time: when each was appended, and what a refused one raises."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin, open_producer, read_to_end
from onex_platform.engines.kafka.sender import Sender
from onex_platform.engines.kafka.topic_admin import TopicLayout, create

pytestmark = pytest.mark.servers


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    """A topic of the test's own, stamped by the broker's clock."""
    name = f"test.{uuid4().hex}"
    stamped = {"message.timestamp.type": "LogAppendTime"}
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, partitions=1, replication_factor=1, config=stamped)])
    return name


def _await(sender: Sender, heard: list[int], count: int) -> None:
    deadline = time.monotonic() + 30
    while len(heard) < count and time.monotonic() < deadline:
        sender.wait(0.1)


def test_each_record_is_confirmed_with_the_time_that_the_broker_gave_it(
    kafka_settings: Settings, topic: str
) -> None:
    heard: list[int] = []
    with open_producer(kafka_settings) as producer:
        sender = Sender(producer)
        for number in range(3):
            # A time of the sender's own must not get through.
            sender.send(KafkaRecord(topic, b"%d" % number, timestamp_ms=1), heard.append)
            _await(sender, heard, number + 1)
    stored = [message.timestamp()[1] for message in read_to_end(kafka_settings, [topic])]
    assert heard == stored
    assert len(heard) == 3


def test_a_record_that_is_refused_raises_in_the_next_wait(kafka_settings: Settings) -> None:
    impatient = {"topic.metadata.propagation.max.ms": 100}
    with (
        pytest.raises(InfraError, match="onex topics create"),
        open_producer(kafka_settings, **impatient) as producer,
    ):
        sender = Sender(producer)
        sender.send(KafkaRecord(f"missing.{uuid4().hex}", b"value"), lambda _: None)
        _await(sender, [], 1)


def test_a_record_that_can_not_be_queued_raises_at_once(
    kafka_settings: Settings, topic: str
) -> None:
    with (
        pytest.raises(InfraError, match="too large"),
        open_producer(kafka_settings) as producer,
    ):
        Sender(producer).send(KafkaRecord(topic, b"x" * 2_000_000), lambda _: None)


def test_a_full_queue_makes_the_sender_wait(kafka_settings: Settings, topic: str) -> None:
    heard: list[int] = []
    with open_producer(kafka_settings, **{"queue.buffering.max.messages": 2}) as producer:
        sender = Sender(producer)
        for number in range(20):
            sender.send(KafkaRecord(topic, b"%d" % number), heard.append)
    assert len(heard) == 20

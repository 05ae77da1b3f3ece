"""A reader of one topic: it knows where it is, where the topic ends, and whether it is the same."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from onex_platform.base.errors import InfraError, InfraTimeoutError
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.engines.kafka.clients import KafkaAdmin, open_admin, open_consumer, produce_all
from onex_platform.engines.kafka.topic_reader import TopicChangedError, TopicReader, open_reader
from onex_platform_tests.support.snapshot_records import (
    new_topic,
    send,
    sent,
    snapshot,
    transactions,
)
from onex_platform_tests.support.stacks import halted_broker
from onex_platform_tests.support.waiting import let_clock_pass

pytestmark = pytest.mark.servers


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    return new_topic(kafka_settings, 2)


@pytest.fixture
def impatient(kafka_settings: Settings) -> Settings:
    """The shared broker, with short limits and so with a breaker of its own."""
    kafka = kafka_settings.kafka.model_copy(update={"request_timeout_seconds": 1})
    return kafka_settings.model_copy(
        update={"kafka": kafka, "breaker": BreakerSettings(reset_seconds=0.003)}
    )


def _read(reader: TopicReader) -> int:
    """Read to where the topic ends by now; the number of records."""
    return sum(len(records) for records in reader.read_to(reader.survey().ends))


def test_what_nobody_sees_is_passed_as_well(kafka_settings: Settings, topic: str) -> None:
    records = [sent(topic, snapshot(number)) for number in range(10)]
    with transactions(kafka_settings) as producer, open_reader(kafka_settings, topic) as reader:
        assert _read(reader) == 0
        producer.begin_transaction()
        produce_all(producer, records)
        assert _read(reader) == 0, "what is not committed is behind the end"
        producer.commit_transaction(30)
        read, deadline = 0, time.monotonic() + 30
        while read < 10 and time.monotonic() < deadline:  # a commit is seen a moment later
            read += _read(reader)
        producer.begin_transaction()
        produce_all(producer, records)
        producer.abort_transaction(30)
        while sum(reader.survey().ends.values()) < 24 and time.monotonic() < deadline:
            pass
        assert _read(reader) == 0
        # Twenty records, and in each partition a marker for each of the transactions.
        assert sum(reader.positions.values()) == 24
        assert reader.behind(reader.survey().ends) == 0


def test_a_topic_that_ends_before_the_place_that_was_read_is_another(
    kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(number)) for number in range(10)])
    with open_reader(kafka_settings, topic) as reader:
        assert _read(reader) == 10
        survey = reader.survey()
        reader.require_same(survey)
        for partition, end in survey.ends.items():
            shorter = survey._replace(ends={**survey.ends, partition: end - 1})
            with pytest.raises(TopicChangedError, match="ends before the place"):
                reader.require_same(shorter)
        with pytest.raises(TopicChangedError, match="has other partitions"):
            reader.require_same(survey._replace(ends={**survey.ends, 2: 0}))


def test_records_that_come_with_an_error_are_handed_out_first(
    kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(number)) for number in range(20)])
    with (
        open_consumer(kafka_settings, None, **{"enable.partition.eof": True}) as consumer,
        open_admin(kafka_settings) as admin,
    ):
        reader = TopicReader(consumer, admin, topic)
        assert _read(reader) == 20  # no fetch is under way that the next assignment could meet
        # One partition from its start, the other from an offset that it does not have.
        consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 1000)])
        # By then both have answered, and what they said comes in one batch.
        let_clock_pass(datetime.now(UTC) + timedelta(seconds=1))
        read = len(reader.batch(5))
        with pytest.raises(TopicChangedError, match="no longer has the offset"):
            for _ in range(300):
                read += len(reader.batch(0.1))
        assert read >= reader.start.ends[0] > 0


def test_a_leader_that_does_not_answer_is_no_end_of_the_topic(
    impatient: Settings, kafka_settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, halted = KafkaAdmin.list_offsets, ExitStack()

    def late(admin: KafkaAdmin, *arguments: Any, **named: Any) -> Any:
        """The topic is described; its ends are asked for when nobody answers."""
        halted.enter_context(halted_broker(kafka_settings))
        return real(admin, *arguments, **named)

    with open_reader(impatient, topic) as reader:
        with (
            halted,
            monkeypatch.context() as patch,
            pytest.raises(InfraTimeoutError, match="say where"),
        ):
            patch.setattr(KafkaAdmin, "list_offsets", late)
            reader.ask().result(patience=10)
        assert reader.survey().ends == {0: 0, 1: 0}


def test_silence_before_the_end_is_a_time_out(
    impatient: Settings, kafka_settings: Settings, topic: str
) -> None:
    send(kafka_settings, [sent(topic, snapshot(number)) for number in range(10)])
    with open_reader(impatient, topic) as reader:
        beyond = {partition: end + 1 for partition, end in reader.start.ends.items()}
        with pytest.raises(InfraTimeoutError, match=f"hand over the records of {topic}"):
            list(reader.read_to(beyond))


def test_a_missing_topic_leads_to_the_command_that_creates_it(kafka_settings: Settings) -> None:
    with (
        pytest.raises(InfraError, match="onex topics create"),
        open_reader(kafka_settings, "test.missing"),
    ):
        pass

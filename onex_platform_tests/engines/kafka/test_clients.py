"""Kafka clients: what is delivered, what is raised, and what a dead or silent broker costs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.base.settings import BreakerSettings, KafkaSettings, Settings
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    end_positions,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
    read_to_end,
    translated,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, create
from onex_platform_tests.support.stacks import halted_broker


def _settings_for(port: int) -> Settings:
    return Settings(
        kafka=KafkaSettings(
            bootstrap_servers=f"127.0.0.1:{port}",
            connect_timeout_seconds=0.1,
            request_timeout_seconds=0.2,
        )
    )


@pytest.fixture
def nobody() -> Settings:
    """Settings for a port where nobody listens."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return _settings_for(port)


@pytest.fixture
def silence() -> Iterator[Settings]:
    """Settings for a port that accepts connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        yield _settings_for(listener.getsockname()[1])


@pytest.fixture
def topic(kafka_settings: Settings) -> str:
    """A topic of the test's own, with one partition."""
    name = f"test.{uuid4().hex}"
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, partitions=1, replication_factor=1, config={})])
    return name


def _records(topic: str, count: int, offset: int = 0) -> Iterator[KafkaRecord]:
    for number in range(offset, offset + count):
        yield KafkaRecord(topic, value=b"%d" % number, key=f"key-{number % 7}")


def _values(settings: Settings, *topics: str) -> list[int]:
    return [int(message.value() or b"-1") for message in read_to_end(settings, topics)]


def test_without_an_address_the_way_out_is_named() -> None:
    with pytest.raises(ConfigurationError, match="onex stack up"), open_admin(Settings()):
        pass


@pytest.mark.parametrize("opened", [open_admin, open_producer, open_consumer])
def test_a_port_where_nobody_listens_is_named_without_noise(
    opened: type, nobody: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InfraConnectionError) as refused, opened(nobody):
        pass
    assert f"Kafka at {nobody.kafka.bootstrap_servers} can't be reached" in refused.value.message
    assert "Connection refused" in refused.value.message
    assert "ONEX_KAFKA_BOOTSTRAP_SERVERS" in (refused.value.hint or "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("opened", [open_admin, open_producer, open_consumer])
def test_an_open_port_without_a_broker_behind_it_is_no_connection(
    opened: type, silence: Settings
) -> None:
    told = f"Kafka at {silence.kafka.bootstrap_servers} can't be reached"
    with pytest.raises(InfraConnectionError, match=told), opened(silence):
        pass


@pytest.mark.parametrize("broker", ["nobody", "silence"])
def test_clients_of_one_address_share_a_breaker(
    broker: str, request: pytest.FixtureRequest
) -> None:
    settings: Settings = request.getfixturevalue(broker)
    for opened in (open_admin, open_producer, open_consumer, open_admin, open_producer):
        with pytest.raises(InfraConnectionError), opened(settings):
            pass
    with pytest.raises(InfraUnavailableError, match="failed 5 times"), open_consumer(settings):
        pass


@pytest.mark.parametrize("user", [None, "service-a"])
def test_a_refused_right_is_no_outage(nobody: Settings, user: str | None) -> None:
    kafka = nobody.kafka.model_copy(update={"sasl_username": user})
    settings = nobody.model_copy(update={"kafka": kafka})
    for _ in range(2 * settings.breaker.failure_threshold):
        with pytest.raises(InfraError, match="write it"), translated(settings, "write it"):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with translated(settings, "go on"):
        pass  # the breaker is closed


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TIMED_OUT, InfraTimeoutError),
        (KafkaError._MSG_TIMED_OUT, InfraTimeoutError),
        (KafkaError.REQUEST_TIMED_OUT, InfraTimeoutError),
        (KafkaError._TRANSPORT, InfraConnectionError),
        (KafkaError._AUTHENTICATION, InfraConnectionError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, InfraError),
        (KafkaError.NOT_ENOUGH_REPLICAS, InfraConnectionError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, InfraError),
        (KafkaError.INVALID_CONFIG, InfraError),
    ],
)
def test_each_failure_has_its_kind_and_names_address_and_action(
    nobody: Settings, code: int, kind: type[InfraError]
) -> None:
    with pytest.raises(InfraError) as raised, translated(nobody, "do the deed"):
        raise KafkaException(KafkaError(code, "the reason"))
    assert type(raised.value) is kind
    assert f"Kafka at {nobody.kafka.bootstrap_servers}" in raised.value.message
    assert "the reason" in raised.value.message
    if kind is not InfraConnectionError:
        assert "do the deed" in raised.value.message


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (KafkaError._UNKNOWN_TOPIC, "onex topics create"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "onex topics create"),
        (KafkaError._TRANSPORT, "ONEX_KAFKA_BOOTSTRAP_SERVERS"),
        (KafkaError._AUTHENTICATION, "ONEX_KAFKA_SASL_PASSWORD"),
        (KafkaError._SSL, "ONEX_KAFKA_SECURITY_PROTOCOL"),
        (KafkaError.INVALID_REPLICATION_FACTOR, "ONEX_ENVIRONMENT"),
    ],
)
def test_failures_with_a_known_way_out_name_it(nobody: Settings, code: int, way_out: str) -> None:
    with pytest.raises(InfraError) as raised, translated(nobody, "do the deed"):
        raise KafkaException(KafkaError(code))
    assert way_out in (raised.value.hint or "")


def test_a_future_that_never_ends_is_a_time_out(nobody: Settings) -> None:
    with (
        pytest.raises(InfraTimeoutError, match="did not do the deed in time"),
        translated(nobody, "do the deed"),
    ):
        raise TimeoutError


@pytest.fixture
def impatient(kafka_settings: Settings) -> Settings:
    """The shared broker, with short limits and so with a breaker of its own."""
    kafka = kafka_settings.kafka.model_copy(
        update={"delivery_timeout_seconds": 1, "connect_timeout_seconds": 1}
    )
    return kafka_settings.model_copy(
        update={"kafka": kafka, "breaker": BreakerSettings(reset_seconds=0.001)}
    )


@pytest.mark.servers
class TestOnARealBroker:
    def test_records_that_were_not_acknowledged_are_not_counted_as_sent(
        self, impatient: Settings, kafka_settings: Settings, topic: str
    ) -> None:
        with (
            pytest.raises(InfraTimeoutError, match="did not acknowledge every record in time"),
            open_producer(impatient) as producer,
            halted_broker(kafka_settings),
        ):
            produce_all(producer, _records(topic, 10))

    def test_leaving_a_producer_raises_if_a_record_stayed_undelivered(
        self, impatient: Settings, kafka_settings: Settings, topic: str
    ) -> None:
        with (
            ExitStack() as stopped,
            pytest.raises(InfraTimeoutError),
            open_producer(impatient) as producer,
        ):
            stopped.enter_context(halted_broker(kafka_settings))
            producer.produce(topic, b"value")

    def test_the_caller_s_own_error_is_not_hidden_by_undelivered_records(
        self, impatient: Settings, kafka_settings: Settings, topic: str
    ) -> None:
        with (
            ExitStack() as stopped,
            pytest.raises(ZeroDivisionError),
            open_producer(impatient) as producer,
        ):
            stopped.enter_context(halted_broker(kafka_settings))
            producer.produce(topic, b"value")
            raise ZeroDivisionError

    def test_everything_sent_is_acknowledged_and_read_back_in_order(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        with open_producer(kafka_settings) as producer:
            assert produce_all(producer, _records(topic, 2500)) == 2500
        assert _values(kafka_settings, topic) == list(range(2500))

    def test_key_headers_and_tombstones_arrive(self, kafka_settings: Settings, topic: str) -> None:
        records = [
            KafkaRecord(topic, b"value", key=b"key", headers=[("x-tenant", b"omnibase")]),
            KafkaRecord(topic, None, key="key"),
        ]
        with open_producer(kafka_settings) as producer:
            assert produce_all(producer, records) == 2
        first, tombstone = read_to_end(kafka_settings, [topic])
        assert (first.key(), first.value()) == (b"key", b"value")
        assert first.headers() == [("x-tenant", b"omnibase")]
        assert (tombstone.key(), tombstone.value()) == (b"key", None)

    def test_nothing_to_send_is_nothing_acknowledged(self, kafka_settings: Settings) -> None:
        with open_producer(kafka_settings) as producer:
            assert produce_all(producer, []) == 0

    def test_a_full_queue_makes_the_sender_wait(self, kafka_settings: Settings, topic: str) -> None:
        small = {"queue.buffering.max.messages": 50, "linger.ms": 5}
        with open_producer(kafka_settings, **small) as producer:
            assert produce_all(producer, _records(topic, 3000)) == 3000
        assert _values(kafka_settings, topic) == list(range(3000))

    def test_a_sender_without_end_does_not_run_ahead_of_its_broker(
        self, impatient: Settings, kafka_settings: Settings, topic: str
    ) -> None:
        pulled = count()
        endless = (KafkaRecord(topic, b"%d" % number) for number in pulled)
        with (
            ExitStack() as stopped,
            pytest.raises(InfraTimeoutError),
            open_producer(impatient, **{"queue.buffering.max.messages": 50}) as producer,
        ):
            stopped.enter_context(halted_broker(kafka_settings))
            produce_all(producer, endless)
        assert next(pulled) <= 50 + 1000

    def test_plain_produce_is_flushed_on_leaving(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        with open_producer(kafka_settings, **{"linger.ms": 5000}) as producer:
            producer.produce(topic, b"7")
        assert _values(kafka_settings, topic) == [7]

    def test_a_topic_that_does_not_exist_leads_to_the_command_that_creates_it(
        self, kafka_settings: Settings
    ) -> None:
        hurry = {"topic.metadata.propagation.max.ms": 100}
        missing = f"test.{uuid4().hex}"
        with (
            pytest.raises(InfraError, match="onex topics create"),
            open_producer(kafka_settings, **hurry) as producer,
        ):
            produce_all(producer, _records(missing, 3))
        with pytest.raises(InfraError, match="onex topics create"):
            list(read_to_end(kafka_settings, [missing]))

    def test_a_record_that_is_too_large_is_refused(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        with (
            pytest.raises(InfraError, match="too large"),
            open_producer(kafka_settings) as producer,
        ):
            produce_all(producer, [KafkaRecord(topic, b"x" * 5_000_000)])

    def test_reading_ends_where_the_topic_ended_when_it_began(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        with open_producer(kafka_settings) as producer:
            produce_all(producer, _records(topic, 10))
            reading = read_to_end(kafka_settings, [topic])
            first = next(reading)
            produce_all(producer, _records(topic, 10, offset=10))
            assert [first.value(), *(m.value() for m in reading)] == [b"%d" % n for n in range(10)]
        assert _values(kafka_settings, topic) == list(range(20))

    def test_reading_begins_where_it_is_told(self, kafka_settings: Settings, topic: str) -> None:
        with open_producer(kafka_settings) as producer:
            produce_all(producer, _records(topic, 5))
            before = end_positions(kafka_settings, [topic])
            assert before == {(topic, 0): 5}
            assert list(read_to_end(kafka_settings, [topic], before)) == []
            produce_all(producer, _records(topic, 5, offset=5))
        read = [message.value() for message in read_to_end(kafka_settings, [topic], before)]
        assert read == [b"%d" % number for number in range(5, 10)]

    def test_an_empty_topic_has_nothing_to_read(self, kafka_settings: Settings, topic: str) -> None:
        assert _values(kafka_settings, topic) == []

    def test_reading_is_not_confused_by_transactions(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        # A transaction ends with a marker, an offset that no consumer ever gets to see.
        transactional = {"transactional.id": uuid4().hex, "transaction.timeout.ms": 120_000}
        with open_producer(kafka_settings, **transactional) as producer:
            producer.init_transactions(10)
            producer.begin_transaction()
            produce_all(producer, _records(topic, 3))
            producer.commit_transaction(10)
            producer.begin_transaction()
            produce_all(producer, _records(topic, 3, offset=100))
            producer.abort_transaction(10)
        assert _values(kafka_settings, topic) == [0, 1, 2]

    def test_what_is_written_after_the_ends_were_taken_is_left_out(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        transactional = {"transactional.id": uuid4().hex, "transaction.timeout.ms": 120_000}
        with open_producer(kafka_settings, **transactional) as producer:
            producer.init_transactions(10)

            def transaction(offset: int) -> None:
                producer.begin_transaction()
                produce_all(producer, _records(topic, 3, offset))
                producer.commit_transaction(10)

            def topics() -> Iterator[str]:
                yield topic
                transaction(100)  # the ends are taken now, and the last of them is a marker

            transaction(0)
            read = [message.value() for message in read_to_end(kafka_settings, topics())]
        assert read == [b"0", b"1", b"2"]
        assert _values(kafka_settings, topic) == [0, 1, 2, 100, 101, 102]

    def test_a_group_goes_on_where_it_committed(self, kafka_settings: Settings, topic: str) -> None:
        with open_producer(kafka_settings) as producer:
            produce_all(producer, _records(topic, 4))
        group, seen = uuid4().hex, []
        for _ in range(2):
            with open_consumer(kafka_settings, group) as consumer:
                consumer.subscribe([topic])
                (message, *_) = consumer.consume(1, timeout=20)
                seen.append(message.value())
                consumer.commit(message=message, asynchronous=False)
        assert seen == [b"0", b"1"]

    def test_without_a_group_a_lost_offset_is_an_error_and_no_jump(
        self, kafka_settings: Settings, topic: str
    ) -> None:
        with open_producer(kafka_settings) as producer:
            produce_all(producer, _records(topic, 4))
        with open_consumer(kafka_settings) as consumer:
            consumer.assign([TopicPartition(topic, 0, 1_000_000)])
            message = consumer.poll(20)
            assert message is not None
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET

    def test_librdkafka_s_lines_come_out_as_our_logs(
        self,
        kafka_settings: Settings,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        caplog.set_level(logging.DEBUG, logger="librdkafka")
        with open_admin(kafka_settings, debug="broker") as admin:
            admin.list_topics(timeout=10)
        assert [record.name for record in caplog.records].count("librdkafka") > 0
        assert capfd.readouterr() == ("", "")

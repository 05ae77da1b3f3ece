"""The Spark Connect server works for clients, with the connectors on its class path."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform.engines.health import spark_connect_answers
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform_tests.support.own_stacks import NewStack
from onex_platform_tests.support.stacks import listening_addresses, processes_of

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def connect_mode_ends_with_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Connect session leaves this variable, and no later test could have a local session."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


def test_a_client_reads_kafka_through_the_connect_server(
    new_stack: NewStack, kafka_settings: Settings
) -> None:
    config, topic = kafka_settings.kafka.client_config(), f"numbers-{uuid4()}"
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(config)
    for number in range(10):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0

    settings = new_stack()
    with stack.running(settings, services=("spark",)) as attached:
        assert attached.spark.remote is not None
        session = SparkSession.builder.remote(attached.spark.remote).create()
        records = (
            session.read.format("kafka")
            .option("kafka.bootstrap.servers", str(config["bootstrap.servers"]))
            .option("subscribe", topic)
            .load()
        )
        assert records.count() == 10
        assert listening_addresses(settings) == {LOOPBACK}
        session.stop()
    assert processes_of(settings) == []


def test_the_servers_python_workers_are_ours(remote_spark: Settings) -> None:
    def archives(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = [entry for entry in sys.path if entry.endswith((".zip", ".jar"))]
            yield pa.RecordBatch.from_pydict({"found": [str(found)], "python": [sys.executable]})

    assert remote_spark.spark.remote is not None
    session = SparkSession.builder.remote(remote_spark.spark.remote).create()
    try:
        [row] = session.range(1).mapInArrow(archives, "found string, python string").collect()
    finally:
        session.stop()
    assert tuple(row) == ("[]", sys.executable)


def test_a_server_that_is_not_there_does_not_answer() -> None:
    assert not spark_connect_answers(f"sc://{LOOPBACK}:{free_port()}", timeout_seconds=2)

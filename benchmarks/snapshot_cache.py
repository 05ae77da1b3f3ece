"""What it costs to load the snapshot topic into a cache, beside the bare work.

    python -m benchmarks.snapshots load --entities 100000

In one run and in turns, from the same topic of a broker of the benchmark's own:

- bare: librdkafka hands over every record, and nobody looks at it
- load: `SnapshotCache.refresh` until everything can be asked
- models: bare, and each value becomes a model and is kept

All begin with opening their clients. The first round warms up and does not count. Medians of wall
seconds and processor seconds; the ratios are what to compare. Then, what questions cost.
"""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

import click
import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from onex_platform import stack
from onex_platform.base.settings import Settings, load_settings
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import create
from onex_platform.snapshots.publish.topic_setup import layout_of
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.snapshot_records import VERSION_HEADER
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import load_catalogue

ACTIVE_SHARE = 0.9


def snapshots(count: int, seed: int = 1) -> Iterator[ModelRegistrationSnapshot]:
    """Snapshots as the registry has them, about 530 bytes of JSON each."""
    chance = Random(seed)
    now = datetime.now(UTC)
    for number in range(count):
        active = chance.random() < ACTIVE_SHARE
        yield ModelRegistrationSnapshot.model_validate(
            {
                "entity_id": UUID(int=chance.getrandbits(128), version=4),
                "tenant": "omnibase",
                "current_state": "active" if active else chance.choice([*EnumRegistrationState]),
                "node_type": chance.choice([*EnumNodeType]),
                "node_name": f"node-{number}",
                "capabilities": {
                    "supported_operations": ["query", "insert", f"operation-{number % 100}"],
                    "protocols": ["ProtocolDatabaseAdapter", "ProtocolHealthCheck"],
                    "max_concurrent_requests": 100,
                    "postgres": True,
                    "tracing": number % 2 == 0,
                },
                "last_state_change_at": now,
                "snapshot_version": 1 + number % 50,
                "snapshot_created_at": now,
                "source_projection_sequence": 10**17 + number,
            }
        )


def fill(settings: Settings, topic: str, count: int) -> None:
    """Publish the snapshots in transactions, as the publisher does."""
    with open_producer(
        settings, **{"transactional.id": uuid4().hex, "transaction.timeout.ms": 120_000}
    ) as producer:
        producer.init_transactions(30)
        waiting = iter(snapshots(count))
        while chunk := list(islice(waiting, 10_000)):
            producer.begin_transaction()
            produce_all(producer, [record(topic, one) for one in chunk])
            producer.commit_transaction(30)


def record(topic: str, one: ModelRegistrationSnapshot) -> KafkaRecord:
    header = (VERSION_HEADER, b"%d" % one.snapshot_version)
    return KafkaRecord(topic, one.model_dump_json().encode(), one.to_kafka_key(), [header])


def consume(settings: Settings, topic: str, handle: Callable[[list[Message]], object]) -> None:
    """Every record of the topic, as librdkafka hands it over."""
    config = {"enable.partition.eof": True, "fetch.wait.max.ms": 50}
    with open_consumer(settings, None, **config) as consumer:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in left])
        while left:
            messages = consumer.consume(1000, 0.02)
            handle(messages)
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())


def bare(settings: Settings, topic: str) -> None:
    consume(settings, topic, len)


def models(settings: Settings, topic: str) -> None:
    kept = {}

    def keep(messages: list[Message]) -> None:
        for message in messages:
            if message.error() is None:
                value = message.value() or b""
                kept[message.key()] = ModelRegistrationSnapshot.model_validate_json(value)

    consume(settings, topic, keep)


def load(settings: Settings, topic: str) -> SnapshotCache:
    cache = SnapshotCache(settings, topic=topic)
    cache.refresh()
    cache.close()
    return cache


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds, with the garbage of others gone."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def ask(cache: SnapshotCache) -> None:
    """What questions cost: the first time, which parses and looks around, and again."""
    questions: dict[str, Callable[[], int]] = {
        "by_capability, one in a hundred": lambda: len(cache.by_capability("operation-7")),
        "by_capability, nobody": lambda: len(cache.by_capability("nothing")),
        "by_type": lambda: len(cache.by_type(EnumNodeType.REDUCER)),
        "active": lambda: len(cache.active()),
        "all": lambda: len(cache.all()),
    }
    for name, question in questions.items():
        first, again = timed(question)[0], timed(question)[0]
        print(
            f"{name:<33} {question():>7} found {first * 1e3:9.1f} ms, again {again * 1e3:7.1f} ms"
        )
    ids = [one.entity_id for one in cache.all()[:10_000]]
    each = timed(lambda: [cache.get(entity_id) for entity_id in ids])[0] / len(ids)
    print(f"get {each * 1e6:.1f} µs")


@contextmanager
def filled_topic(entities: int) -> Iterator[tuple[Settings, str]]:
    """A broker of the benchmark's own, with that many snapshots in a topic."""
    user = load_settings()
    with TemporaryDirectory() as folder:
        own = user.model_copy(
            update={"stack": user.stack.model_copy(update={"folder": Path(folder)})}
        )
        with stack.running(own, services=["kafka"]) as settings:
            config = ModelSnapshotTopicConfig.development(load_catalogue())
            with open_admin(settings) as admin:
                create(admin, [layout_of(settings, load_catalogue(), config)])
            fill(settings, config.topic, entities)
            yield settings, config.topic


@click.command("load")
@click.option("--entities", default=100_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def load_command(entities: int, rounds: int) -> None:
    """Load the snapshot topic into a cache, beside reading it and doing nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    ways = {"bare": bare, "load": load, "models": models}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with filled_topic(entities) as (settings, topic):
        for _ in range(1 + rounds):
            for name, way in ways.items():
                taken[name].append(timed(partial(way, settings, topic)))
        wall, processor = (
            {name: statistics.median(t[kind] for t in times[1:]) for name, times in taken.items()}
            for kind in (0, 1)
        )
        for name in ways:
            print(
                f"{name:<7} {wall[name]:6.2f} s, {wall[name] / wall['bare']:5.2f} times bare; "
                f"processor {processor[name]:6.2f} s"
            )
        ask(load(settings, topic))

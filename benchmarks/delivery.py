"""What the retrying consumer costs beside a bare loop that polls and handles the same records.

    python -m benchmarks.delivery --records 200000

In one run and in turns, from the same topic of a broker of the benchmark's own, each with a new
group:

- bare: a loop of `consume`, the handler, and a commit each second; whoever fails is on its own
- delivery: `RetryingConsumer`, nobody fails
- waiting: the same, and one key in a hundred fails and waits

The handler keeps the last value of each key. The first round warms up and does not count. Medians
of records per second; the ratios are what to compare.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import click
import structlog

from onex_platform import stack
from onex_platform.base.settings import Settings, load_settings
from onex_platform.delivery.config import DeliveryConfig, Limits
from onex_platform.delivery.consumer import RetryingConsumer
from onex_platform.delivery.delivered import Delivery
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import TopicLayout, create

KEYS = 1000
VALUE = b"x" * 300
MINUTE_MS = 60_000


class Last:
    """The handler: the last value of each key, and how many there were."""

    def __init__(self, is_poisoned: Callable[[bytes], bool]) -> None:
        self.values: dict[bytes | None, bytes | None] = {}
        self.count = 0
        self._is_poisoned = is_poisoned

    def handle(self, key: bytes | None, value: bytes | None) -> None:
        if self._is_poisoned(key or b""):
            raise RuntimeError("poison")
        self.values[key] = value
        self.count += 1


def nobody(_key: bytes) -> bool:
    return False


def one_in_a_hundred(key: bytes) -> bool:
    return key.endswith(b"00")


def bare(settings: Settings, config: DeliveryConfig, records: int) -> float:
    handler = Last(nobody)
    with open_consumer(settings, config.group) as consumer:
        consumer.subscribe([config.source])
        first = consumer.poll(30)
        began = committed = time.perf_counter()
        messages = [first] if first is not None else []
        while True:
            for message in messages:
                if message.error() is None:
                    handler.handle(message.key(), message.value())
            if handler.count >= records:
                break
            found = consumer.poll(0.2)
            messages = [] if found is None else [found, *consumer.consume(1000, 0)]
            if time.perf_counter() > committed + 1:
                consumer.commit(asynchronous=False)
                committed = time.perf_counter()
        return records / (time.perf_counter() - began)


def delivery(
    settings: Settings,
    config: DeliveryConfig,
    records: int,
    is_poisoned: Callable[[bytes], bool] = nobody,
) -> float:
    handler = Last(is_poisoned)
    began = 0.0

    def handle(delivered: Delivery) -> None:
        handler.handle(delivered.key, delivered.value)

    with RetryingConsumer(settings, config, handle) as consumer:
        while handler.count + consumer.waiting() < records:
            consumer.step()
            began = began or (time.perf_counter() if handler.count else 0.0)
        return records / (time.perf_counter() - began)


def waiting(settings: Settings, config: DeliveryConfig, records: int) -> float:
    return delivery(settings, config, records, one_in_a_hundred)


@click.command()
@click.option("--records", default=200_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--partitions", default=3, show_default=True)
def main(records: int, rounds: int, partitions: int) -> None:
    """Handle the same records by a bare loop and by the retrying consumer."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    ways = {"bare": bare, "delivery": delivery, "waiting": waiting}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    user = load_settings()
    with TemporaryDirectory() as folder:
        own = user.model_copy(
            update={"stack": user.stack.model_copy(update={"folder": Path(folder)})}
        )
        with stack.running(own, services=["kafka"]) as settings:
            source, retry, dead_letters = topics = ("bench.source", "bench.rty", "bench.dlt")
            with open_admin(settings) as admin:
                create(admin, [TopicLayout(name, partitions, 1, {}) for name in topics])
            with open_producer(settings) as producer:
                produce_all(
                    producer,
                    (
                        KafkaRecord(source, VALUE, f"key-{number % KEYS:05}")
                        for number in range(records)
                    ),
                )
            for _ in range(1 + rounds):
                for name, way in ways.items():
                    config = DeliveryConfig(
                        source, retry, dead_letters, uuid4().hex, Limits((MINUTE_MS,))
                    )
                    rates[name].append(way(settings, config, records))
    medians = {name: statistics.median(found[1:]) for name, found in rates.items()}
    for name, rate in medians.items():
        print(f"{name:<9} {rate:>10,.0f} records/s, {rate / medians['bare']:.2f} of bare")


if __name__ == "__main__":
    main()

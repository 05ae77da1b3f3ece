"""Topics, handlers and consumers for tests of delivery on a real broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig, Limits
from onex_platform.delivery.consumer import RetryingConsumer, wall_clock
from onex_platform.delivery.delivered import Delivery
from onex_platform.delivery.work import Alert
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin, open_producer, produce_all
from onex_platform.engines.kafka.topic_admin import TopicLayout, create, delete
from onex_platform_tests.support.waiting import eventually

TIERS = (60_000, 900_000, 7_200_000)


def new_config(
    settings: Settings, partitions: int = 2, tiers: tuple[int, ...] = TIERS, **limits: Any
) -> DeliveryConfig:
    """Three new topics, and a group."""
    name = uuid4().hex[:12]
    config = DeliveryConfig(
        f"{name}.source",
        f"{name}.rty",
        f"{name}.dlt",
        f"{name}-group",
        Limits(tiers, refusal_pause=200, **limits),
        outage_pause_seconds=0.1,
        commit_seconds=0.05,
    )
    for topic in _topics(config):
        make(settings, topic, partitions)
    return config


@contextmanager
def made(settings: Settings, config: DeliveryConfig) -> Iterator[None]:
    """Topics whose names others use as well are gone after the block."""
    for topic in _topics(config):
        make(settings, topic, 1)
    try:
        yield
    finally:
        with open_admin(settings) as admin:
            for topic in _topics(config):
                delete(admin, topic)


def _topics(config: DeliveryConfig) -> tuple[str, str, str]:
    return config.source, config.retry, config.dead_letters


def make(settings: Settings, topic: str, partitions: int) -> None:
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(topic, partitions, 1, {})])


def send(
    settings: Settings, topic: str, keys: list[str], first: int = 0, origin: str = "origin"
) -> None:
    """Records whose values are numbers, one after the other; `origin` names their header."""
    with open_producer(settings) as producer:
        produce_all(
            producer,
            (
                KafkaRecord(topic, str(number), key, [(origin, b"test")])
                for number, key in enumerate(keys, first)
            ),
        )


@dataclass
class Diary:
    """A handler that notes what it handled, key by key, and fails where it is told to."""

    fails: Callable[[Delivery], Exception | None] = lambda _: None
    seen: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    attempts: list[tuple[str, int, int]] = field(default_factory=list)

    def __call__(self, delivery: Delivery) -> None:
        key, number = (delivery.key or b"").decode(), int(delivery.value or 0)
        self.attempts.append((key, number, delivery.attempt))
        if error := self.fails(delivery):
            raise error
        self.seen[key].append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


class Member:
    """A consumer under test with a clock of its own that runs with the wall's."""

    def __init__(self, settings: Settings, config: DeliveryConfig, handler: Any, **more: Any):
        self.ahead = 0
        self.alerts: list[Alert] = []
        self.consumer = RetryingConsumer(
            settings,
            config,
            handler,
            on_alert=lambda _, alert: self.alerts.append(alert),
            clock=lambda: wall_clock() + self.ahead,
            **more,
        )

    def work_until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        def step() -> bool:
            self.consumer.step(0.02)
            return holds()

        assert eventually(step, seconds)


@contextmanager
def member(
    settings: Settings, config: DeliveryConfig, handler: Any, **more: Any
) -> Iterator[Member]:
    found = Member(settings, config, handler, **more)
    with found.consumer:
        yield found


def in_group(config: DeliveryConfig, group: str) -> DeliveryConfig:
    return replace(config, group=group)

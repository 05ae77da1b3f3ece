"""Letters that are gone, and a broker that goes while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from onex_platform.base.errors import InfraTimeoutError
from onex_platform.base.settings import KafkaSettings, Settings
from onex_platform.delivery import letters
from onex_platform.delivery.entries import EnumEntry
from onex_platform.engines.kafka import clients
from onex_platform_tests.support.simulated_delivery import (
    GROUP,
    PERMANENT,
    Poison,
    ask,
    filled,
    settled,
)


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_a_replay_whose_letters_are_partly_gone_is_refused_once_and_a_release_goes_on(
    deleted: int,
) -> None:
    broker = filled(b"a", b"a", b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    poison.failures.clear()
    broker.letters_deleted = deleted
    ask(owner, b"a")
    owner.settle()
    assert [alert.name for alert in owner.lane.alerts] == ["letters_lost"]
    successor = settled(broker, poison, "second")
    broker.produce(b"a")
    successor.settle()
    assert successor.lane.alerts == []
    assert (successor.lane.keys[b"a"].request, len(broker.letters)) == (None, 4)
    assert GROUP not in broker.handled
    ask(successor, b"a", EnumEntry.RELEASE)
    successor.settle()
    broker.produce(b"a")
    successor.settle()
    assert broker.handled[GROUP] == {b"a": [4]}


def test_letters_that_are_gone_when_a_replay_was_under_way_make_none_of_the_rest_whole() -> None:
    broker = filled(b"a", b"a", b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    ask(owner, b"a")
    owner.read(10)
    owner.work()
    owner.land(1)
    poison.failures.clear()
    broker.letters_deleted = 2
    successor = settled(broker, poison, "second")
    dead = successor.lane.keys[b"a"].dead
    assert dead is not None
    assert (dead.entry.offset, successor.lane.waiting) == (2, 0)
    ask(successor, b"a")
    successor.settle()
    assert [alert.name for alert in successor.lane.alerts] == ["letters_lost", "letters_lost"]
    assert GROUP not in broker.handled


def test_a_release_that_comes_while_a_replay_is_refused_is_done() -> None:
    broker = filled(b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    poison.failures.clear()
    broker.letters_deleted = 1
    ask(owner, b"a")
    owner.read(10)
    owner.work()
    ask(owner, b"a", EnumEntry.RELEASE)
    owner.settle()
    assert owner.lane.keys == {}


class LostBroker:
    """A consumer whose broker is lost behind the first of five records; its clock is its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.seconds = 0.0
        self.left = [Message("dlt", 0, 0, b"a", b"0")]

    def get_watermark_offsets(self, _place: Any, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 0, 5

    def assign(self, _places: Any) -> None:
        pass

    def poll(self, timeout: float) -> Message | None:
        self.seconds += timeout
        assert self.seconds < 3600, "it is still being read"
        return self.left.pop() if self.left else None

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        return []


def test_a_broker_that_is_lost_while_letters_are_read_is_told_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="lost:9092"))
    consumer = LostBroker(settings)

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[LostBroker]:
        yield consumer

    monkeypatch.setattr(letters, "open_consumer", opened)
    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: consumer.seconds))
    found = letters.read_partition(settings, "dlt", 0, 0)
    assert next(found).offset() == 0
    with pytest.raises(InfraTimeoutError, match="did not hand over its records in time"):
        next(found)
    assert consumer.seconds < 2 * settings.kafka.request_timeout_seconds

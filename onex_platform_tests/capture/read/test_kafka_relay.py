"""The relay to Kafka: in order, at least once, and nobody dies of its delay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.capture.api.requests import Publication
from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.flush.retrying import Backoff
from onex_platform.capture.instance import Instance
from onex_platform.capture.read.kafka_relay import (
    TOPIC,
    PostgresRelayStore,
    Relay,
    captured_until,
    kafka_sender,
    relay_states,
    relays_are_heard_of,
    retire_relay,
)
from onex_platform.capture.writers import WriterKey
from onex_platform.engines.kafka.clients import open_admin, open_producer, read_to_end
from onex_platform.engines.kafka.topic_admin import TopicLayout, create
from onex_platform.engines.postgres.database import open_database
from onex_platform.records.wrapping import Wrapper
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage
from onex_platform_tests.support.snapshotters import config_for

_HEARTBEATS = "onex.node.heartbeat.published.v1"


@dataclass
class _Store:
    """Cursors and marks that outlive the relay."""

    moved: dict[WriterKey, int] = field(default_factory=dict)
    marks: list[float] = field(default_factory=list)
    retired: bool = False
    down: bool = False

    def cursors(self) -> dict[WriterKey, int]:
        self._require_up()
        return dict(self.moved)

    def relayed_until(self) -> float | None:
        return self.marks[-1] if self.marks else None

    def advance(self, cursors: dict[WriterKey, int], relayed_until: float) -> None:
        self._require_up()
        self.moved |= cursors
        self.marks.append(relayed_until)

    def retire(self) -> None:
        self._require_up()
        self.retired = True

    def _require_up(self) -> None:
        if self.down:
            raise InfraConnectionError("PostgreSQL is down.")


class _Broker:
    """Takes events; `down` refuses them, `forgetful` takes them and lets the answer get lost."""

    def __init__(self) -> None:
        self.taken: list[CapturedEvent] = []
        self.down = False
        self.forgetful = False

    def send(self, events: Sequence[CapturedEvent]) -> None:
        if self.down:
            raise InfraConnectionError("The broker is down.")
        self.taken += events
        if self.forgetful:
            raise InfraConnectionError("The answer was lost.")


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def _instance(folder: Path, broker: _Broker, store: _Store) -> Instance:
    relay = Relay([_HEARTBEATS], broker.send, store, Backoff(0.01, 0.05))
    return Instance(
        config_for(folder), FolderStorage(folder / "pages"), FolderIndex(folder / "index"), relay
    )


def _publish(instance: Instance, writer: str, number: int, topic: str = _HEARTBEATS) -> None:
    asked = Publication("default", writer, b"%d" % number, {TOPIC: topic})
    instance.intake.publish(asked, now=time.monotonic(), now_us=number + 1, done=None)


def test_events_that_name_a_topic_are_relayed_in_order_and_others_are_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, store = _Broker(), _Store()
        instance = _instance(tmp_path, broker, store)
        await instance.start()
        for number in range(50):
            _publish(instance, "node-1", number)
            _publish(instance, "node-1", number, topic="somebody.elses")
        await _until(lambda: len(broker.taken) == 50)
        await instance.stop(5.0)
        assert [event.payload for event in broker.taken] == [b"%d" % n for n in range(50)]
        assert store.moved == {("default", "node-1"): 99}
        assert store.retired

    asyncio.run(scenario())


def test_the_log_keeps_what_is_not_relayed_and_the_next_process_sends_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, store = _Broker(), _Store()
        broker.down = True
        first = _instance(tmp_path, broker, store)
        await first.start()
        mark = store.marks[-1]
        _publish(first, "node-1", 0)
        await first.stop(0.5)
        assert not store.retired
        assert store.marks[-1] - mark < 5, "the mark must not pass what was not relayed"
        broker.down = False
        second = _instance(tmp_path, broker, store)
        await second.start()
        await _until(lambda: len(broker.taken) == 1)
        await second.stop(5.0)
        third = _instance(tmp_path, broker, store)
        await third.start()
        await third.stop(5.0)
        assert [event.payload for event in broker.taken] == [b"0"]

    asyncio.run(scenario())


def test_a_database_that_is_down_holds_neither_the_start_nor_the_stop_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, store = _Broker(), _Store()
        first = _instance(tmp_path, broker, store)
        await first.start()
        _publish(first, "node-1", 0)
        await _until(lambda: store.moved)
        store.down = True
        _publish(first, "node-1", 1)
        await first.stop(0.5)
        assert not store.retired
        marks = len(store.marks)
        second = _instance(tmp_path, broker, store)
        await second.start()
        _publish(second, "node-1", 2)
        await _until(lambda: second.log.outstanding == 0)
        assert len(store.marks) == marks
        store.down = False
        await _until(lambda: store.moved == {("default", "node-1"): 3})
        await second.stop(5.0)
        assert store.retired
        sent = [event.payload for event in broker.taken]
        assert [payload for place, payload in enumerate(sent) if payload not in sent[:place]] == [
            b"0",
            b"1",
            b"2",
        ]
        assert sent.count(b"0") == 1, "what the cursors cover is not sent again"
        third = _instance(tmp_path, broker, store)
        await third.start()
        await third.stop(5.0)
        assert len(broker.taken) == len(sent)

    asyncio.run(scenario())


def test_a_lost_answer_sends_again_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker, store = _Broker(), _Store()
        broker.forgetful = True
        instance = _instance(tmp_path, broker, store)
        await instance.start()
        _publish(instance, "node-1", 0)
        await _until(lambda: len(broker.taken) >= 2)
        assert not store.moved
        broker.forgetful = False
        await _until(lambda: store.moved)
        await instance.stop(5.0)
        assert {event.payload for event in broker.taken} == {b"0"}

    asyncio.run(scenario())


@pytest.mark.servers
def test_no_moment_is_evident_that_a_mark_does_not_cover(store_settings: Settings) -> None:
    with open_database(store_settings) as database:
        store = PostgresRelayStore(database, "one")
        with database.transaction() as cursor:
            assert captured_until(cursor, datetime.now(UTC)) is None
        earlier = datetime.now(UTC) - timedelta(minutes=5)
        store.advance({("t", "w"): 3}, earlier.timestamp())
        later = datetime.now(UTC) + timedelta(seconds=1)
        with database.transaction() as cursor:
            assert captured_until(cursor, later) == earlier
            assert captured_until(cursor, earlier) == datetime.fromtimestamp(0, UTC)
        store.advance({("t", "w"): 2}, later.timestamp())
        assert store.cursors() == {("t", "w"): 3}
        PostgresRelayStore(database, "two").advance({}, earlier.timestamp())
        with database.transaction() as cursor:
            assert captured_until(cursor, later + timedelta(days=1)) == earlier
        for name in ("one", "two"):
            PostgresRelayStore(database, name).retire()
        with database.transaction() as cursor:
            assert captured_until(cursor, later) is None


@pytest.mark.servers
def test_relayed_records_keep_key_headers_and_capture_time(kafka_settings: Settings) -> None:
    topic = f"test.{uuid4().hex}"
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(topic, partitions=1, replication_factor=1, config={})])
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    attributes = {TOPIC: topic, "x-onex-key": "node-1", "traceparent": traceparent}
    event = CapturedEvent("t", "w", 1, "e1", 1_000_000, b"heartbeat", attributes)
    with open_producer(kafka_settings) as producer:
        kafka_sender(producer, Wrapper(kafka_settings))([event])
    [record] = read_to_end(kafka_settings, [topic])
    assert (record.key(), record.value()) == (b"node-1", b"heartbeat")
    headers = dict(record.headers())
    assert headers["traceparent"] == traceparent.encode()
    assert headers["x-trace-id"] == b"a" * 32
    assert headers["x-captured-at"] == b"1970-01-01T00:00:01+00:00"
    assert headers["x-region"] == b"local"


@pytest.mark.servers
def test_a_silent_relay_is_told_and_can_be_retired(store_settings: Settings) -> None:
    with open_database(store_settings) as database:
        for instance in ("dead", "well"):
            PostgresRelayStore(database, instance).advance({("t", "w"): 5}, time.time())
        with database.transaction() as cursor:
            assert relays_are_heard_of(cursor).passed
            cursor.execute(
                "UPDATE capture_relay_marks SET acknowledged_at = now() - interval '5 minutes'"
                " WHERE instance = 'dead'"
            )
        with database.transaction() as cursor:
            verdict = relays_are_heard_of(cursor)
            assert not verdict.passed
            assert "'dead'" in verdict.description
            assert "onex snapshotter retire" in verdict.description
        assert not retire_relay(database, "unknown")
        assert retire_relay(database, "dead")
        with database.transaction() as cursor:
            assert [state.instance for state in relay_states(cursor)] == ["well"]
        assert PostgresRelayStore(database, "dead").cursors() == {("t", "w"): 5}

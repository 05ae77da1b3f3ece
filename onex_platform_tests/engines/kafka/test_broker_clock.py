"""The broker's clock beside ours: known as far as a record's times tell, and no further."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.broker_clock import BrokerClock, broker_clock
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin, open_producer, produce_all
from onex_platform.engines.kafka.topic_admin import TopicLayout, create


@pytest.mark.parametrize(
    ("appended", "ahead"),
    [
        (100.0, 0),  # between both of ours
        (101.5, 0),
        (99.9995, 0),  # the broker's milliseconds are cut off
        (112.0, 10.0),  # at least: it may have been appended at once
        (90.0, -9.999),
    ],
)
def test_the_clocks_differ_by_what_the_way_does_not_explain(appended: float, ahead: float) -> None:
    clock = BrokerClock()
    assert clock.ahead_seconds is None
    clock.note(100.0, appended, 102.0)
    assert clock.ahead_seconds == ahead


def test_a_clock_is_behind_by_no_more_than_until_a_record_was_heard_of() -> None:
    clock = BrokerClock()
    assert clock.behind_at_most is None
    clock.note(100.0, 100.25, 102.0)
    assert clock.behind_at_most == 1.75
    clock.note(200.0, 200.25, 200.5)
    clock.note(300.0, 300.25, 310.0)  # a slow answer takes back nothing
    assert clock.behind_at_most == 0.25
    for _ in range(16):  # it was set back
        clock.note(400.0, 399.0, 400.5)
    assert clock.behind_at_most == 1.5
    clock.note(500.0, 510.0, 500.5)
    assert clock.behind_at_most == 0  # it is ahead


@pytest.mark.servers
@pytest.mark.parametrize("ours", [30, 0, -30])
def test_records_that_the_broker_stamps_show_its_clock(
    kafka_settings: Settings, monkeypatch: pytest.MonkeyPatch, ours: float
) -> None:
    clock = broker_clock(kafka_settings.kafka.bootstrap_servers)
    _send(kafka_settings, "LogAppendTime")
    assert clock.ahead_seconds == 0
    with monkeypatch.context() as patched:
        now = time.time
        patched.setattr(time, "time", lambda: now() + ours)
        _send(kafka_settings, "CreateTime")
        assert clock.ahead_seconds == 0  # such a record has our own time
        _send(kafka_settings, "LogAppendTime")
    assert clock.ahead_seconds is not None
    assert abs(clock.ahead_seconds) <= abs(ours)
    assert clock.ahead_seconds * ours <= 0
    assert (abs(clock.ahead_seconds) > 10) is (ours != 0)
    _send(kafka_settings, "LogAppendTime")
    assert clock.ahead_seconds == 0


def _send(settings: Settings, stamps: str) -> None:
    topic = f"test.{uuid4().hex}"
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(topic, 1, 1, {"message.timestamp.type": stamps})])
    with open_producer(settings) as producer:
        produce_all(producer, [KafkaRecord(topic, b"tick"), KafkaRecord(topic, b"tock")])

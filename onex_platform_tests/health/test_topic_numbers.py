"""What a real broker says of topics and groups, and of breakers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import BreakerStateChangedPayload
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.group_offsets import commit_for, end_offsets
from onex_platform.health.measuring import measure
from onex_platform.health.thresholds import EnumLevel
from onex_platform.health.topic_numbers import error_readings, group_readings, rate_readings
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.signals import Signal, publish_signals
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.dead_letters import park
from onex_platform_tests.support.events import record
from onex_platform_tests.support.watched_clock import Watched

pytestmark = pytest.mark.servers

HEARTBEATS = load_catalogue().for_kind(EnumEventKind.NODE_HEARTBEAT).topic


def test_a_group_is_late_by_the_bounds_that_it_has_passed(piped: Watched) -> None:
    platform, group = piped.archive.platform, f"late-{uuid4().hex}"
    with open_admin(platform.settings) as admin:
        began = end_offsets(admin, HEARTBEATS)
        send(platform.settings, [sent(EnumEventKind.NODE_HEARTBEAT, "worker-1")])
        commit_for(admin, group, began)
        now = datetime.now(UTC)
        expected = {0: "fine", 45: "rising", 90: "warning", 200: "critical"}
        for seconds, level in expected.items():
            found = group_readings(platform, now + timedelta(seconds=seconds))
            [ours] = [item for item in found if item.scope == f"{HEARTBEATS} {group}"]
            assert ours.level == level
            assert ours.value <= seconds
        commit_for(admin, group, end_offsets(admin, HEARTBEATS))
        [read] = [
            item
            for item in group_readings(platform, now + timedelta(hours=1))
            if item.scope == f"{HEARTBEATS} {group}"
        ]
        assert (read.value, read.level) == (0, EnumLevel.FINE)


def test_what_comes_is_counted_by_time(piped: Watched) -> None:
    platform = piped.archive.platform
    sent_now = send(
        platform.settings, [sent(EnumEventKind.NODE_HEARTBEAT, f"w-{n}") for n in range(120)]
    )
    now = datetime.now(UTC)
    rates = {
        (item.metric, item.scope): item.value
        for item in rate_readings(platform, now)
        if item.scope == HEARTBEATS
    }
    assert set(rates) == {("records_per_second", HEARTBEATS), ("heartbeats_per_second", HEARTBEATS)}
    assert all(rate >= sent_now / 60 for rate in rates.values())
    later = rate_readings(platform, now + timedelta(minutes=3))
    assert {item.value for item in later if item.scope == HEARTBEATS} == {0}


def test_parked_records_are_a_share_of_what_came(piped: Watched) -> None:
    archive, now = piped.archive, datetime.now(UTC)
    fine = error_readings(archive.platform, now)
    assert {item.value for item in fine} == {0}
    assert HEARTBEATS in {item.scope for item in fine}
    bad = [record(EnumEventKind.NODE_HEARTBEAT, topic=HEARTBEATS, offset=n) for n in range(3)]
    park(archive, bad, "not_json")
    piped.execute("UPDATE parked_records SET parked_at = now()")
    [ours] = [item for item in error_readings(archive.platform, now) if item.scope == HEARTBEATS]
    assert 0 < ours.value <= 100


def test_a_breaker_counts_until_it_is_closed(piped: Watched) -> None:
    archive, service = piped.archive, f"service-{uuid4().hex}"

    def counted(state: str) -> float:
        event_id = uuid4()
        change = BreakerStateChangedPayload(
            service_name=service, previous_state="CLOSED", new_state=state, failure_count=5
        )
        signal = Signal(
            kind=EnumEventKind.BREAKER_STATE_CHANGED,
            key=service,
            event_id=event_id,
            correlation_id=event_id,
            occurred_at=datetime.now(UTC),
            payload=change,
        )
        publish_signals(archive.settings, load_catalogue(), [signal])
        found = measure(archive.platform, archive.log, datetime.now(UTC)).by_name
        return found["circuit_breaker_open_count", "platform"].value

    topic = load_catalogue().for_kind(EnumEventKind.BREAKER_STATE_CHANGED).topic
    odd = [b"not json", b"[]", b'{"payload": {"service_name": 1}}', None]
    with open_producer(archive.settings) as producer:
        produce_all(producer, [KafkaRecord(topic, value, "odd") for value in odd])
    before = counted("CLOSED")
    assert [counted(state) - before for state in ("OPEN", "HALF_OPEN", "CLOSED")] == [1, 1, 0]

"""How far the archive is behind, on a real broker: counted, timed and judged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import randrange

import pytest
from confluent_kafka import TopicPartition

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_admin,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.engines.kafka.topic_admin import TIMESTAMP_TYPE, TopicLayout, create
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.checks import archive_keeps_up, broker_dates_records
from onex_platform.ingest.cuts.consistent_cut import InputPartition, ends_of, places_of
from onex_platform.ingest.lag import ArchiveLag, EnumLagVerdict, topic_states, unarchived_events
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform_tests.support.contracts import event

pytestmark = pytest.mark.servers


@pytest.fixture
def heartbeats(kafka_settings: Settings) -> TopicContract:
    """An input topic of the test's own: its version is."""
    contract = event(topic=f"onex.node.heartbeat.published.v{randrange(1000, 10**9)}")
    create_topics(kafka_settings, Catalogue([contract]))
    return contract


def _write(settings: Settings, topic: str, records: int) -> None:
    """All with one key, and so to one partition."""
    with open_producer(settings) as producer:
        produce_all(producer, [KafkaRecord(topic, b"{}", "node") for _ in range(records)])


def _partition_with_records(settings: Settings, topic: str) -> InputPartition:
    """Which one the key went to."""
    with open_consumer(settings) as consumer:
        [place] = [
            place for place in places_of(consumer, [topic]) if ends_of(consumer, place).end > 0
        ]
    return place


def _lag(
    settings: Settings,
    contract: TopicContract,
    cursors: dict[InputPartition, int],
    after: timedelta,
) -> ArchiveLag:
    [state] = topic_states(settings, [contract], cursors, datetime.now(UTC) + after)
    assert state.lag is not None
    return state.lag


def test_a_topic_without_records_is_not_behind(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    lag = _lag(kafka_settings, heartbeats, {}, timedelta(days=1))
    assert (lag.events, lag.lost, lag.seconds) == (0, 0, 0)
    assert lag.verdict is EnumLagVerdict.OK
    assert lag.retention_left is None
    assert not lag.endangered


def test_what_the_cursor_has_passed_is_no_lag(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    _write(kafka_settings, heartbeats.topic, 5)
    place = _partition_with_records(kafka_settings, heartbeats.topic)
    for archived, waiting in ((0, 5), (3, 2), (5, 0)):
        cursors = {place: archived}
        assert _lag(kafka_settings, heartbeats, cursors, timedelta()).events == waiting
        assert unarchived_events(kafka_settings, [heartbeats.topic], cursors) == waiting


def test_the_age_is_that_of_the_oldest_record_that_waits(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    _write(kafka_settings, heartbeats.topic, 1)
    between = datetime.now(UTC)
    _write(kafka_settings, heartbeats.topic, 1)
    place = _partition_with_records(kafka_settings, heartbeats.topic)
    ages = {
        archived: topic_states(kafka_settings, [heartbeats], {place: archived}, between)[0].lag
        for archived in (0, 1)
    }
    assert ages[0] is not None
    assert ages[0].seconds > 0
    assert ages[1] is not None
    assert ages[1].seconds == 0  # appended after the moment that is asked about


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (timedelta(), EnumLagVerdict.OK),
        (timedelta(seconds=45), EnumLagVerdict.RISING),
        (timedelta(seconds=90), EnumLagVerdict.WARNING),
        (timedelta(seconds=130), EnumLagVerdict.CRITICAL),
    ],
)
def test_the_verdict_follows_the_thresholds_of_the_category(
    kafka_settings: Settings, heartbeats: TopicContract, after: timedelta, verdict: EnumLagVerdict
) -> None:
    _write(kafka_settings, heartbeats.topic, 1)
    assert _lag(kafka_settings, heartbeats, {}, after).verdict is verdict


def test_a_record_alerts_before_the_broker_may_delete_it(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    _write(kafka_settings, heartbeats.topic, 1)
    early = _lag(kafka_settings, heartbeats, {}, timedelta(minutes=25))
    late = _lag(kafka_settings, heartbeats, {}, timedelta(minutes=35))
    assert not early.endangered
    assert late.endangered
    assert late.retention_left is not None
    assert timedelta(minutes=20) < late.retention_left <= timedelta(minutes=25)


def test_the_retention_is_the_clusters_and_not_the_contracts(kafka_settings: Settings) -> None:
    contract = event(topic=f"onex.node.heartbeat.published.v{randrange(1000, 10**9)}")
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(contract.topic, 1, 1, {"retention.ms": "60000"})])
    _write(kafka_settings, contract.topic, 1)
    lag = _lag(kafka_settings, contract, {}, timedelta(seconds=40))
    assert lag.retention == timedelta(minutes=1)
    assert lag.endangered


@pytest.mark.parametrize("timestamps", ["LogAppendTime", "CreateTime"])
def test_a_topic_whose_senders_date_the_records_is_named(
    kafka_settings: Settings, timestamps: str
) -> None:
    contract = event(topic=f"onex.node.heartbeat.published.v{randrange(1000, 10**9)}")
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(contract.topic, 1, 1, {TIMESTAMP_TYPE: timestamps})])
    [state] = topic_states(kafka_settings, [contract], {}, datetime.now(UTC))
    verdict = broker_dates_records(state)
    assert verdict.passed == (timestamps == "LogAppendTime")
    told = (
        f"{contract.topic}: message.timestamp.type is CreateTime, the contract says LogAppendTime"
    )
    assert (told in verdict.description) == (timestamps == "CreateTime")


def test_records_that_the_broker_deleted_first_are_lost(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    _write(kafka_settings, heartbeats.topic, 5)
    place = _partition_with_records(kafka_settings, heartbeats.topic)
    with open_admin(kafka_settings) as admin:
        for answer in admin.delete_records([TopicPartition(*place, 3)]).values():
            answer.result(timeout=10)
    lag = _lag(kafka_settings, heartbeats, {place: 1}, timedelta())
    assert (lag.lost, lag.events) == (2, 2)


def test_a_topic_that_ends_before_the_next_offset_was_made_anew_or_cut_short(
    kafka_settings: Settings, heartbeats: TopicContract
) -> None:
    _write(kafka_settings, heartbeats.topic, 5)
    place = _partition_with_records(kafka_settings, heartbeats.topic)
    cursors = {place: 6, InputPartition(heartbeats.topic, 7): 1}
    [state] = topic_states(kafka_settings, [heartbeats], cursors, datetime.now(UTC))
    assert state.lag is not None
    assert (state.lag.restarted, state.lag.events, state.lag.lost) == (2, 5, 0)
    verdict = archive_keeps_up(state)
    assert not verdict.passed
    assert verdict.metadata["restarted partitions"] == 2
    assert "`onex pages skip-lost`" in verdict.description
    assert _lag(kafka_settings, heartbeats, {place: 5}, timedelta()).restarted == 0


def test_a_topic_that_nobody_archives_has_offsets_only(kafka_settings: Settings) -> None:
    contract = event(
        topic=f"onex.node.heartbeat.published.v{randrange(1000, 10**9)}", registration_input=False
    )
    create_topics(kafka_settings, Catalogue([contract]))
    _write(kafka_settings, contract.topic, 4)
    [state] = topic_states(kafka_settings, [contract], {}, datetime.now(UTC))
    assert (state.partitions, state.records, state.end_offset, state.lag) == (3, 4, 4, None)


def test_a_topic_that_does_not_exist_is_left_out(kafka_settings: Settings) -> None:
    contract = event(topic=f"onex.node.heartbeat.published.v{randrange(1000, 10**9)}")
    assert topic_states(kafka_settings, [contract], {}, datetime.now(UTC)) == []

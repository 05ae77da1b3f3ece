"""A fleet on a real broker: everything arrives once, and folds to what the scenarios announce."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from confluent_kafka import Message

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.intake import RawRecord
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.simulate import kafka_player
from onex_platform.simulate.kafka_player import play_to_kafka
from onex_platform.simulate.plan import plan_for
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.routes import Route, key_hash, routes_of
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.played_records import moment, read
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

TOPICS = [contract.topic for contract in load_catalogue()]

_LONG_PLAY = ["simulate", "kafka", "--speed", "60", "--duration", "1h", "--registry", "--json"]


class Reader:
    """Reads what came to the catalogue's topics after the reader was made."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._start = end_positions(settings, TOPICS)

    def messages(self) -> Iterator[Message]:
        return read_to_end(self._settings, TOPICS, self._start)

    def by_topic(self) -> Counter[str]:
        return Counter(str(message.topic()) for message in self.messages())


@pytest.fixture
def reader(stack_settings: Settings) -> Reader:
    create_topics(stack_settings, load_catalogue())
    return Reader(stack_settings)


def _raw(message: Message) -> RawRecord:
    contract = load_catalogue()[str(message.topic())]
    assert contract.event_kind is not None
    return RawRecord(
        topic=contract.topic,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=moment(message.timestamp()[1]),
        append_time=contract.timestamp_type == "LogAppendTime",
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
        kind=contract.event_kind,
        legacy=contract.legacy_of is not None,
    )


def test_a_fleet_on_the_broker_arrives_once_and_folds_to_what_was_announced(
    stack_settings: Settings, reader: Reader
) -> None:
    plan = plan_for(
        stack_settings,
        nodes=240,  # a few of each kind, also where the clock runs late
        duration=timedelta(seconds=8),
        speed=60,
        profile=PROFILES["stormy"].changed({"malformed": 0.2}),
    )
    seen: list[float] = []
    report = play_to_kafka(
        stack_settings, load_catalogue(), plan, lambda fleet: seen.append(fleet.progress)
    )
    summary = report.summary

    assert report.is_complete
    assert not report.interrupted
    assert reader.by_topic() == report.acknowledged == summary.by_topic
    assert seen == sorted(seen)
    assert seen[-1] > 0.5

    reading = read(map(_raw, reader.messages()), replace(plan, start=datetime.now(UTC)))
    fold = reading.fold()
    assert reading.parked == summary.malformed
    assert fold.read + reading.parked.total() == summary.records
    standings = Counter(
        "closed" if change.row.is_closed() else change.row.current_state.value
        for change in fold.changes.values()
    )
    assert standings == summary.states
    assert {"closed", "active", "ack_timed_out", "rejected"} <= set(summary.states)


def test_the_partition_of_a_record_is_the_one_that_the_client_chooses(
    stack_settings: Settings, reader: Reader
) -> None:
    plan = plan_for(stack_settings, nodes=30, duration=timedelta(seconds=2), speed=60)
    play_to_kafka(stack_settings, load_catalogue(), plan)
    places = {
        (message.key(), message.partition() == key_hash(message.key() or b"") % 3)
        for message in reader.messages()
    }
    assert len(places) > 10
    assert all(right for _, right in places)


def test_missing_topics_are_named_at_once(
    stack_settings: Settings, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Route(f"missing.{uuid4().hex}", partitions=3, append_time=True)
    astray = {**routes_of(load_catalogue()), (EnumEventKind.NODE_ACK, False): nowhere}
    monkeypatch.setattr(kafka_player, "routes_of", lambda _: astray)
    plan = plan_for(stack_settings, nodes=1, duration=timedelta(seconds=1))
    with pytest.raises(ConfigurationError, match=rf"{nowhere.topic}.*onex topics create"):
        play_to_kafka(stack_settings, load_catalogue(), plan)
    assert not reader.by_topic()


def test_ctrl_c_ends_the_play_with_everything_acknowledged(
    stack_settings: Settings, reader: Reader
) -> None:
    player = subprocess.Popen(
        [sys.executable, "-c", "from onex_platform.cli.main import main; main()", *_LONG_PLAY],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"ONEX_KAFKA_BOOTSTRAP_SERVERS": stack_settings.kafka.bootstrap_servers or ""},
    )
    try:
        assert eventually(lambda: bool(reader.by_topic()), 60)
        player.send_signal(signal.SIGINT)
        printed, _ = player.communicate(timeout=60)
    finally:
        player.kill()
    assert player.returncode == 130
    assert reader.by_topic() == json.loads(printed)["by_topic"]

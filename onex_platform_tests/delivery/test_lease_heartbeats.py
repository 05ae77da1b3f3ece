"""Signs of life: sent beside the work, by the contract, and never at its cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from onex_platform.base.server_settings import KafkaSettings
from onex_platform.base.settings import Settings
from onex_platform.delivery.lease_heartbeats import LEASE_HEARTBEAT, Heart, beating
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform_tests.support.delivery_runs import Diary, member, new_config, send
from onex_platform_tests.support.met_topics import as_contracts_say, decoded, topics_for_a_while
from onex_platform_tests.support.waiting import eventually

NOWHERE = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_seconds=1))


def test_while_the_broker_is_away_signs_are_dropped_and_nobody_waits() -> None:
    heart = Heart(NOWHERE, as_contracts_say, "somebody", seconds=0.000001)
    for _ in range(1000):
        heart.beat()
    # At most one is on its way and one waits.
    assert heart.dropped >= 998
    heart.close(farewell=True)
    assert heart.sent == 0
    heart.beat()
    assert heart.dropped <= 1001


def test_whoever_has_given_no_sign_takes_no_leave() -> None:
    heart = Heart(NOWHERE, as_contracts_say, "somebody", seconds=1)
    heart.close(farewell=True)
    assert (heart.sent, heart.dropped) == (0, 0)


@pytest.fixture
def beats(kafka_settings: Settings) -> Iterator[str]:
    with topics_for_a_while(kafka_settings, [LEASE_HEARTBEAT]) as topics:
        yield from topics


@pytest.mark.servers
def test_a_consumer_gives_signs_until_it_ends_and_an_error_takes_no_leave(
    kafka_settings: Settings, beats: str
) -> None:
    before = end_positions(kafka_settings, [beats])
    config = replace(new_config(kafka_settings, partitions=1), beat_seconds=0.05)
    send(kafka_settings, config.source, ["a", "b"] * 10)
    one = f"{config.group}/one"

    def signs(name: str) -> list[bool]:
        """Of each sign of a name, whether it was the last one."""
        read = read_to_end(kafka_settings, [beats], before)
        values = [decoded(LEASE_HEARTBEAT, record.value() or b"") for record in read]
        return [value["is_last"] for value in values if value["lease_name"] == name]

    diary, static = Diary(), {"group.instance.id": "one"}
    with member(kafka_settings, config, diary, published=as_contracts_say, **static) as running:
        running.work_until(lambda: diary.count == 20 and len(signs(one)) >= 2)
    assert signs(one)[-1] is True
    assert not any(signs(one)[:-1])
    name = f"killed-{uuid4()}"
    with (
        pytest.raises(ValueError, match="broken"),
        beating(kafka_settings, as_contracts_say, name, seconds=60, fence=7) as beat,
    ):
        beat()
        assert eventually(lambda: bool(signs(name)), 30)
        raise ValueError("broken")
    assert signs(name) == [False]

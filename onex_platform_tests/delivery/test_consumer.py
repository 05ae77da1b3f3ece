"""The retrying consumer on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.consumer import wall_clock
from onex_platform.delivery.entries import EnumEntry, Record
from onex_platform.delivery.errors import OutageError, PermanentError
from onex_platform.delivery.letters import parked_keys, read_letters, request
from onex_platform.domain.headers import CANARY
from onex_platform.engines.kafka.clients import open_admin, open_consumer
from onex_platform.engines.kafka.group_offsets import committed
from onex_platform.engines.kafka.topic_admin import delete
from onex_platform_tests.support.delivery_runs import (
    Diary,
    Member,
    in_group,
    make,
    member,
    new_config,
    send,
)

pytestmark = pytest.mark.servers

KEYS = ["a", "b", "c"] * 20


def test_records_are_handled_key_by_key_in_order(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, KEYS)
    diary = Diary()
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == len(KEYS))
    assert diary.seen == {key: [n for n, k in enumerate(KEYS) if k == key] for key in "abc"}
    again = Diary()
    with member(kafka_settings, config, again) as running:
        send(kafka_settings, config.source, ["a"], first=1000)
        running.work_until(lambda: again.count > 0)
    assert again.seen == {"a": [1000]}


def test_samples_are_passed_by_even_behind_a_key_that_waits(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, ["a", "b"])
    send(kafka_settings, config.source, ["a", "b"], first=100, origin=CANARY)
    send(kafka_settings, config.source, ["b"], first=200)
    diary = Diary(lambda d: RuntimeError("no") if d.key == b"a" else None)

    def read() -> int:
        with open_admin(kafka_settings) as admin:
            return sum(committed(admin, config.group, config.source).values())

    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == 2 and running.consumer.waiting() == 1)
        running.work_until(lambda: read() == 5)
    assert diary.seen == {"b": [1, 200]}
    assert {(key, number) for key, number, _ in diary.attempts} == {("a", 0), ("b", 1), ("b", 200)}


def test_a_failing_key_waits_and_the_others_go_on(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, KEYS)
    mended: list[bool] = []
    diary = Diary(lambda d: RuntimeError("no") if d.key == b"a" and not mended else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == 40 and running.consumer.waiting() == 20)
        assert "a" not in diary.seen
        mended.append(True)
        running.ahead = 61_000
        running.work_until(lambda: diary.count == 60)
    assert diary.seen["a"] == [n for n, key in enumerate(KEYS) if key == "a"]


def test_a_dead_key_is_listed_replayed_in_order_and_other_groups_see_nothing(
    kafka_settings: Settings,
) -> None:
    config = new_config(kafka_settings)
    other = in_group(config, "another-" + config.group)
    send(kafka_settings, config.source, KEYS)
    mended: list[bool] = []
    diary = Diary(lambda d: PermanentError("no") if d.key == b"a" and not mended else None)
    bystander = Diary()
    with (
        member(kafka_settings, config, diary) as running,
        member(kafka_settings, other, bystander) as beside,
    ):

        def dead() -> list[str]:
            found = parked_keys(kafka_settings, config, wall_clock())
            return [parked.name for parked in found if parked.dead and not parked.waiting]

        running.work_until(lambda: diary.count == 40 and dead() == ["a"])
        send(kafka_settings, config.source, ["a"], first=60)
        beside.work_until(lambda: bystander.count == 61)
        assert beside.consumer.waiting() == 0
        assert parked_keys(kafka_settings, other, wall_clock()) == []
        running.work_until(lambda: len(_letters(kafka_settings, config)) == 21)
        letters = _letters(kafka_settings, config)
        assert {letter.headers for letter in letters} == {(("origin", b"test"),)}
        mended.append(True)
        found = parked_keys(kafka_settings, config, wall_clock())
        assert request(kafka_settings, config, EnumEntry.REPLAY, found) == 1
        running.work_until(lambda: diary.count == 61)
        running.work_until(lambda: dead() == [])
    assert diary.seen["a"] == [int(letter.value or 0) for letter in letters]
    assert diary.seen["a"] == [*range(0, 60, 3), 60]


def _letters(settings: Settings, config: DeliveryConfig) -> list[Record]:
    found = parked_keys(settings, config, wall_clock())
    return [
        record
        for parked in found
        if parked.dead
        for record in read_letters(settings, config, parked.partition, parked.dead).records
    ]


def test_an_outage_pauses_and_costs_no_attempt(kafka_settings: Settings) -> None:
    config = new_config(kafka_settings)
    send(kafka_settings, config.source, KEYS)
    tries = iter(range(3))
    diary = Diary(lambda _: OutageError("away") if next(tries, None) is not None else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == 60)
        assert running.consumer.waiting() == 0
    assert {attempt for _, _, attempt in diary.attempts} == {1}
    assert diary.seen["b"] == list(range(1, 60, 3))


def test_without_dlt_its_key_stops_is_told_of_and_the_others_go_on(
    kafka_settings: Settings,
) -> None:
    config = new_config(kafka_settings, partitions=1)
    with open_admin(kafka_settings) as admin:
        delete(admin, config.dead_letters)
    send(kafka_settings, config.source, KEYS)
    diary = Diary(lambda d: PermanentError("no") if d.key == b"a" else None)
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: diary.count == 40)
        running.work_until(
            lambda: [alert.name for alert in running.alerts] == ["dead_letters_refused"]
        )
        assert running.consumer.waiting() == 20
        make(kafka_settings, config.dead_letters, 1)
        running.work_until(lambda: running.consumer.waiting() == 0)
        running.work_until(lambda: len(_letters(kafka_settings, config)) == 20)


def test_without_rty_the_partition_pauses_and_nothing_is_committed(
    kafka_settings: Settings,
) -> None:
    config = new_config(kafka_settings, partitions=1)
    with open_admin(kafka_settings) as admin:
        delete(admin, config.retry)
    send(kafka_settings, config.source, KEYS)
    diary = Diary()
    with member(kafka_settings, config, diary) as running:
        running.work_until(lambda: [alert.name for alert in running.alerts] == ["retry_refused"])
        assert diary.count == 0
        with open_consumer(kafka_settings, config.group) as consumer:
            [place] = consumer.committed([TopicPartition(config.source, 0)], timeout=10)
        assert place.offset == OFFSET_INVALID
        make(kafka_settings, config.retry, 1)
        running.work_until(lambda: diary.count == 60)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_move_with_what_waits_in_them(kafka_settings: Settings, protocol: str) -> None:
    config = new_config(kafka_settings, partitions=4, tiers=(200,) * 50)
    keys = [f"key-{number % 20}" for number in range(400)]
    send(kafka_settings, config.source, keys)
    mended: list[bool] = []
    diary = Diary(lambda d: RuntimeError("no") if d.key == b"key-7" and not mended else None)
    overrides = {"group.protocol": protocol}
    with member(kafka_settings, config, diary, **overrides) as first:
        first.work_until(lambda: len(diary.seen) >= 5)
        for _ in range(2):
            with member(kafka_settings, config, diary, **overrides) as second:

                def both(second: Member = second) -> bool:
                    second.consumer.step(0.02)
                    return first.consumer.lanes() == second.consumer.lanes() == 2

                first.work_until(both)
        mended.append(True)
        first.work_until(lambda: {n for ns in diary.seen.values() for n in ns} == {*range(400)})
        first.work_until(lambda: first.consumer.waiting() == 0)
    for key, numbers in diary.seen.items():
        wanted = [n for n, k in enumerate(keys) if k == key]
        reached = -1
        for number in numbers:
            assert wanted.index(number) <= reached + 1
            reached = wanted.index(number)
        assert reached == len(wanted) - 1

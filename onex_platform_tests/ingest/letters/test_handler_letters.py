"""Dead letters of handlers are counted as they are buried, replayed and released."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from onex_platform.base import faults
from onex_platform.delivery.config import DeliveryConfig
from onex_platform.delivery.entries import Entry, EnumEntry, encode, group_of
from onex_platform.delivery.errors import PermanentError
from onex_platform.delivery.letters import ParkedKey, parked_keys, request
from onex_platform.engines.kafka.clients import KafkaRecord, open_admin, open_producer, produce_all
from onex_platform.engines.kafka.topic_admin import delete
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.handler_letters import (
    HandledTopic,
    count_handler_letters,
    follow_handlers,
    handled_topics,
)
from onex_platform.ingest.letters.letter_report import LetterCounts, letter_numbers, report
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.delivery_runs import (
    Diary,
    Member,
    in_group,
    make,
    member,
    new_config,
    send,
)

TOPIC = "validator.evt.test-run-completed.v1"
KEPT = timedelta(days=30)


def follow(archive: PageArchive, config: DeliveryConfig, **limits: float) -> bool:
    topic = HandledTopic(TOPIC, config, KEPT)
    return follow_handlers(archive.platform, [topic], datetime.now(UTC), **limits)  # type: ignore[arg-type]


def counted(archive: PageArchive) -> dict[str, tuple[int, int, int, int]]:
    """Of each group: letters that wait, are about to be replayed, were replayed, were given up."""
    with archive.database.transaction() as cursor:
        found = count_handler_letters(cursor)
    return {
        c.reason.removeprefix("handler of "): (c.waiting, c.submitted, c.entered, c.purged)
        for c in found
    }


def parked(archive: PageArchive, config: DeliveryConfig) -> list[ParkedKey]:
    return parked_keys(archive.settings, config, int(datetime.now(UTC).timestamp() * 1000))


def dead(archive: PageArchive, config: DeliveryConfig) -> set[str]:
    return {key.name for key in parked(archive, config) if key.dead and not key.waiting}


def ask(archive: PageArchive, config: DeliveryConfig, kind: EnumEntry, name: str) -> None:
    chosen = [key for key in parked(archive, config) if key.name == name]
    assert request(archive.settings, config, kind, chosen) == 1


def work_until_dead(
    archive: PageArchive, config: DeliveryConfig, running: Member, *names: str
) -> None:
    running.work_until(lambda: dead(archive, config) == set(names))


def refusing(*keys: bytes) -> tuple[Diary, set[bytes]]:
    """A handler that can't handle some keys, until they are taken out of the set."""
    refused = set(keys)
    return Diary(lambda d: PermanentError("no") if d.key in refused else None), refused


def test_the_group_of_an_entry_is_read_from_our_headers_only() -> None:
    entry = Entry(EnumEntry.CLAIM, b"", claim="me")
    headers = [
        ("x-consumer-group", b"of the sender"),
        *((n, v.encode() if isinstance(v, str) else v) for n, v in encode(entry, "billing")),
    ]
    assert group_of(headers) == "billing"
    assert group_of([("x-consumer-group", b"of the sender")]) is None
    assert group_of(None) is None


@pytest.mark.servers
def test_letters_are_counted_from_their_burial_to_their_end(archive: PageArchive) -> None:
    config = new_config(archive.settings, partitions=1)
    # A letter of the log's in the same topic is none of a handler's.
    with open_producer(archive.settings) as producer:
        produce_all(producer, [KafkaRecord(config.dead_letters, b"odd", "a")])
    send(archive.settings, config.source, ["a", "b", "a", "c"])
    diary, refused = refusing(b"a", b"b")
    with member(archive.settings, config, diary) as running:
        work_until_dead(archive, config, running, "a", "b")
        assert follow(archive, config)
        assert counted(archive) == {config.group: (3, 0, 0, 0)}

        ask(archive, config, EnumEntry.REPLAY, "a")
        assert follow(archive, config)
        assert counted(archive) == {config.group: (1, 2, 0, 0)}
        refused.remove(b"a")
        running.work_until(lambda: diary.seen["a"] == [0, 2] and dead(archive, config) == {"b"})
        assert follow(archive, config)
        assert counted(archive) == {config.group: (1, 0, 2, 0)}

        ask(archive, config, EnumEntry.RELEASE, "b")
        running.work_until(lambda: not parked(archive, config))
        assert follow(archive, config)
        assert counted(archive) == {config.group: (0, 0, 2, 1)}

        # A key that dies once more has letters once more, whatever became of the first ones.
        refused.add(b"a")
        send(archive.settings, config.source, ["a"], first=4)
        work_until_dead(archive, config, running, "a")
    for _ in range(2):
        assert follow(archive, config)
        assert counted(archive) == {config.group: (1, 0, 2, 1)}


@pytest.mark.servers
def test_a_replay_that_fails_again_makes_the_same_letters_wait(archive: PageArchive) -> None:
    config = new_config(archive.settings, partitions=1)
    send(archive.settings, config.source, ["a", "a"])
    diary, _ = refusing(b"a")
    with member(archive.settings, config, diary) as running:
        work_until_dead(archive, config, running, "a")
        first = len(diary.attempts)
        ask(archive, config, EnumEntry.REPLAY, "a")
        running.work_until(lambda: len(diary.attempts) > first)
        work_until_dead(archive, config, running, "a")
    # The first death, the replay and the second death are all news to the first reading.
    assert follow(archive, config)
    assert counted(archive) == {config.group: (2, 0, 0, 0)}


@pytest.mark.servers
def test_what_was_replayed_does_not_wait_again_when_its_key_dies_of_something_else(
    archive: PageArchive,
) -> None:
    config = new_config(archive.settings, partitions=1)
    send(archive.settings, config.source, ["a", "a"])
    diary, refused = refusing(b"a")
    with member(archive.settings, config, diary) as running:
        work_until_dead(archive, config, running, "a")
        ask(archive, config, EnumEntry.REPLAY, "a")
        refused.clear()
        running.work_until(lambda: not parked(archive, config))
        refused.add(b"a")
        send(archive.settings, config.source, ["a"], first=2)
        work_until_dead(archive, config, running, "a")
    assert follow(archive, config)
    assert counted(archive) == {config.group: (1, 0, 2, 0)}


@pytest.mark.servers
def test_reading_is_bounded_and_goes_on_where_it_ended(archive: PageArchive) -> None:
    config = new_config(archive.settings)
    send(archive.settings, config.source, [f"key-{n}" for n in range(10)])
    first, second = config, in_group(config, "second")
    for group in (first, second):
        with member(archive.settings, group, refusing(*(b"key-%d" % n for n in range(10)))[0]) as m:
            m.work_until(lambda group=group: len(dead(archive, group)) == 10)  # type: ignore[misc]
    assert not follow(archive, config, most=7)
    assert sum(numbers[0] for numbers in counted(archive).values()) == 7
    assert not follow(archive, config, seconds=0)
    readings = 0
    while not follow(archive, config, most=7):
        readings += 1
        assert readings < 50
    assert readings > 1
    assert counted(archive) == {first.group: (10, 0, 0, 0), "second": (10, 0, 0, 0)}


@pytest.mark.servers
def test_a_letter_whose_mark_is_lost_waits_until_it_is_deleted(archive: PageArchive) -> None:
    config = new_config(archive.settings, partitions=1)
    send(archive.settings, config.source, ["a"])
    with member(archive.settings, config, refusing(b"a")[0]) as running:
        work_until_dead(archive, config, running, "a")
    assert follow(archive, config)
    with open_admin(archive.settings) as admin:
        delete(admin, config.retry)
    make(archive.settings, config.retry, 1)
    assert follow(archive, config)
    assert counted(archive) == {config.group: (1, 0, 0, 0)}
    later = datetime.now(UTC) + KEPT + timedelta(minutes=1)
    assert follow_handlers(archive.platform, [HandledTopic(TOPIC, config, KEPT)], later)
    assert counted(archive) == {config.group: (0, 0, 0, 1)}


@pytest.mark.servers
@pytest.mark.parametrize("name", ["letters.follow", "letters.settle"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reading_that_is_killed_is_finished_by_the_next(
    archive: PageArchive, when: str, name: str
) -> None:
    class Killed(Exception):  # noqa: N818 - an accident
        pass

    def die() -> None:
        raise Killed

    config = new_config(archive.settings, partitions=1)
    send(archive.settings, config.source, ["a", "a"])
    diary, refused = refusing(b"a")
    with member(archive.settings, config, diary) as running:
        work_until_dead(archive, config, running, "a")
        ask(archive, config, EnumEntry.REPLAY, "a")
        refused.clear()
        running.work_until(lambda: not parked(archive, config))
    faults.arm(f"{when}:{name}", die)
    with pytest.raises(Killed):
        follow(archive, config)
    assert follow(archive, config)
    assert counted(archive) == {config.group: (0, 0, 2, 0)}


@pytest.mark.servers
def test_a_cluster_without_the_topics_has_nothing_to_tell(archive: PageArchive) -> None:
    config = DeliveryConfig("no", "no-rty", "no-dlt", "me", new_config(archive.settings).limits)
    assert follow(archive, config)
    assert counted(archive) == {}
    assert TOPIC in [
        topic.name for topic in handled_topics(archive.settings, load_whole_catalogue())
    ]


def test_letters_of_handlers_are_their_contexts_duty() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    counts = [LetterCounts(TOPIC, "handler of me", 2, 0, 1, 0, 3, 0, since)]
    [told] = report(counts, load_whole_catalogue(), load_policy(), since + timedelta(days=3))
    assert (told.context, told.waiting, told.reprocessed, told.purged) == ("validator", 2, 1, 3)
    assert told.is_late
    assert letter_numbers(counts)["waiting: handler of me"] == 2

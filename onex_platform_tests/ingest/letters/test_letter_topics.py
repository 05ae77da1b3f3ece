"""Dead letters reach the topic of their source: with why they are there, at worst twice."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import InfraError
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, open_admin, read_to_end
from onex_platform.engines.kafka.topic_admin import TopicLayout, create, topic_names
from onex_platform.governance.state import layout_in
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_topics import (
    dead_letter_topics,
    publish_letters,
    to_record,
)
from onex_platform.ingest.letters.parked_letters import (
    LetterFilter,
    each_letter,
    find_unpublished,
    purge,
)
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.dead_letters import park
from onex_platform_tests.support.events import NODE, at, record

pytestmark = pytest.mark.servers

Kind = EnumEventKind
SOURCE = load_catalogue().for_kind(Kind.NODE_HEARTBEAT)
NOW = datetime.now(UTC)


@pytest.fixture
def letters(archive: PageArchive) -> str:
    """The topic for dead heartbeats, on the broker."""
    topic = dead_letter_topics(archive.platform)[SOURCE.topic]
    contract = load_whole_catalogue()[SOURCE.dead_letters or ""]
    with open_admin(archive.settings) as admin:
        create(admin, [layout_in(contract, load_policy(), archive.settings.environment, topic)])
    return topic


def sent_since(archive: PageArchive, topic: str, before: Any) -> list[Any]:
    return list(read_to_end(archive.settings, [topic], before))


def test_every_topic_that_nodes_write_to_has_one_for_its_dead_letters(archive: PageArchive) -> None:
    written = {
        c.topic
        for c in archive.platform.catalogue.registration_inputs()
        if c.producers == ("node",)
    }
    legacy = {contract.topic for contract in archive.platform.catalogue.legacy()}
    assert dead_letter_topics(archive.platform).keys() == written - legacy
    assert dead_letter_topics(archive.platform)[SOURCE.topic] == (
        f"{archive.settings.environment}.omnibase.{SOURCE.dead_letters}"
    )


def test_a_letter_is_sent_once_with_its_bytes_and_why_it_is_there(
    archive: PageArchive, letters: str
) -> None:
    before = end_positions(archive.settings, [letters])
    park(
        archive,
        [
            record(
                Kind.NODE_HEARTBEAT,
                topic=SOURCE.topic,
                partition=2,
                offset=7,
                value=b"\xff{",
                headers=[("a", b"1"), ("a", b"2"), ("x-actor", b"somebody")],
            ),
            record(Kind.NODE_ACCEPTED, topic="no.such.contract", offset=1),
        ],
    )
    assert [publish_letters(archive.platform, NOW) for _ in range(2)] == [1, 0]
    [message] = sent_since(archive, letters, before)
    assert (message.value(), message.key()) == (b"\xff{", str(NODE).encode())
    headers = message.headers()
    assert headers[:2] == [("a", b"1"), ("a", b"2")]
    told = dict(headers)
    places = [told[f"x-source-{part}"] for part in ("topic", "partition", "offset")]
    assert places == [SOURCE.topic.encode(), b"2", b"7"]
    assert told["x-failure-reason"] == b"not_json: it is odd"
    assert told["x-first-seen-ts"] == str(int(at(0).timestamp() * 1000)).encode()
    assert told["x-actor"] == b"somebody"
    required = load_whole_catalogue()[SOURCE.dead_letters or ""].headers.required
    assert told.keys() >= set(required)
    found = list(each_letter(archive.platform, LetterFilter(), NOW))
    assert [letter.published_at is not None for letter in found] == [False, True]


def test_purged_letters_and_bytes_that_no_record_holds_stay_behind(
    archive: PageArchive, letters: str
) -> None:
    before = end_positions(archive.settings, [letters])
    large = b"x" * 2_000_000
    park(
        archive,
        [
            record(Kind.NODE_HEARTBEAT, topic=SOURCE.topic, offset=n, value=value)
            for n, value in enumerate((large, b"gone"))
        ],
    )
    [first, second] = each_letter(archive.platform, LetterFilter(), NOW)
    purge(
        archive.platform,
        LetterFilter(ids=(second.id,)),
        NOW,
        by="ada",
        because="a test",
    )
    assert publish_letters(archive.platform, NOW) == 1
    [message] = sent_since(archive, letters, before)
    assert message.value() is None
    assert dict(message.headers())["x-omitted-bytes"] == b"2000000"
    assert to_record(first, letters, Wrapper(archive.settings)).value is None


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("before:letters.send", 1),
        ("after:letters.send", 2),
        ("before:letters.mark", 2),
        ("after:letters.mark", 1),
    ],
)
def test_killed_at_any_effect_a_letter_is_sent_at_worst_again_under_the_same_id(
    archive: PageArchive, letters: str, point: str, times: int
) -> None:
    class Killed(Exception):  # noqa: N818 - an accident
        pass

    def die() -> None:
        raise Killed

    before = end_positions(archive.settings, [letters])
    park(archive, [record(Kind.NODE_HEARTBEAT, topic=SOURCE.topic, offset=1, value=b"odd")])
    faults.arm(point, die)
    with pytest.raises(Killed):
        publish_letters(archive.platform, NOW)
    publish_letters(archive.platform, NOW)
    sent = sent_since(archive, letters, before)
    assert len(sent) == times
    assert len({dict(message.headers())["ce_id"] for message in sent}) == 1
    assert publish_letters(archive.platform, NOW) == 0


def test_a_letter_that_the_broker_refuses_goes_bare_and_holds_up_no_other(
    archive: PageArchive,
) -> None:
    settings = archive.settings.model_copy(update={"environment": f"sand{secrets.token_hex(4)}"})
    elsewhere = replace(archive.platform, settings=settings)
    topic = dead_letter_topics(elsewhere)[SOURCE.topic]
    with open_admin(settings) as admin:
        create(admin, [TopicLayout(topic, 1, 1, {"max.message.bytes": "5000"})])
    large = secrets.token_bytes(9000)  # which can't be compressed
    values = [large if n == 2 else b"odd" for n in range(5)]
    park(
        archive,
        [
            record(Kind.NODE_HEARTBEAT, topic=SOURCE.topic, offset=n, value=value)
            for n, value in enumerate(values)
        ],
    )
    assert [publish_letters(elsewhere, NOW) for _ in range(2)] == [5, 0]
    found = {
        dict(m.headers())["x-source-offset"]: (m.value(), dict(m.headers()).get("x-omitted-bytes"))
        for m in read_to_end(settings, [topic])
    }
    key = len(str(NODE))
    assert found == {b"%d" % n: (b"odd", None) for n in range(5)} | {
        b"2": (None, b"%d" % (len(large) + key))
    }


def test_few_large_letters_are_taken_at_once(archive: PageArchive) -> None:
    park(
        archive,
        [
            record(Kind.NODE_HEARTBEAT, topic=SOURCE.topic, offset=n, value=b"x" * 400)
            for n in range(5)
        ],
    )
    with archive.database.transaction() as cursor:
        sizes = [
            len(find_unpublished(cursor, archive.domain, [SOURCE.topic], limit=4, most_bytes=most))
            for most in (1, 400, 1000, 10_000)
        ]
    assert sizes == [1, 1, 3, 4]


def test_without_its_topic_a_letter_waits(archive: PageArchive) -> None:
    settings = archive.settings.model_copy(update={"environment": "sand"})
    elsewhere = replace(archive.platform, settings=settings)
    with open_admin(archive.settings) as admin:
        assert dead_letter_topics(elsewhere)[SOURCE.topic] not in topic_names(admin)
    park(archive, [record(Kind.NODE_HEARTBEAT, topic=SOURCE.topic, offset=1, value=b"odd")])
    with pytest.raises(InfraError):
        publish_letters(elsewhere, NOW)
    [letter] = each_letter(archive.platform, LetterFilter(), NOW)
    assert letter.published_at is None

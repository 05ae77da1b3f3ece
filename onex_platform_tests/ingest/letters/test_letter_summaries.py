"""Reports on dead letters reach the topics for audits and metrics, as their contracts say."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from onex_platform.base import faults
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_report import LetterCounts
from onex_platform.ingest.letters.letter_summaries import (
    METRICS,
    SUMMARIES,
    metrics,
    publish_report,
)
from onex_platform.migration.publication import published
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform.topics.schemas.published_values import schema_of
from onex_platform_tests.support.events import at
from onex_platform_tests.support.met_topics import decoded, make_topics

HEARTBEATS = load_catalogue().for_kind(EnumEventKind.NODE_HEARTBEAT).topic
ACKS = load_catalogue().for_kind(EnumEventKind.NODE_ACK).topic
COUNTS = [
    LetterCounts(HEARTBEATS, "bad_tenant", 2, 0, 3, 1, 0, 0, at(0)),
    LetterCounts(HEARTBEATS, "not_json", 1, 0, 0, 0, 5, 0, at(30)),
    LetterCounts(ACKS, "not_json", 0, 0, 1, 0, 0, 0, None),
]
# What a topic's letters come to, a minute after the first was parked.
NUMBERS = {HEARTBEATS: (3, 60.0, 4), ACKS: (0, 0.0, 1)}


def test_numbers_are_by_topic_and_survive_their_encoding() -> None:
    told = dict(metrics(COUNTS, at(60)))
    assert {
        topic: (
            value["dead_letters_waiting"],
            value["oldest_dead_letter_seconds"],
            value["dead_letters_reprocessed"],
        )
        for topic, value in told.items()
    } == NUMBERS
    for value in told.values():
        assert decoded(METRICS, schema_of(METRICS).encode(value)) == value


@pytest.mark.servers
@pytest.mark.parametrize(("moment", "times"), [("before", 1), ("after", 2)])
def test_a_report_that_is_killed_is_published_by_the_next_under_the_same_ids(
    archive: PageArchive, moment: str, times: int
) -> None:
    class Killed(Exception):  # noqa: N818 - an accident
        pass

    def die() -> None:
        raise Killed

    settings, whole = archive.settings, load_whole_catalogue()
    written = partial(published, archive.database, whole)
    topics = make_topics(settings, [SUMMARIES, METRICS])
    before = end_positions(settings, topics)
    faults.arm(f"{moment}:letters.report", die)
    with pytest.raises(Killed):
        publish_report(settings, written, COUNTS, at(60))
    assert publish_report(settings, written, COUNTS, at(60)) == 3
    ids: dict[Any, list[Any]] = {}
    for message in read_to_end(settings, topics, before):
        name = topics[message.topic() or ""]
        headers, value = dict(message.headers() or ()), decoded(name, message.value() or b"")
        assert headers.keys() >= set(whole[str(name)].headers.required)
        assert (message.key() or b"").decode() == value[whole[str(name)].key]
        ids.setdefault(headers["ce_id"], []).append(value)
    assert [len(values) for values in ids.values()] == [times] * 3
    [summary] = [values[0] for values in ids.values() if "context_name" in values[0]]
    assert (summary["context_name"], summary["waiting"], summary["purged"]) == ("node", 3, 5)
    assert (summary["oldest_waiting_seconds"], summary["reprocessed"]) == (60.0, 5)

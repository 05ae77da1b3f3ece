"""What is told of dead letters: how many, how old, and whether somebody looks after them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onex_platform.domain.events import EnumEventKind
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_replay import replay
from onex_platform.ingest.letters.letter_report import (
    LetterCounts,
    count_letters,
    letter_numbers,
    letters_are_looked_after,
    report,
)
from onex_platform.ingest.letters.parked_letters import LetterFilter, LetterId, purge
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.policy import load_policy
from onex_platform_tests.support.dead_letters import park
from onex_platform_tests.support.events import at, record

Kind = EnumEventKind
CATALOGUE, POLICY = load_catalogue(), load_policy()
HEARTBEATS = CATALOGUE.for_kind(Kind.NODE_HEARTBEAT).topic
ACCEPTED = CATALOGUE.for_kind(Kind.NODE_ACCEPTED).topic
[LEGACY] = [c.topic for c in CATALOGUE.legacy() if c.legacy_of == HEARTBEATS]


def counts(topic: str, reason: str = "not_json", **numbers: Any) -> LetterCounts:
    oldest = at(0) if numbers.get("waiting") else None
    nothing = LetterCounts(topic, reason, 0, 0, 0, 0, 0, 0, oldest)
    return nothing._replace(**numbers)


def test_letters_are_counted_for_the_team_that_looks_after_them() -> None:
    found = report(
        [
            counts(HEARTBEATS, waiting=2, entered=1),
            counts(HEARTBEATS, "bad_tenant", duplicate=4),
            counts(LEGACY, waiting=1, purged=5),
            counts(ACCEPTED, waiting=3),
            counts("removed.since", waiting=7),
        ],
        CATALOGUE,
        POLICY,
        at(60),
    )
    assert [(r.context, r.waiting, r.reprocessed, r.purged) for r in found] == [
        ("node", 3, 5, 5),
        ("platform", 7, 0, 0),
        ("registry", 3, 0, 0),
    ]
    assert {r.oldest_waiting for r in found} == {timedelta(seconds=60)}


@pytest.mark.parametrize(
    ("waited", "passes"), [(timedelta(days=1), True), (timedelta(days=2), False)]
)
def test_a_letter_that_waits_longer_than_promised_fails_the_check(
    waited: timedelta, passes: bool
) -> None:
    found = report([counts(HEARTBEATS, waiting=2)], CATALOGUE, POLICY, at(0) + waited)
    verdict = letters_are_looked_after(found)
    assert (verdict.passed, verdict.metadata["waiting"]) == (passes, 2)
    if not passes:
        assert "2 letters of node wait, the oldest for 2 days" in verdict.description
        assert "onex dlt list" in verdict.description


def test_what_is_settled_is_nobodys_duty() -> None:
    found = report([counts(HEARTBEATS, entered=2)], CATALOGUE, POLICY, at(10**9))
    assert letters_are_looked_after(found).passed


@pytest.mark.servers
def test_every_letter_is_counted_once_whatever_became_of_it(archive: PageArchive) -> None:
    readable = [record(Kind.NODE_HEARTBEAT, topic=HEARTBEATS, offset=n) for n in range(3)]
    readable.append(record(Kind.NODE_HEARTBEAT, topic=HEARTBEATS, offset=0, partition=1))
    park(archive, readable, "bad_tenant")
    odd = [record(Kind.NODE_ACCEPTED, topic=ACCEPTED, offset=n, value=b"odd") for n in range(3)]
    park(archive, odd)
    chosen = LetterFilter(ids=(LetterId(ACCEPTED, 0, 0, 1),))
    purge(archive.platform, chosen, at(0), by="ada", because="a test")
    list(replay(archive.platform, LetterFilter(), at(100), by="ada"))
    with archive.database.transaction() as cursor:
        found = count_letters(cursor, archive.domain)
    assert [(c.topic, c.reason, *c[2:8]) for c in found] == [
        (HEARTBEATS, "bad_tenant", 0, 3, 0, 1, 0, 4),
        (ACCEPTED, "not_json", 2, 0, 0, 0, 1, 2),
    ]
    assert letter_numbers(found) == {
        "waiting": 2,
        "submitted": 3,
        "entered": 0,
        "duplicate": 1,
        "purged": 1,
        "unpublished": 6,
        "waiting: not_json": 2,
    }

"""Dead letters by themselves: their names, who is judged how, and what stays of a purged one."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.environment import child_environment
from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import address_variables
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.intake import Parked, admit
from onex_platform.ingest import inbox
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_replay import EnumReplayVerdict, judge, replay
from onex_platform.ingest.letters.parked_letters import (
    EnumLetterState,
    Letter,
    LetterFilter,
    LetterId,
    each_letter,
    purge,
)
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.dead_letters import park
from onex_platform_tests.support.events import RULES, at, event, number_id, record
from onex_platform_tests.support.live_registry import physical

Kind = EnumEventKind
State = EnumLetterState
Verdict = EnumReplayVerdict
TOPIC = load_catalogue().for_kind(Kind.NODE_INTROSPECTION).topic
UNREADABLE = Parked(record(Kind.NODE_ACK), EnumParkReason.NOT_JSON, "it is odd")

places = st.builds(
    LetterId,
    st.sampled_from([TOPIC, "node.heartbeat"]),
    st.integers(0, 999),
    st.integers(0, 3),
    st.integers(0, 10**15),
)


@given(places)
def test_a_letter_is_found_by_the_name_that_it_is_shown_with(place: LetterId) -> None:
    assert LetterId.parse(str(place)) == place


@pytest.mark.parametrize("name", ["", "topic", "topic/1", "topic/x/1", "a/1/2/3/4", "a b/1/2"])
def test_what_names_no_letter_is_refused_with_the_way_to_write_it(name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LetterId.parse(name)
    assert repr(name) in refused.value.message
    assert "TOPIC/PARTITION/OFFSET" in (refused.value.hint or "")


def letter(offset: int) -> Letter:
    return Letter(
        id=LetterId(TOPIC, 0, 0, offset),
        kind=Kind.NODE_ACK,
        reason="not_json",
        detail="it is odd",
        record_timestamp=at(0),
        append_time=True,
        legacy=False,
        key=None,
        value=b"",
        headers=(),
        parked_at=at(1),
        state=State.WAITING,
        event_id=None,
        settled_at=None,
        settled_by=None,
        settled_because=None,
        published_at=None,
    )


@given(
    st.lists(st.none() | st.integers(0, 5), max_size=12),
    st.sets(st.integers(0, 5)),
    st.integers(1, 4),
)
def test_of_each_event_one_letter_enters_however_they_are_batched(
    numbers: list[int | None], known: set[int], batch: int
) -> None:
    letters = [letter(place) for place in range(len(numbers))]
    read: list[LogEvent | Parked] = [
        UNREADABLE if number is None else event(Kind.NODE_ACK, 8, event_id=number_id(number))
        for number in numbers
    ]
    seen = {number_id(number) for number in known}
    judged = [
        item
        for start in range(0, len(letters), batch)
        for item in judge(letters[start : start + batch], read[start : start + batch], seen)
    ]
    expected = [
        Verdict.UNREADABLE
        if number is None
        else Verdict.DUPLICATE
        if number in known or number in numbers[:place]
        else Verdict.ENTERS
        for place, number in enumerate(numbers)
    ]
    assert [item.verdict for item in judged] == expected
    assert [item.id for item in judged] == [item.id for item in letters]


@pytest.mark.servers
def test_a_record_waits_in_the_inbox_with_its_place_and_its_senders_time(
    archive: PageArchive,
) -> None:
    raw = record(
        Kind.NODE_INTROSPECTION,
        5,
        topic=TOPIC,
        partition=2,
        offset=17,
        envelope={"timestamp": at(-60).isoformat()},
        metadata={"b": [1.5, None], "a": {"deep": "ä"}},
    )
    admitted = admit(raw, RULES, at(10))
    assert isinstance(admitted, LogEvent)
    with archive.database.transaction() as cursor:
        assert inbox.submit(cursor, [admitted]) == 1
        assert inbox.waiting(cursor, archive.domain, at(10), 10) == [admitted]


def all_of(archive: PageArchive, state: EnumLetterState | None = None) -> list[Letter]:
    now = datetime.now(UTC)
    return list(each_letter(archive.platform, LetterFilter(state=state), now))


@pytest.mark.servers
def test_letters_are_chosen_by_every_field_that_is_given(archive: PageArchive) -> None:
    now = datetime.now(UTC)
    park(archive, [record(Kind.NODE_ACK, topic="one", offset=n) for n in range(230)])
    park(archive, [record(Kind.NODE_ACK, topic="two", offset=n) for n in range(3)], "bad_tenant")

    def found(limit: int | None = None, **wanted: object) -> int:
        chosen = LetterFilter(**wanted)  # type: ignore[arg-type]
        return len(list(each_letter(archive.platform, chosen, now, limit)))

    assert (found(), found(150), found(topic="two")) == (233, 150, 3)
    assert found(reason=EnumParkReason.BAD_TENANT, topic="one") == 0
    assert found(reason=EnumParkReason.BAD_TENANT) == 3
    assert found(older_than=timedelta(hours=1)) == 0
    assert found(state=State.PURGED) == 0
    assert found(ids=(LetterId("one", 0, 0, 7), LetterId("two", 0, 1, 1))) == 1


@pytest.mark.servers
def test_a_purged_letter_keeps_its_row_and_why_and_none_of_its_bytes(archive: PageArchive) -> None:
    park(
        archive, [record(Kind.NODE_ACK, topic=TOPIC, offset=n, headers={"a": b"1"}) for n in (1, 2)]
    )
    chosen = LetterFilter(ids=(LetterId(TOPIC, 0, 0, 1),))
    now = datetime.now(UTC)
    with pytest.raises(ConfigurationError, match="The reason to purge is empty"):
        purge(archive.platform, chosen, now, by="ada", because=" ")
    for purged in (1, 0):  # once
        assert purged == purge(archive.platform, chosen, now, by="ada", because="a test")
    [gone] = all_of(archive, State.PURGED)
    assert (gone.settled_by, gone.settled_because, gone.settled_at) == ("ada", "a test", now)
    assert (gone.key, gone.value, gone.headers) == (None, None, ())
    assert (gone.reason, gone.detail) == ("not_json", "it is odd")
    [left] = all_of(archive, State.WAITING)
    assert left.as_record() == record(Kind.NODE_ACK, topic=TOPIC, offset=2, headers={"a": b"1"})
    # Nobody replays what is gone.
    assert [item.id.offset for item in replay(archive.platform, LetterFilter(), now, by="ada")] == [
        2
    ]


_CHILD = """
import sys
from datetime import UTC, datetime
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.context import open_platform
from onex_platform.ingest.letters.letter_replay import replay
from onex_platform.ingest.letters.parked_letters import LetterFilter, purge
from onex_platform.topics.catalogue import load_catalogue
faults.arm(sys.argv[1])
now = datetime.now(UTC)
with open_platform(load_settings(), load_catalogue()) as platform:
    if sys.argv[1].endswith("purge"):
        purge(platform, LetterFilter(), now, by="ada", because="a test")
    else:
        list(replay(platform, LetterFilter(), now, by="ada"))
"""


def killed_at(archive: PageArchive, point: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _CHILD, point],
        env=child_environment(address_variables(archive.settings)),
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.servers
@pytest.mark.parametrize(("moment", "done"), [("before", 0), ("after", 100)])
def test_a_replay_that_is_killed_is_completed_by_the_next(
    archive: PageArchive, moment: str, done: int
) -> None:
    park(
        archive,
        [
            record(Kind.NODE_INTROSPECTION, topic=TOPIC, offset=n, node_id=f"node-{n}")
            for n in range(130)
        ],
    )
    killed_at(archive, f"{moment}:letters.submit")
    assert len(all_of(archive, State.SUBMITTED)) == done
    rest = list(replay(archive.platform, LetterFilter(), datetime.now(UTC), by="ada"))
    assert [item.verdict for item in rest] == [Verdict.ENTERS] * (130 - done)
    with archive.database.transaction() as cursor:
        waiting = inbox.waiting(cursor, archive.domain, datetime.now(UTC), 1000)
    letters: dict[UUID | None, Letter] = {item.event_id: item for item in all_of(archive)}
    assert len(waiting) == len(letters) == 130
    for item in waiting:
        assert item.provenance is not None
        assert item.provenance.offset == letters[item.event_id].id.offset
    before = physical(archive, "parked_records", "fact_inbox")
    assert list(replay(archive.platform, LetterFilter(), datetime.now(UTC), by="ada")) == []
    assert physical(archive, "parked_records", "fact_inbox") == before


@pytest.mark.servers
@pytest.mark.parametrize(("moment", "purged"), [("before", 0), ("after", 3)])
def test_a_purge_that_is_killed_has_purged_all_or_none(
    archive: PageArchive, moment: str, purged: int
) -> None:
    park(archive, [record(Kind.NODE_ACK, topic=TOPIC, offset=n) for n in range(3)])
    killed_at(archive, f"{moment}:letters.purge")
    assert len(all_of(archive, State.PURGED)) == purged

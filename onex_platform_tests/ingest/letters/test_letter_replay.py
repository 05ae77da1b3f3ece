"""A record that could not enter the log enters it once it can be read: once, at the log's end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from onex_platform.base import faults
from onex_platform.base.settings import Settings
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import identify_node
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.letters.letter_replay import (
    EnumReplayVerdict,
    Judged,
    preview,
    replay,
)
from onex_platform.ingest.letters.parked_letters import (
    EnumLetterState,
    Letter,
    LetterFilter,
    each_letter,
)
from onex_platform.ingest.verification import verify_log
from onex_platform.pipeline import drain
from onex_platform.projections import checks
from onex_platform.projections.reconciliation import look
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.dead_letters import (
    LEDGER_BEGINS,
    MOST_BYTES,
    OF_VALUES,
    broken,
    forget_ids_before,
    healthy,
    release_that_reads,
)
from onex_platform_tests.support.events import TENANT
from onex_platform_tests.support.folded_logs import log_of, require_live_equals_replay, rows_of
from onex_platform_tests.support.live_registry import physical

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers

Kind = EnumEventKind
Reason = EnumParkReason
State = EnumLetterState
Verdict = EnumReplayVerdict
EVERYTHING = LetterFilter()
_WRITTEN = ("parked_records", "fact_inbox", "event_ledger", "log_cuts", "registration_projections")


def letters_of(archive: PageArchive) -> list[Letter]:
    now = datetime.now(UTC)
    return list(each_letter(archive.platform, LetterFilter(state=None), now))


def states_of(archive: PageArchive) -> dict[str, EnumLetterState]:
    return {letter.reason: letter.state for letter in letters_of(archive)}


def outline(judged: list[Judged]) -> list[tuple[Any, ...]]:
    return [(item.id, item.verdict, item.event_id, item.reason) for item in judged]


def previewed(archive: PageArchive) -> list[Judged]:
    return list(preview(archive.platform, EVERYTHING, datetime.now(UTC)))


def replayed(archive: PageArchive) -> list[Judged]:
    return list(replay(archive.platform, EVERYTHING, datetime.now(UTC), by="ada"))


def require_sound(archive: PageArchive) -> None:
    require_live_equals_replay(archive)
    assert verify_log(archive.log).faults == []
    assert checks.accounting(look(archive.log, whole=True)).passed


@pytest.fixture
def settings(pipeline_settings: Settings) -> Settings:
    registration = pipeline_settings.registration.model_copy(update={"max_event_bytes": MOST_BYTES})
    return pipeline_settings.model_copy(update={"registration": registration})


def test_whatever_was_parked_enters_once_a_release_reads_it(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    meant = {reason: healthy(reason) for reason in OF_VALUES}
    with open_archive(settings) as archive:
        forget_ids_before(archive, LEDGER_BEGINS)
        send(settings, [broken(reason, record) for reason, record in meant.items()])
        send(settings, [sent(Kind.NODE_INTROSPECTION, "neighbour")])
        assert drain(spark, archive, linger_seconds=0.2).parked == len(OF_VALUES)
        assert states_of(archive) == dict.fromkeys(OF_VALUES, State.WAITING)
        # Nothing has changed yet: nothing can be read, and nothing is written by trying.
        before = physical(archive, *_WRITTEN)
        assert {item.verdict for item in replayed(archive)} == {Verdict.UNREADABLE}
        assert physical(archive, *_WRITTEN) == before
        # The release that reads them; but nobody can tell whether a forgotten id is new.
        mended = {
            **meant,
            Reason.BEYOND_LEDGER: broken(Reason.BEYOND_LEDGER, meant[Reason.BEYOND_LEDGER]),
        }
        release_that_reads(monkeypatch, mended.values())
        foreseen = outline(previewed(archive))
        assert physical(archive, *_WRITTEN) == before
        assert outline(replayed(archive)) == foreseen
        assert {verdict for _, verdict, _, reason in foreseen if reason is None} == {Verdict.ENTERS}
        assert [reason for *_, reason in foreseen if reason] == [Reason.BEYOND_LEDGER]
        account = drain(spark, archive, linger_seconds=0.2)
        assert account.archived >= len(OF_VALUES) - 1
        assert states_of(archive) == {
            **dict.fromkeys(OF_VALUES, State.ENTERED),
            Reason.BEYOND_LEDGER: State.WAITING,
        }
        known = {row.node_name for row in rows_of(archive).values()}
        assert known == {
            "neighbour",
            *(f"node-{r}" for r in OF_VALUES if r is not Reason.BEYOND_LEDGER),
        }
        require_sound(archive)
        # Each stands at the log's end, and says where and when it was read first.
        letters = {letter.event_id: letter for letter in letters_of(archive)}
        entered = [event for event in log_of(archive) if event.event_id in letters]
        assert len(entered) == len(OF_VALUES) - 1
        for event in entered:
            place = letters[event.event_id].id
            assert event.provenance is not None
            assert (event.provenance.topic, event.provenance.offset) == (place.topic, place.offset)
            assert event.occurred_at == letters[event.event_id].record_timestamp
            assert event.reported_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
        # A second replay does nothing.
        drain(spark, archive, linger_seconds=0.2)
        before = physical(archive, *_WRITTEN)
        assert [item.id for item in replayed(archive)] == [item.id for item in previewed(archive)]
        assert physical(archive, *_WRITTEN) == before


def test_an_event_that_came_again_meanwhile_is_a_duplicate_wherever_that_is_noticed(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late, twice = (
        healthy(Reason.NOT_JSON),
        healthy(Reason.TOO_LARGE),
        sent(Kind.NODE_HEARTBEAT, "beating"),
    )
    with open_archive(settings) as archive:
        send(settings, [broken(Reason.NOT_JSON, early), broken(Reason.TOO_LARGE, late)])
        send(settings, [broken(Reason.BAD_TENANT, twice)] * 2)
        send(settings, [early])  # its sender tried again
        assert drain(spark, archive, linger_seconds=0.2).parked == 4
        release_that_reads(monkeypatch, [early, late, twice])
        foreseen = outline(previewed(archive))
        assert outline(replayed(archive)) == foreseen
        assert sorted(verdict for _, verdict, *_ in foreseen) == [
            Verdict.DUPLICATE,
            Verdict.DUPLICATE,
            Verdict.ENTERS,
            Verdict.ENTERS,
        ]
        # The same event reaches Kafka while the letter waits for the cut: it enters once.
        send(settings, [late])
        assert drain(spark, archive, linger_seconds=0.2).duplicates == 1
        found = states_of(archive)
        assert (found["not_json"], found["too_large"]) == (State.DUPLICATE, State.ENTERED)
        require_sound(archive)
        assert rows_of(archive).keys() >= {
            row.key for row in rows_of(archive).values() if row.node_name == "node-too_large"
        }


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_cut_that_dies_takes_a_letter_in_or_leaves_it_to_the_next(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Killed(Exception):  # noqa: N818 - an accident
        pass

    def die() -> None:
        raise Killed

    record = healthy(Reason.NOT_JSON)
    with open_archive(settings) as archive:
        send(settings, [broken(Reason.NOT_JSON, record)])
        drain(spark, archive, linger_seconds=0.2)
        release_that_reads(monkeypatch, [record])
        assert [item.verdict for item in replayed(archive)] == [Verdict.ENTERS]
        faults.arm(f"{moment}:ingest.commit_cut", die)
        with pytest.raises(Killed):
            drain(spark, archive, linger_seconds=0.2)
        [letter] = letters_of(archive)
        assert letter.state is (State.SUBMITTED if moment == "before" else State.ENTERED)
        drain(spark, archive, linger_seconds=0.2)
        [letter] = letters_of(archive)
        assert (letter.state, letter.settled_by) == (State.ENTERED, "ada")
        assert sum(event.event_id == letter.event_id for event in log_of(archive)) == 1
        assert identify_node("node-not_json", TENANT).entity_id in {
            key.entity_id for key in rows_of(archive)
        }
        require_sound(archive)

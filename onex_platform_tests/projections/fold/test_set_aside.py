"""A node for which the code raises is set aside; everybody else goes on, and it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import InfraConnectionError
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.ingest.archive import PageArchive
from onex_platform.log.store import PageStore
from onex_platform.projections import checks
from onex_platform.projections.fold import alike, column_fold, reducer
from onex_platform.projections.fold.containment import MassFaultError
from onex_platform.projections.fold.set_aside import alert_of_set_aside
from onex_platform.projections.history import as_of, hourly_states
from onex_platform.projections.history.state_files import THE_BEGINNING
from onex_platform.projections.rebuild.side_table import EnumRowVerdict
from onex_platform.projections.reconciliation import look
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.broken_folds import (
    ERRORS,
    KEY,
    NODES,
    POISON,
    WAYS,
    Fleet,
    announcing,
    break_machine,
    broken,
)
from onex_platform_tests.support.events import at, record
from onex_platform_tests.support.folded_logs import log_of, replayed, rows_of, take_cut
from onex_platform_tests.support.live_registry import execute, joining, node, physical
from onex_platform_tests.support.spark_tasks import IN_THIS_PROCESS

pytestmark = pytest.mark.servers

Kind = EnumEventKind


@pytest.fixture
def fleet(archive: PageArchive) -> Fleet:
    fleet = Fleet(archive)
    assert fleet.cut(100, [item for n in range(NODES) for item in joining(n, n, 10 * n)]).committed
    fleet.others_are_as_the_log_says()
    return fleet


@pytest.mark.parametrize("way", WAYS)
def test_whatever_breaks_for_one_node_leaves_the_others_alone_and_can_be_mended(
    fleet: Fleet, way: str
) -> None:
    breaking, error, breaks_replay = WAYS[way]
    with broken(breaking, fleet):
        before = physical(fleet.archive, "registration_projections", "registration_liveness")
        assert fleet.cut(200, announcing(150, 1000)).committed
        fleet.others_are_as_the_log_says()
        [mark] = fleet.marks()
        assert mark.entity_id == KEY.entity_id
        assert error in mark.error
        assert mark.kind == Kind.NODE_INTROSPECTION
        assert at(150) == mark.since
        # Its row is what it was, down to the last byte; its events are in the log, and counted.
        after = physical(fleet.archive, "registration_projections", "registration_liveness")
        assert [
            line
            for table, lines in before.items()
            for line in lines
            if str(KEY.entity_id) in line and line not in after[table]
        ] == []
        read, parked, aside = fleet.counts()
        assert (parked, aside) == (2, 2)
        assert read == len(log_of(fleet.archive))
        assert checks.accounting(look(fleet.archive.log, whole=True)).passed
        # It stays so, and costs the others nothing.
        assert fleet.cut(300, announcing(250, 2000)).committed
        assert (fleet.marks(), fleet.counts()[2]) == ([mark], 4)
        fleet.others_are_as_the_log_says()
        proof = fleet.proof()
        assert (proof.holds, proof.is_contained, proof.agrees) == (False, True, True)
        verdict = EnumRowVerdict.RAISING if breaks_replay else EnumRowVerdict.SET_ASIDE
        assert [(d.entity_id, d.verdict) for d in proof.comparison.differences] == [
            (KEY.entity_id, verdict)
        ]
        described = checks.live_equals_replay(proof).description
        assert f"1 rows are not what the log says: {KEY.entity_id} ({verdict})" in described
        if breaks_replay:  # whoever tries to bring it back brings all others, and changes nothing
            assert fleet.rebuild().changes == 0
            assert fleet.marks() == [mark]
    verdict = checks.nobody_is_set_aside(fleet.archive.platform, datetime.now(UTC))
    assert (verdict.passed, verdict.metadata["set aside"]) == (False, 1)
    assert str(KEY.entity_id) in verdict.description
    # Mended: the log has it all, and nothing else changes.
    assert fleet.rebuild(nodes=frozenset({KEY.entity_id})).set_aside == 1
    assert fleet.marks() == []
    assert {key: row.domain_columns() for key, row in rows_of(fleet.archive).items()} == {
        key: row.domain_columns() for key, row in replayed(fleet.archive).items()
    }
    assert rows_of(fleet.archive)[KEY].node_version == "2.0"
    proof = fleet.proof()
    assert (proof.holds, proof.comparison.equal) == (True, NODES)
    assert fleet.rebuild().changes == 0
    # And the node is answered as any other.
    batch = fleet.cut(400, announcing(350, 3000))
    assert (batch.committed, fleet.counts()[2]) == (True, 4)
    assert rows_of(fleet.archive)[KEY].current_state.value == "awaiting_ack"
    assert fleet.proof().holds


def test_a_node_that_was_never_known_is_set_aside_and_comes_to_life(fleet: Fleet) -> None:
    newcomer = [
        record(Kind.NODE_INTROSPECTION, 150, offset=5001, node_id="newcomer", epoch=POISON),
        record(Kind.NODE_HEARTBEAT, 150, offset=5002, node_id="well"),
    ]
    with broken(break_machine, fleet):
        assert fleet.cut(200, newcomer).committed
        [mark] = fleet.marks()
        proof = fleet.proof()
        assert (proof.comparison.raising, proof.comparison.unmarked) == (1, 0)
    assert fleet.rebuild().set_aside == 1
    assert (fleet.marks(), len(rows_of(fleet.archive))) == ([], NODES + 1)
    assert fleet.proof().holds
    assert mark.entity_id in {key.entity_id for key in rows_of(fleet.archive)}


def test_a_node_that_raises_in_a_replay_alone_is_never_taken_for_an_invented_row(
    fleet: Fleet,
) -> None:
    assert fleet.cut(200, announcing(150, 1000)).committed
    before = physical(fleet.archive, "registration_projections")
    execute(
        fleet.archive,
        "UPDATE registration_projections SET node_version = 'wrong' WHERE entity_id = %s",
        node(1),
    )
    with broken(break_machine, fleet):
        proof = fleet.proof()
        assert (proof.holds, proof.is_contained) == (False, False)
        found = fleet.rebuild()
    assert (found.changes, found.differing, found.raising, found.unmarked) == (1, 1, 1, 1)
    assert len(physical(fleet.archive, "registration_projections")) == len(before)
    fleet.others_are_as_the_log_says()
    assert fleet.proof().holds


def test_a_server_that_is_away_is_nobody_s_fault(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> object:
        raise InfraConnectionError("The store is away.")

    take_cut(fleet.archive, announcing(150, 1000), at(200))
    for place, name in ((reducer, "read_chunk"), (column_fold, "decide")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, away)
            with pytest.raises(InfraConnectionError):
                fleet.fold()
    with monkeypatch.context() as patch:
        patch.setattr(PageStore, "create", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            fleet.fold()
    assert fleet.marks() == []
    assert fleet.fold().committed
    assert fleet.proof().holds


def test_code_that_raises_for_most_nodes_sets_nobody_aside(
    archive: PageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(archive)
    many = [record(Kind.NODE_INTROSPECTION, n, offset=n, node_id=f"node-{n}") for n in range(30)]

    def broken_for(most: int) -> Callable[..., Any]:
        ids = {node(n) for n in range(most)}

        def decide(row: Any, event: Any, *rest: Any) -> Any:
            if event.entity.entity_id in ids:
                raise ValueError("a bad day")
            return whole(row, event, *rest)

        whole = column_fold.decide
        return decide

    # Else the decider would be asked about one that stands in for all of them.
    monkeypatch.setattr(alike, "WORTHWHILE", len(many) + 1)
    take_cut(archive, many, at(100))
    with monkeypatch.context() as patch:
        patch.setattr(column_fold, "decide", broken_for(16))
        with pytest.raises(MassFaultError, match="16 of 30 nodes, such as: ValueError: a bad day"):
            fleet.fold()
    assert fleet.marks() == []
    with monkeypatch.context() as patch:
        patch.setattr(column_fold, "decide", broken_for(15))
        assert fleet.fold().committed
    assert len(fleet.marks()) == 15
    assert fleet.rebuild().set_aside == 15
    assert fleet.proof().holds


def test_nobody_is_set_aside_one_by_one_until_most_are(
    archive: PageArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(*_: object) -> object:
        raise ValueError("a bad day")

    fleet = Fleet(archive)
    for n in range(10):
        monkeypatch.setattr(column_fold, "decide", decide)
        fleet.cut(10 * n + 5, [record(Kind.NODE_INTROSPECTION, 10 * n, offset=n, node_id=f"n-{n}")])
    with pytest.raises(MassFaultError, match="11 of 11 nodes"):
        fleet.cut(200, [record(Kind.NODE_INTROSPECTION, 150, offset=99, node_id="last straw")])
    assert len(fleet.marks()) == 10


def test_a_batch_that_did_without_a_node_that_was_released_is_folded_again(
    fleet: Fleet,
) -> None:
    with broken(break_machine, fleet):
        fleet.cut(200, announcing(150, 1000))
    take_cut(fleet.archive, announcing(250, 2000), at(300))
    released: list[int] = []
    faults.arm("before:reduce.commit_batch", lambda: released.append(fleet.rebuild().set_aside))
    assert not fleet.fold().committed
    assert released == [1]
    assert fleet.fold().committed
    assert fleet.counts()[2] == 2
    assert fleet.proof().holds


@pytest.mark.parametrize("point", ["after:set_aside.alert", "before:set_aside.mark_alert"])
def test_an_alarm_that_was_not_noted_is_told_again_under_the_same_id(
    fleet: Fleet, point: str
) -> None:
    settings, now = fleet.archive.settings, datetime.now(UTC)
    create_topics(settings, load_catalogue())
    before = end_positions(settings, [ERRORS])
    with broken(break_machine, fleet):
        fleet.cut(200, announcing(150, 1000))

    def die() -> None:
        raise KeyboardInterrupt

    faults.arm(point, die)
    with pytest.raises(KeyboardInterrupt):
        alert_of_set_aside(fleet.archive.platform, now)
    assert [alert_of_set_aside(fleet.archive.platform, now) for _ in range(2)] == [1, 0]
    told = [json.loads(m.value() or b"") for m in read_to_end(settings, [ERRORS], before)]
    ours = [t for t in told if t["payload"]["context"].get("node") == str(KEY.entity_id)]
    assert len(ours) == 2
    assert len({t["event_id"] for t in ours}) == 1
    assert ours[0]["payload"]["context"]["error"] == fleet.marks()[0].error


def test_hours_that_lack_a_node_say_so_and_are_written_anew_once_it_is_back(fleet: Fleet) -> None:
    archive, hour = fleet.archive, at(0)

    def written(hour: datetime) -> frozenset[UUID]:
        return hourly_states.write_hour(IN_THIS_PROCESS, archive.log, hour).set_aside

    with broken(break_machine, fleet):
        fleet.cut(200, announcing(150, 1000))
        fleet.cut(2 * 3600 + 100, announcing(2 * 3600 + 50, 2000, 1, 2))
        assert written(hour) == {KEY.entity_id}
    # The code is mended, but what the next hour begins from is not.
    assert written(hour + hourly_states.HOUR) == {KEY.entity_id}
    moment = hour + 2 * hourly_states.HOUR
    with pytest.raises(as_of.NotFoldedError, match="set aside when the stored hour was written"):
        as_of.node_as_of(archive.log, moment, KEY.entity_id)
    other = as_of.node_as_of(archive.log, moment, node(1))
    assert other is not None and other.node_version == "2.0"
    assert fleet.rebuild(nodes=frozenset({KEY.entity_id})).set_aside == 1
    assert hourly_states.nearest_state(archive.log, 2**62) == THE_BEGINNING
    assert list(hourly_states.unwritten_hours(archive.log)) == [hour, hour + hourly_states.HOUR]
    assert written(hour) == written(hour + hourly_states.HOUR) == frozenset()
    row = as_of.node_as_of(archive.log, moment, KEY.entity_id)
    assert row is not None and row.epoch == POISON

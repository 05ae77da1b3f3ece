"""Silence becomes a fact once, for the deadline that stands, and whatever came first wins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from onex_platform.base.settings import Settings
from onex_platform.deadlines.scan import scan
from onex_platform.domain.deadlines import is_past
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import identify_node
from onex_platform.domain.states import EnumOutcome
from onex_platform.projections import overdue
from onex_platform_tests.support.events import NODE, State, at, event, row
from onex_platform_tests.support.watched_clock import (
    MICROSECOND,
    MINUTE,
    Watched,
    open_watched,
    with_deadlines,
)

pytestmark = pytest.mark.servers

Kind = EnumEventKind
NOW = at(600)


@pytest.mark.parametrize("kind", [Kind.LIVENESS_EXPIRED, Kind.ACK_TIMED_OUT])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_python_and_sql_agree_on_a_deadline_to_the_microsecond(
    watched: Watched, kind: EnumEventKind, offset: int
) -> None:
    deadline = NOW + offset * MICROSECOND
    (watched.active if kind is Kind.LIVENESS_EXPIRED else watched.awaiting_ack)(1, deadline)
    watched.watched_at(NOW)
    watched.folded_to(NOW)
    assert (
        bool(scan(watched.archive.platform, NOW).declared) is is_past(deadline, NOW) is (offset < 0)
    )


def test_a_fact_names_the_node_its_life_and_the_deadline_it_judged(watched: Watched) -> None:
    plain = identify_node("adapter-7", "omnibase").entity_id
    for entity_id, name in ((NODE, "a chosen name"), (plain, "adapter-7")):
        watched.store.projector.persist(
            row(State.ACTIVE, entity_id=entity_id, node_name=name, epoch=4, registered_at=at(0))
        )
    watched.scan(NOW)
    found = {fact.entity.entity_id: fact for fact in watched.waiting()}
    assert set(found) == {NODE, plain}
    assert found[NODE].node_id == str(NODE)
    assert (found[plain].node_id, found[plain].node_name) == ("adapter-7", "adapter-7")
    for fact in found.values():
        assert (fact.kind, fact.epoch, fact.deadline) == (Kind.LIVENESS_EXPIRED, 4, at(60))
        assert fact.occurred_at == NOW


@pytest.mark.parametrize("state", ["active", "awaiting_ack"])
def test_nobody_expires_by_a_row_that_stands_still_because_the_node_is_set_aside(
    watched: Watched, state: str
) -> None:
    getattr(watched, state)(3, at(0))
    watched.execute(
        "INSERT INTO set_aside_nodes (domain, entity_id, since_position, event_id, kind, error)"
        " SELECT domain, entity_id, 1, last_applied_event_id, 'x', 'y'"
        " FROM registration_projections ORDER BY entity_id LIMIT 2"
    )
    assert watched.scan(NOW).declared == 1
    watched.execute("DELETE FROM fact_inbox")
    watched.execute(
        "DELETE FROM registration_projections AS p WHERE NOT EXISTS"
        " (SELECT FROM set_aside_nodes AS s WHERE s.entity_id = p.entity_id)"
    )
    assert scan(watched.archive.platform, NOW).declared == 0
    # Released, it is judged by its own deadline again.
    watched.execute("DELETE FROM set_aside_nodes")
    assert scan(watched.archive.platform, NOW).declared == 2


def test_two_scanners_over_a_thousand_overdue_rows_declare_a_thousand_facts(
    archive_settings: Settings, watched: Watched
) -> None:
    watched.active(10_000, at(9000))
    watched.active(1000, at(0), first=10_000)
    watched.awaiting_ack(1000, at(0), first=20_000)
    watched.watched_at(NOW)
    watched.folded_to(NOW)

    def declared(_: int) -> int:
        with open_watched(with_deadlines(archive_settings, batch_rows=50)) as own:
            return scan(own.archive.platform, NOW).declared

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(declared, range(2))) == 2000
    assert len(watched.waiting()) == 2000
    assert scan(watched.archive.platform, NOW).waiting == 2000


def test_a_heartbeat_that_enters_the_log_before_the_fact_wins(watched: Watched) -> None:
    watched.store.projector.persist(
        row(State.ACTIVE, registered_at=at(0), liveness_deadline=at(590))
    )
    assert watched.scan(NOW).expired == 1
    beat = event(Kind.NODE_HEARTBEAT, 0, 599.9)
    watched.fold(at(601), beat)
    assert watched.states() == {"active": 1}
    assert watched.waiting() == []
    assert watched.store.node().liveness_deadline == at(599.9 + 90)


def test_a_fact_that_enters_the_log_before_the_heartbeat_stands(watched: Watched) -> None:
    watched.store.projector.persist(row(State.ACTIVE, registered_at=at(0)))
    watched.scan(NOW)
    watched.fold(at(602), event(Kind.NODE_HEARTBEAT, 0, 601))
    node = watched.store.node()
    assert node.current_state is State.LIVENESS_EXPIRED
    assert node.liveness_timeout_emitted_at == NOW
    assert watched.scan(at(700)).overdue == 0


def test_a_second_silence_after_recovery_expires_again(watched: Watched) -> None:
    watched.store.projector.persist(row(State.ACTIVE, registered_at=at(0)))
    watched.scan(NOW)
    watched.fold(at(601))
    assert watched.store.node().current_state is State.LIVENESS_EXPIRED
    reborn = [
        event(kind, n, 610 + n, epoch=2)
        for n, kind in enumerate(
            (
                *(Kind.NODE_INTROSPECTION, Kind.NODE_ACCEPTED, Kind.ACK_REQUESTED),
                *(Kind.NODE_ACK, Kind.NODE_REGISTERED),
            )
        )
    ]
    watched.fold(at(620), *reborn)
    assert watched.store.node().current_state is State.ACTIVE
    assert watched.scan(at(650)).overdue == 0
    assert watched.scan(at(800)).expired == 1
    watched.fold(at(801))
    node = watched.store.node()
    assert (node.current_state, node.epoch) == (State.LIVENESS_EXPIRED, 2)


def test_a_second_silence_within_one_life_is_judged_by_its_own_deadline(watched: Watched) -> None:
    watched.store.projector.persist(row(State.ACTIVE, registered_at=at(0)))
    watched.scan(NOW)
    watched.fold(at(601), event(Kind.NODE_HEARTBEAT, 0, 599))  # it was alive after all
    assert watched.store.node().current_state is State.ACTIVE
    assert watched.scan(at(600 + 91)).expired == 1
    watched.fold(at(700))
    assert watched.store.node().current_state is State.LIVENESS_EXPIRED


def test_a_deadline_that_was_declared_in_vain_and_stands_again_is_declared_again(
    watched: Watched,
) -> None:
    """A registry with times of its own can grant the same deadline twice, within one life."""
    watched.store.projector.persist(row(State.AWAITING_ACK))
    watched.scan(NOW)
    watched.fold(at(601))
    assert watched.store.node().current_state is State.ACK_TIMED_OUT
    watched.fold(
        at(610),
        event(Kind.NODE_INTROSPECTION, 1, 605),
        event(Kind.NODE_ACCEPTED, 2, 606, deadline=at(30)),
    )
    assert watched.store.node().ack_deadline == at(30)
    assert watched.scan(at(700)).ack_timed_out == 1
    assert watched.scan(at(701)).waiting == 1
    watched.fold(at(702))
    assert watched.store.node().current_state is State.ACK_TIMED_OUT


def test_a_fact_in_the_log_that_is_not_folded_yet_is_not_declared_again(watched: Watched) -> None:
    watched.active(1, at(0))
    watched.scan(NOW)
    [fact] = watched.waiting()
    watched.execute("DELETE FROM fact_inbox")
    watched.execute(
        "INSERT INTO event_ledger VALUES (%(id)s, 'registration', now())", id=fact.event_id
    )
    watched.execute(
        "INSERT INTO log_cuts VALUES ('registration', %(a)s, %(b)s, 1, 1, 0, 0)",
        a=NOW,
        b=at(601),
    )
    account = watched.scan(NOW)
    assert (account.declared, account.waiting) == (0, 1)


def test_a_stale_fact_is_folded_without_effect(watched: Watched) -> None:
    watched.store.projector.persist(row(State.ACTIVE, registered_at=at(0)))
    watched.scan(NOW)
    [fact] = watched.waiting()
    batch = watched.store.folded([event(Kind.NODE_HEARTBEAT, 200, 599), fact], 0, 10**18)
    assert batch.outcomes == {EnumOutcome.APPLIED: 1, EnumOutcome.STALE: 1}


def test_deregistered_nodes_are_never_judged(watched: Watched) -> None:
    watched.store.projector.persist(row(State.ACTIVE, registered_at=at(0)))
    watched.fold(at(10), event(Kind.NODE_DEREGISTERED, 1, 5))
    assert watched.scan(NOW).overdue == 0


@pytest.mark.parametrize(
    ("decider", "chosen", "declares"),
    [(True, None, True), (False, None, False), (False, True, True), (True, False, False)],
)
def test_where_another_registry_decides_it_also_declares(
    archive_settings: Settings, decider: bool, chosen: bool | None, declares: bool
) -> None:
    registration = archive_settings.registration.model_copy(update={"decider_enabled": decider})
    settings = with_deadlines(
        archive_settings.model_copy(update={"registration": registration}), enabled=chosen
    )
    with open_watched(settings) as watched:
        watched.active(1, at(0))
        assert bool(watched.scan(NOW).declared) is declares


def test_a_dry_run_counts_and_changes_nothing(watched: Watched) -> None:
    watched.active(100, at(0))
    watched.awaiting_ack(5, at(0), first=100)
    watched.watched_at(NOW - MINUTE / 2)
    watched.folded_to(NOW)
    tables = ("fact_inbox", "declared_expiries", "expiry_holds", "deadline_watches")
    before = watched.store.physical(*tables)
    account = scan(watched.archive.platform, NOW, dry_run=True)
    assert (account.expired, account.held, account.ack_timed_out) == (15, 85, 5)
    assert watched.store.physical(*tables) == before


def test_a_hundred_thousand_overdue_rows_are_judged_in_bounded_scans_of_short_batches(
    archive_settings: Settings,
) -> None:
    settings = with_deadlines(
        archive_settings, batch_rows=5000, scan_facts=40_000, scan_seconds=100, guard_share=1.0
    )
    with open_watched(settings) as watched:
        watched.active(100_000, at(0))
        first = watched.scan(NOW)
        assert (first.expired, first.complete) == (40_000, False)
        # Each batch was a transaction of its own.
        assert watched.select("SELECT count(DISTINCT xmin::text) FROM fact_inbox") == [(8,)]
        with watched.store.transaction() as cursor:
            # Nobody but readers gets past this lock: rows are neither locked nor written.
            cursor.execute(
                "LOCK TABLE registration_projections, registration_liveness IN EXCLUSIVE MODE"
            )
            assert [watched.scan(NOW).expired for _ in range(2)] == [40_000, 20_000]
        query = "SELECT count(*) AS facts, count(DISTINCT entity_id) AS nodes FROM fact_inbox"
        assert watched.select(query) == [(100_000, 100_000)]


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        (Kind.LIVENESS_EXPIRED, "idx_registration_liveness_timeout_scan"),
        (Kind.ACK_TIMED_OUT, "idx_registration_ack_timeout_scan"),
    ],
)
def test_the_overdue_are_found_by_an_index_alone(
    watched: Watched, kind: EnumEventKind, index: str
) -> None:
    watched.active(10_000, at(9000))
    watched.awaiting_ack(10_000, at(9000), first=20_000)
    watched.active(100, at(0), first=50_000)
    watched.awaiting_ack(100, at(0), first=60_000)
    with watched.archive.database.engine.connect() as connection:
        free = connection.execution_options(isolation_level="AUTOCOMMIT")
        free.exec_driver_sql("VACUUM ANALYZE registration_projections, registration_liveness")
    which = {"domain": "registration", "before": NOW, "limit": 1000}
    place = {"after": overdue.BEGINNING.deadline, "after_id": overdue.BEGINNING.entity_id}
    query = f"EXPLAIN (ANALYZE, FORMAT JSON) {overdue.keys_query(kind)}"
    with watched.store.transaction() as cursor:
        [(answer,)] = cursor.execute(query, which | place).fetchall()
    # Beside it stands who is set aside, found once.
    plans = answer[0]["Plan"]["Plans"]
    [found] = [plan for plan in plans if plan["Parent Relationship"] == "Outer"]
    assert (found["Node Type"], found["Index Name"]) == ("Index Only Scan", index)
    assert (found["Actual Rows"], found["Heap Fetches"]) == (100, 0)
    assert found.get("Rows Removed by Filter", 0) == 0


def test_a_scan_that_runs_out_of_time_is_continued_and_nobody_is_passed_over(
    archive_settings: Settings,
) -> None:
    settings = with_deadlines(archive_settings, batch_rows=10, scan_seconds=1e-9)
    with open_watched(settings) as watched:
        watched.active(1000, at(9000), first=1000)
        watched.active(30, at(0))
        watched.awaiting_ack(10, at(0), first=100)
        # The first batches of each kind wait for others; those behind them must have their turn.
        found = [watched.scan(NOW) for _ in range(8)]
        assert sum(account.expired for account in found) == 30
        assert sum(account.ack_timed_out for account in found) == 10

"""Repetitions, rivals and crashes: whatever happens to a batch, it counts once or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from onex_platform.base.environment import child_environment
from onex_platform.base.settings import Settings
from onex_platform.domain.events import LogEvent
from onex_platform.domain.reference.plain_fold import replay
from onex_platform_tests.support.events import Kind, State, event, number_id, row
from onex_platform_tests.support.stored_rows import EMPTY, Store
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

ROUNDS = 500
INTROSPECTED = event(Kind.NODE_INTROSPECTION, 1, 0)


def test_a_repeated_batch_changes_nothing_and_is_told_so(store: Store) -> None:
    batch = store.folded([INTROSPECTED], 0, 5)
    assert store.projector.persist_batch(batch).committed
    before = store.physical()
    again = store.projector.persist_batch(batch)
    assert (again.committed, again.position) == (False, 5)
    assert again.written.rows == 0
    assert store.physical() == before


def test_a_rival_batch_changes_nothing_and_is_told_so(
    store: Store, another_store: Callable[[], Store]
) -> None:
    rival = another_store()
    ours = store.folded([INTROSPECTED], 0, 5)
    theirs = rival.folded([event(Kind.NODE_INTROSPECTION, 3, 2, node=number_id(8))], 0, 9)
    assert store.projector.persist_batch(ours).committed
    before = store.physical()
    lost = rival.projector.persist_batch(theirs)
    assert (lost.committed, lost.position) == (False, 5)
    assert store.physical() == before


def test_two_batches_at_once_are_one_and_a_loser(
    store: Store, another_store: Callable[[], Store]
) -> None:
    stores = [store, another_store()]
    start_together = threading.Barrier(2, timeout=30)

    def compete(mine: Store, start: int) -> bool:
        life = event(Kind.NODE_INTROSPECTION, start, start, epoch=start + 1)
        batch = mine.folded([life], start, start + 1)
        start_together.wait()
        return mine.projector.persist_batch(batch).committed

    with ThreadPoolExecutor(2) as pool:
        for start in range(50):
            assert sorted(pool.map(compete, stores, [start, start])) == [False, True]
    assert store.node().row_version == 50


def test_two_projectors_racing_on_one_node_lose_no_event(
    store: Store, another_store: Callable[[], Store]
) -> None:
    """Each has its own events, folds them onto what stands, and tries again when it lost."""
    log: list[LogEvent] = []

    def run(mine: Store, kind: Kind, first_id: int) -> None:
        for count in range(ROUNDS // 2):
            while True:
                start = mine.position()
                one = event(kind, start, start, event_id=number_id(first_id + count))
                if mine.fold([one], start, start + 1).committed:
                    log.append(one)
                    break

    store.fold([INTROSPECTED], 0, 2)
    with ThreadPoolExecutor(2) as pool:
        racers = [
            pool.submit(run, store, Kind.NODE_INTROSPECTION, 10_000),
            pool.submit(run, another_store(), Kind.NODE_HEARTBEAT, 20_000),
        ]
        for racer in racers:
            racer.result()
    history = [INTROSPECTED, *sorted(log, key=lambda one: one.position)]
    assert len({one.position for one in history}) == ROUNDS + 1
    stored = store.node()
    assert stored.domain_columns() == replay(history)[stored.key].domain_columns()
    assert stored.row_version == 1 + ROUNDS // 2
    assert store.select("SELECT sum(applied) FROM batch_outcomes") == [(ROUNDS + 1,)]


def test_two_projectors_persisting_one_node_end_with_the_newer_row(
    store: Store, another_store: Callable[[], Store]
) -> None:
    stores = [store, another_store()]
    start_together = threading.Barrier(2, timeout=30)
    written = 0

    def write(mine: Store, position: int) -> bool:
        projection = row(
            State.PENDING_REGISTRATION, last_applied_sequence=position, node_name=str(position)
        )
        start_together.wait()
        return mine.projector.persist(projection)

    with ThreadPoolExecutor(2) as pool:
        for turn in range(ROUNDS):
            positions = [2 * turn + turn % 2, 2 * turn + 1 - turn % 2]
            outcomes = dict(zip(positions, pool.map(write, stores, positions), strict=True))
            written += sum(outcomes.values())
            assert outcomes[max(positions)]
            if turn % 50 == 0:
                assert store.node().node_name == str(max(positions))
    assert store.node().last_applied_sequence == 2 * ROUNDS - 1
    assert store.node().row_version == written


# Folds one batch and says so; started as a process of its own, so that it can be killed.
ONE_BATCH = """
import sys
from onex_platform.base.settings import load_settings
from onex_platform_tests.support.events import Kind, event
from onex_platform_tests.support.stored_rows import open_store

with open_store(load_settings()) as store:
    events = [event(Kind.NODE_INTROSPECTION, 1, 0), event(Kind.NODE_ACCEPTED, 2, 1)]
    print(store.fold(events, 0, 5).committed, flush=True)
    sys.stdin.read()  # until it is killed, or whoever started it is gone
"""


@pytest.fixture
def batch_process(store_settings: Settings) -> Callable[[], subprocess.Popen[str]]:
    url = store_settings.postgres.url
    assert url is not None
    variables = {"ONEX_POSTGRES_URL": url.get_secret_value()}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", ONE_BATCH],
            env=child_environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def test_killed_before_the_commit_a_batch_leaves_nothing_and_can_be_repeated(
    store: Store, batch_process: Callable[[], subprocess.Popen[str]]
) -> None:
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'batch_outcomes'::regclass"
    )
    with store.transaction() as holder:
        # The account is the last thing that a batch writes: all the rest is done, nothing is sure.
        holder.execute("LOCK TABLE batch_outcomes")
        process = batch_process()
        assert eventually(lambda: store.select(waiting) == [(1,)]), "it did not come that far"
        process.kill()
        process.communicate()
    events = [INTROSPECTED, event(Kind.NODE_ACCEPTED, 2, 1)]
    assert store.physical() == EMPTY
    assert store.fold(events, 0, 5).committed
    assert store.node().domain_columns() == replay(events)[store.node().key].domain_columns()


def test_killed_after_the_commit_a_batch_counts_and_its_repetition_does_not(
    store: Store, batch_process: Callable[[], subprocess.Popen[str]]
) -> None:
    process = batch_process()
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    process.kill()
    process.communicate()
    before = store.physical()
    events = [INTROSPECTED, event(Kind.NODE_ACCEPTED, 2, 1)]
    assert not store.fold(events, 0, 5).committed
    assert store.physical() == before
    assert store.node().domain_columns() == replay(events)[store.node().key].domain_columns()
    assert store.select("SELECT position FROM fold_cursors") == [(5,)]

"""Leases on a real PostgreSQL: who has one keeps it while it lives, and nobody commits without."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta

import psutil
import pytest

from onex_platform.base.errors import InfraError
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import PipelineSettings, Settings, address_variables
from onex_platform.engines.postgres.database import Database, open_database
from onex_platform.engines.postgres.leases import (
    LeaseKeeper,
    LeaseLostError,
    end_expired,
    end_forgotten,
    leases_of_runs,
    living,
    open_keeper,
    open_leases,
)
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.forked_programs import ForkedProgram, start_program

pytestmark = pytest.mark.servers

SECONDS = 1.0
NAME = "registration.drain"


@pytest.fixture
def settings(store_settings: Settings) -> Settings:
    return store_settings.model_copy(update={"pipeline": PipelineSettings(lease_seconds=SECONDS)})


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    with open_database(settings, CircuitBreaker("test")) as database:
        yield database


@pytest.fixture
def keeper_of(settings: Settings) -> Iterator[Callable[[], LeaseKeeper]]:
    """A keeper for each owner; all are closed after the test."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(open_keeper(settings))


def expire(database: Database, number: int) -> None:
    """Let a lease have been renewed too long ago."""
    with database.transaction() as cursor:
        cursor.execute(
            "UPDATE leases SET expires_at = clock_timestamp() - interval '1 second'"
            " WHERE number = %s",
            [number],
        )


def test_one_works_and_the_next_takes_over_when_it_ends(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    first = keeper_of().claim(NAME, exclusive=True)
    second = keeper_of().claim(NAME, exclusive=True, run_id="r")
    assert second.number > first.number
    assert first.take()
    assert first.take()  # it has it
    assert not second.take()
    assert first.heir() is None
    second.stand_by()
    heir = first.heir()
    assert heir is not None
    assert (heir.number, heir.run_id, heir.process) == (second.number, "r", os.getpid())
    first.end("handed_over")
    assert second.take()
    [left] = living(database, NAME)
    assert left.number == second.number


def test_other_names_and_shared_leases_do_not_wait(keeper_of: Callable[[], LeaseKeeper]) -> None:
    keeper = keeper_of()
    assert keeper.claim(NAME, exclusive=True).take()
    assert keeper.claim("other.drain", exclusive=True).take()
    shared = [keeper.claim("compact_pages", exclusive=False) for _ in range(2)]
    assert [lease.is_lost for lease in shared] == [False, False]


def test_of_several_that_stand_by_the_last_is_the_heir(
    keeper_of: Callable[[], LeaseKeeper],
) -> None:
    keeper = keeper_of()
    holder, *others = [keeper.claim(NAME, exclusive=True) for _ in range(3)]
    holder.take()
    for lease in others:
        lease.stand_by()
    heir = holder.heir()
    assert heir is not None
    assert heir.number == others[-1].number


def test_a_lease_is_renewed_while_its_owner_is_busy(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    lease = keeper_of().claim(NAME, exclusive=True)
    assert lease.take()
    with database.transaction() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [1.5 * SECONDS])
    assert [record.number for record in living(database, NAME)] == [lease.number]
    until = time.monotonic() + 1.5 * SECONDS
    while time.monotonic() < until:  # computing, without a pause
        sum(range(1000))
    assert [record.number for record in living(database, NAME)] == [lease.number]
    lease.require()


def test_whoever_lost_a_lease_is_told_and_can_not_commit(
    settings: Settings,
    keeper_of: Callable[[], LeaseKeeper],
    database: Database,
) -> None:
    late = keeper_of().claim(NAME, exclusive=True)
    assert late.take()
    own = database.fenced(late.fence)
    insert = "INSERT INTO fold_cursors (domain, position) VALUES (%s, 0)"
    with own.transaction() as cursor:
        cursor.execute(insert, ["before"])
    # As after a stop of its process: nothing was renewed, and somebody else has taken over.
    with database.transaction() as cursor:
        cursor.execute("SELECT FROM leases WHERE number = %s FOR UPDATE", [late.number])
        cursor.execute(
            "UPDATE leases SET expires_at = clock_timestamp() - interval '1 second',"
            " ended_at = clock_timestamp(), ending = 'expired' WHERE number = %s",
            [late.number],
        )
    assert keeper_of().claim(NAME, exclusive=True).take()
    with (
        pytest.raises(LeaseLostError, match="somebody else has it"),
        own.transaction() as cursor,
    ):
        cursor.execute(insert, ["after"])
    with own.transaction() as cursor:  # reading is no commit
        rows = cursor.execute("SELECT domain FROM fold_cursors").fetchall()
    assert rows == [("before",)]
    assert wait_until(lambda: late.is_lost, 5)
    with pytest.raises(LeaseLostError):
        late.require()


def test_a_commit_under_way_is_waited_for(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    slow = keeper_of().claim(NAME, exclusive=True)
    assert slow.take()
    rival = keeper_of().claim(NAME, exclusive=True)
    with database.transaction() as cursor:
        slow.fence(cursor)  # from here on until the commit, nobody ends it
        with pytest.raises(InfraError), database.transaction() as other:
            other.execute("SET LOCAL lock_timeout = '100ms'")
            other.execute("UPDATE leases SET ended_at = now(), ending = 'expired'")
        assert not rival.take()


def test_an_expired_lease_that_nobody_took_goes_on(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    lease = keeper_of().claim(NAME, exclusive=True)
    lease.take()
    expire(database, lease.number)
    assert wait_until(lambda: len(living(database, NAME)) == 1, 5)
    lease.require()


def test_a_clock_that_is_an_hour_off_neither_loses_nor_steals_a_lease(
    keeper_of: Callable[[], LeaseKeeper],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = keeper_of().claim(NAME, exclusive=True)
    right.take()
    real = time.time
    for hours in (-1, 1):
        monkeypatch.setattr(time, "time", lambda shift=hours: real() + 3600 * shift)
        wrong = keeper_of().claim(NAME, exclusive=True)
        assert not wrong.take()
        begun = earliest_expiry(database)
        later = begun + timedelta(seconds=1.5 * SECONDS)
        assert wait_until(lambda later=later: earliest_expiry(database) > later, 30)
        assert not wrong.take()
        right.require()
        wrong.require()
        wrong.end()
    assert [record.number for record in living(database, NAME)] == [right.number]


def earliest_expiry(database: Database) -> datetime:
    """Until when every lease that has not ended is renewed."""
    with database.transaction() as cursor:
        query = "SELECT min(expires_at) AS expiry FROM leases WHERE ended_at IS NULL"
        [row] = cursor.execute(query).fetchall()
    expiry: datetime = row.expiry
    return expiry


_OWNER = """
import sys, time
from onex_platform.base import faults
from onex_platform.engines.postgres.leases import open_keeper
from onex_platform.engines.postgres.database import open_database
from onex_platform.base.settings import load_settings

settings = load_settings()
with open_keeper(settings) as keeper:
    if sys.argv[1] != "-":
        faults.arm(sys.argv[1])
    lease = keeper.claim("registration.drain", exclusive=True, run_id="owner")
    assert lease.take()
    if len(sys.argv) > 2:
        with (
            open_database(settings) as database,
            database.fenced(lease.fence).transaction() as cursor,
        ):
            cursor.execute("INSERT INTO fold_cursors (domain, position) VALUES ('locked', 0)")
            print("inside", flush=True)
            time.sleep(60)
    lease.end()
"""


def owner(settings: Settings, *arguments: str) -> ForkedProgram:
    """A process that takes the lease."""
    variables = {**address_variables(settings), "ONEX_PIPELINE_LEASE_SECONDS": str(SECONDS)}
    return start_program(_OWNER, *arguments, variables=variables)


@pytest.mark.parametrize("effect", ["leases.claim", "leases.take", "leases.end"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_owner_killed_at_any_effect_is_succeeded(
    settings: Settings, keeper_of: Callable[[], LeaseKeeper], moment: str, effect: str
) -> None:
    killed = owner(settings, f"{moment}:{effect}")
    assert killed.wait() == -signal.SIGKILL
    lease = keeper_of().claim(NAME, exclusive=True)
    assert wait_until(lease.take, 10)


def test_an_owner_stopped_inside_a_transaction_loses_its_locks(
    settings: Settings,
    keeper_of: Callable[[], LeaseKeeper],
    database: Database,
) -> None:
    stopped = owner(settings, "-", "stays")
    try:
        assert stopped.output.readline() == "inside\n"
        psutil.Process(stopped.pid).suspend()
        lease = keeper_of().claim(NAME, exclusive=True)
        assert wait_until(lease.take, 10)
        with database.fenced(lease.fence).transaction() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1s'")
            cursor.execute("INSERT INTO fold_cursors (domain, position) VALUES ('locked', 1)")
        [record] = leases_of_runs(database, ["owner"])["owner"]
        assert (record.ending, record.lives) == ("expired", False)
    finally:
        stopped.kill()


def test_what_a_run_no_longer_renews_is_ended_for_it(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    keeper = keeper_of()
    lease = keeper.claim("compact_pages", exclusive=False, run_id="r")
    assert not end_expired(database, "r")  # it lives
    keeper.drop(lease)  # as if its process had died
    expire(database, lease.number)
    [open_lease] = open_leases(database, "compact_pages")
    assert not open_lease.lives
    end_forgotten(database, timedelta(hours=1))
    assert len(open_leases(database)) == 1
    assert end_expired(database, "r")
    assert open_leases(database) == []


def test_forgotten_leases_are_ended_after_a_while(
    keeper_of: Callable[[], LeaseKeeper], database: Database
) -> None:
    keeper = keeper_of()
    lease = keeper.claim(NAME, exclusive=True)
    keeper.drop(lease)
    expire(database, lease.number)
    end_forgotten(database, timedelta())
    assert open_leases(database) == []


def test_a_closed_keeper_has_given_everything_back(settings: Settings, database: Database) -> None:
    with open_keeper(settings) as keeper:
        keeper.claim(NAME, exclusive=True).take()
        keeper.claim("compact_pages", exclusive=False)
        assert len(living(database)) == 2
    assert open_leases(database) == []

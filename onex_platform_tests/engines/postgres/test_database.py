"""The engine's promises: one driver, UTC, bounded waiting, errors of ours without secrets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from psycopg.errors import CheckViolation
from pydantic import SecretStr

from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    fetch_one,
    open_database,
    open_engine,
    streamed,
    translated,
)


def with_postgres(settings: Settings, **changes: Any) -> Settings:
    postgres = settings.postgres.model_copy(update=changes)
    return settings.model_copy(update={"postgres": postgres})


def with_url(settings: Settings, url: str) -> Settings:
    return with_postgres(settings, url=SecretStr(url))


def scalar(cursor: Cursor, query: str) -> Any:
    (value,) = cursor.execute(query).fetchone()
    return value


@pytest.fixture
def breaker() -> CircuitBreaker:
    return CircuitBreaker("postgresql", BreakerSettings())


OpenDatabase = Callable[..., Database]


@pytest.fixture
def opened(database_settings: Settings, breaker: CircuitBreaker) -> Iterator[OpenDatabase]:
    """Opens the test's database, with settings changed as asked."""
    with ExitStack() as databases:
        yield lambda **changes: databases.enter_context(
            open_database(with_postgres(database_settings, **changes), breaker)
        )


@pytest.fixture
def database(opened: OpenDatabase) -> Database:
    return opened()


def test_without_an_address_the_way_out_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"onex stack up.*ONEX_POSTGRES_URL"):
        open_engine(Settings.model_construct())


def test_an_address_that_cannot_be_parsed_is_shown_without_its_password() -> None:
    settings = with_url(Settings.model_construct(), "postgresql://me:s3cret@host:port/onex")
    with pytest.raises(ConfigurationError) as caught:
        open_engine(settings)
    assert "me:***@host:port" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgresql+psycopg2", "postgresql+asyncpg", "postgresql+psycopg"]
)
def test_every_spelling_of_the_address_means_psycopg_3(scheme: str) -> None:
    settings = with_url(Settings.model_construct(), f"{scheme}://me@host/onex")
    assert open_engine(settings).url.drivername == "postgresql+psycopg"


@pytest.mark.servers
class TestOnAServer:
    def test_sessions_are_utc_named_and_bounded(self, opened: OpenDatabase) -> None:
        database = opened(application_name="fold", statement_timeout_seconds=7)
        with database.transaction() as cursor:

            def shown(name: str) -> str:
                return str(scalar(cursor, f"SHOW {name}"))

            assert shown("timezone") == "UTC"
            assert shown("application_name").startswith(f"fold {os.getpid()}.")
            assert shown("statement_timeout") == "7s"
            assert shown("lock_timeout") == "30s"

    def test_options_in_the_address_stay_in_force(
        self, opened: OpenDatabase, database_url: str
    ) -> None:
        sign = "&" if "?" in database_url else "?"
        database = opened(url=SecretStr(f"{database_url}{sign}options=-c%20work_mem%3D9MB"))
        with database.transaction() as cursor:
            assert scalar(cursor, "SHOW work_mem") == "9MB"
            assert scalar(cursor, "SHOW timezone") == "UTC"

    def test_a_slow_statement_times_out(self, opened: OpenDatabase) -> None:
        database = opened(statement_timeout_seconds=0.1)
        with (
            pytest.raises(InfraTimeoutError, match="STATEMENT_TIMEOUT"),
            database.transaction() as cursor,
        ):
            cursor.execute("SELECT pg_sleep(30)")

    def test_a_wait_for_a_lock_times_out(self, opened: OpenDatabase) -> None:
        database = opened(lock_timeout_seconds=0.1)
        lock = "SELECT pg_advisory_xact_lock(1)"
        with database.transaction() as holder:
            holder.execute(lock)
            with (
                pytest.raises(InfraTimeoutError, match="LOCK_TIMEOUT"),
                database.transaction() as other,
            ):
                other.execute(lock)

    def test_an_exhausted_pool_names_its_size_as_the_way_out(self, opened: OpenDatabase) -> None:
        database = opened(pool_size=1, connect_timeout_seconds=0.1)
        with (
            database.engine.connect(),
            pytest.raises(InfraTimeoutError, match="ONEX_POSTGRES_POOL_SIZE"),
            database.transaction(),
        ):
            pass

    def test_a_cut_session_is_a_connection_error_and_the_next_call_works(
        self, database: Database
    ) -> None:
        with (
            pytest.raises(InfraConnectionError, match="onex stack status"),
            database.transaction() as cursor,
        ):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        with database.transaction() as cursor:
            assert scalar(cursor, "SELECT 1") == 1

    def test_who_is_interrupted_in_a_query_hears_of_that_and_not_of_the_connection(
        self, database: Database
    ) -> None:
        class ToldToEnd(BaseException):
            """Like Dagster's: nothing that psycopg knows as an interruption."""

        def interrupt(*_: object) -> None:
            raise ToldToEnd

        before = signal.signal(signal.SIGUSR1, interrupt)
        me = threading.get_ident()
        try:
            with pytest.raises(ToldToEnd), database.transaction() as cursor:
                threading.Timer(0.3, signal.pthread_kill, (me, signal.SIGUSR1)).start()
                cursor.execute("SELECT pg_sleep(30)")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert database.breaker.state == "CLOSED"
        with database.transaction() as cursor:
            assert scalar(cursor, "SELECT 1") == 1

    def test_a_session_cut_while_it_was_idle_goes_unnoticed(
        self, database: Database, opened: OpenDatabase
    ) -> None:
        with database.transaction() as cursor:
            idle = scalar(cursor, "SELECT pg_backend_pid()")
        with opened().transaction() as other:
            other.execute("SELECT pg_terminate_backend(%(pid)s, 5000)", {"pid": idle})
        with database.transaction() as cursor:
            assert scalar(cursor, "SELECT pg_backend_pid()") != idle

    def test_a_violated_constraint_passes_as_it_is_and_does_not_count(
        self, database: Database
    ) -> None:
        breaker = CircuitBreaker("postgresql", BreakerSettings(failure_threshold=1))
        database = replace(database, breaker=breaker)
        with pytest.raises(CheckViolation), database.transaction() as cursor:
            cursor.execute("CREATE TABLE one (x text CHECK (x <> 'topsecret'))")
            cursor.execute("INSERT INTO one VALUES (%(x)s)", {"x": "topsecret"})
        assert breaker.state == "CLOSED"

    def test_the_loser_of_a_deadlock_is_told_to_run_again(self, database: Database) -> None:
        with database.transaction() as setup:
            setup.execute("CREATE TABLE pair (x int PRIMARY KEY)")
            setup.execute("INSERT INTO pair VALUES (1), (2)")
        both_hold_one = threading.Barrier(2, timeout=10)
        failures: list[InfraError] = []

        def lock_in_order(*rows: int) -> None:
            try:
                with database.transaction() as cursor:
                    cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
                    lock = "SELECT x FROM pair WHERE x = %(x)s FOR UPDATE"
                    cursor.execute(lock, {"x": rows[0]})
                    both_hold_one.wait()
                    cursor.execute(lock, {"x": rows[1]})
            except InfraError as error:
                failures.append(error)

        rival = threading.Thread(target=lock_in_order, args=(2, 1))
        rival.start()
        lock_in_order(1, 2)
        rival.join(timeout=10)
        (loser,) = failures
        assert type(loser) is InfraError
        assert "run it again" in str(loser)

    def test_copy_shares_the_transaction(self, database: Database) -> None:
        count = "SELECT count(*) FROM copied"
        with database.transaction() as setup:
            setup.execute("CREATE TABLE copied (x int)")
        with pytest.raises(ZeroDivisionError), database.transaction() as cursor:
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write_row([1])
            assert scalar(cursor, count) == 1
            raise ZeroDivisionError
        with database.transaction() as cursor:
            assert scalar(cursor, count) == 0

    def test_a_stream_keeps_one_snapshot_and_fetches_piece_by_piece(
        self, database: Database, opened: OpenDatabase
    ) -> None:
        with database.transaction() as setup:
            setup.execute("CREATE TABLE many AS SELECT x FROM generate_series(1, 5000) AS x")
        rows = database.stream("SELECT x FROM many WHERE x > %(low)s", {"low": 10}, 100)
        first = next(rows)
        with opened().transaction() as other:
            other.execute("DELETE FROM many")
        assert 1 + sum(1 for _ in rows) == 4990
        assert first.x == 11

    def test_streamed_rows_come_while_the_server_makes_the_rest(self, database: Database) -> None:
        rows_of = "SELECT x FROM generate_series(1, %(last)s) AS x"
        with database.transaction() as cursor:
            with streamed(cursor, rows_of, {"last": 1000}, 100) as rows:
                assert list(rows) == [(x,) for x in range(1, 1001)]
            assert fetch_one(cursor, "SELECT 1 AS one").one == 1
        with database.transaction() as cursor:
            # Hours of rows: nobody can wait for the last.
            slow = "SELECT x, repeat('x', 10000), pg_sleep(0.01) FROM generate_series(1, 999999) x"
            with streamed(cursor, slow, {}, 10) as rows:
                assert next(rows)[0] == 1
            cursor.connection.rollback()
            assert fetch_one(cursor, "SELECT 2 AS two").two == 2


def test_an_absent_server_opens_the_breaker_and_no_error_shows_the_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        settings = with_url(
            Settings.model_construct(), f"postgresql://me:s3cret@127.0.0.1:{port}/onex"
        )
        breaker = CircuitBreaker("postgresql", BreakerSettings(failure_threshold=2))
        database = Database(open_engine(settings), breaker)
        for expected in (InfraConnectionError, InfraConnectionError, InfraUnavailableError):
            with pytest.raises(expected) as caught, database.transaction():
                pass
            assert "s3cret" not in str(caught.value)
    assert breaker.state == "OPEN"


def test_an_open_breaker_does_not_run_the_block(breaker: CircuitBreaker) -> None:
    for _ in range(BreakerSettings().failure_threshold):
        with pytest.raises(InfraConnectionError), translated(breaker):
            raise InfraConnectionError("down")
    ran = False
    with pytest.raises(InfraUnavailableError), translated(breaker):
        ran = True
    assert not ran

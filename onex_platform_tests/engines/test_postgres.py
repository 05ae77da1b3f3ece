"""The engine's promises: one driver, UTC, bounded waiting, errors of ours without secrets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from onex_platform.engines.postgres import (
    driver_connection,
    open_engine,
    transaction,
    translated,
)
from onex_platform.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
    InfraUnavailableError,
)
from onex_platform.resilience import CircuitBreaker
from onex_platform.settings import BreakerSettings, Settings


def with_postgres(settings: Settings, **changes: Any) -> Settings:
    postgres = settings.postgres.model_copy(update=changes)
    return settings.model_copy(update={"postgres": postgres})


def with_url(settings: Settings, url: str) -> Settings:
    return with_postgres(settings, url=SecretStr(url))


@pytest.fixture
def breaker() -> CircuitBreaker:
    return CircuitBreaker("postgresql", BreakerSettings())


OpenEngine = Callable[..., Engine]


@pytest.fixture
def opened(database_settings: Settings) -> Iterator[OpenEngine]:
    """Opens engines on the test's database, with settings changed as asked."""
    with ExitStack() as engines:

        def open_changed(**changes: Any) -> Engine:
            engine = open_engine(with_postgres(database_settings, **changes))
            engines.callback(engine.dispose)
            return engine

        yield open_changed


@pytest.fixture
def engine(opened: OpenEngine) -> Engine:
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
    def test_sessions_are_utc_named_and_bounded(
        self, opened: OpenEngine, breaker: CircuitBreaker
    ) -> None:
        engine = opened(application_name="fold", statement_timeout_seconds=7)
        with transaction(engine, breaker) as connection:

            def shown(name: str) -> str:
                return str(connection.scalar(text(f"SHOW {name}")))

            assert shown("timezone") == "UTC"
            assert shown("application_name") == "fold"
            assert shown("statement_timeout") == "7s"
            assert shown("lock_timeout") == "30s"

    def test_options_in_the_address_stay_in_force(
        self, opened: OpenEngine, database_url: str, breaker: CircuitBreaker
    ) -> None:
        sign = "&" if "?" in database_url else "?"
        engine = opened(url=SecretStr(f"{database_url}{sign}options=-c%20work_mem%3D9MB"))
        with transaction(engine, breaker) as connection:
            assert connection.scalar(text("SHOW work_mem")) == "9MB"
            assert connection.scalar(text("SHOW timezone")) == "UTC"

    def test_a_slow_statement_times_out(self, opened: OpenEngine, breaker: CircuitBreaker) -> None:
        engine = opened(statement_timeout_seconds=0.1)
        with (
            pytest.raises(InfraTimeoutError, match="STATEMENT_TIMEOUT"),
            transaction(engine, breaker) as connection,
        ):
            connection.execute(text("SELECT pg_sleep(30)"))

    def test_a_wait_for_a_lock_times_out(self, opened: OpenEngine, breaker: CircuitBreaker) -> None:
        engine = opened(lock_timeout_seconds=0.1)
        lock = text("SELECT pg_advisory_xact_lock(1)")
        with transaction(engine, breaker) as holder:
            holder.execute(lock)
            with (
                pytest.raises(InfraTimeoutError, match="LOCK_TIMEOUT"),
                transaction(engine, breaker) as other,
            ):
                other.execute(lock)

    def test_an_exhausted_pool_names_its_size_as_the_way_out(
        self, opened: OpenEngine, breaker: CircuitBreaker
    ) -> None:
        engine = opened(pool_size=1, connect_timeout_seconds=0.1)
        with (
            engine.connect(),
            pytest.raises(InfraTimeoutError, match="ONEX_POSTGRES_POOL_SIZE"),
            transaction(engine, breaker),
        ):
            pass

    def test_a_cut_session_is_a_connection_error_and_the_next_call_works(
        self, engine: Engine, breaker: CircuitBreaker
    ) -> None:
        with (
            pytest.raises(InfraConnectionError, match="onex stack status"),
            transaction(engine, breaker) as connection,
        ):
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        with transaction(engine, breaker) as connection:
            assert connection.scalar(text("SELECT 1")) == 1

    def test_a_session_cut_while_it_was_idle_goes_unnoticed(
        self, engine: Engine, opened: OpenEngine, breaker: CircuitBreaker
    ) -> None:
        with transaction(engine, breaker) as connection:
            idle = connection.scalar(text("SELECT pg_backend_pid()"))
        with transaction(opened(), breaker) as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": idle})
        with transaction(engine, breaker) as connection:
            assert connection.scalar(text("SELECT pg_backend_pid()")) != idle

    def test_a_violated_constraint_passes_as_it_is_and_shows_no_values(
        self, engine: Engine
    ) -> None:
        breaker = CircuitBreaker("postgresql", BreakerSettings(failure_threshold=1))
        with pytest.raises(IntegrityError) as caught, transaction(engine, breaker) as connection:
            connection.execute(text("CREATE TABLE one (x text CHECK (x <> 'topsecret'))"))
            connection.execute(text("INSERT INTO one VALUES (:x)"), {"x": "topsecret"})
        assert "SQL parameters hidden" in str(caught.value)
        assert breaker.state == "CLOSED"

    def test_the_loser_of_a_deadlock_is_told_to_run_again(
        self, engine: Engine, breaker: CircuitBreaker
    ) -> None:
        with engine.begin() as setup:
            setup.execute(text("CREATE TABLE pair (x int PRIMARY KEY)"))
            setup.execute(text("INSERT INTO pair VALUES (1), (2)"))
        both_hold_one = threading.Barrier(2, timeout=10)
        failures: list[InfraError] = []

        def lock_in_order(*rows: int) -> None:
            try:
                with transaction(engine, breaker) as connection:
                    connection.execute(text("SET LOCAL deadlock_timeout = '50ms'"))
                    lock = text("SELECT x FROM pair WHERE x = :x FOR UPDATE")
                    connection.execute(lock, {"x": rows[0]})
                    both_hold_one.wait()
                    connection.execute(lock, {"x": rows[1]})
            except InfraError as error:
                failures.append(error)

        rival = threading.Thread(target=lock_in_order, args=(2, 1))
        rival.start()
        lock_in_order(1, 2)
        rival.join(timeout=10)
        (loser,) = failures
        assert type(loser) is InfraError
        assert "run it again" in str(loser)

    def test_copy_shares_the_transaction(self, engine: Engine, breaker: CircuitBreaker) -> None:
        count = text("SELECT count(*) FROM copied")
        with engine.begin() as setup:
            setup.execute(text("CREATE TABLE copied (x int)"))
        with pytest.raises(ZeroDivisionError), transaction(engine, breaker) as connection:
            with driver_connection(connection).cursor().copy("COPY copied FROM STDIN") as copy:
                copy.write_row([1])
            assert connection.scalar(count) == 1
            raise ZeroDivisionError
        with transaction(engine, breaker) as connection:
            assert connection.scalar(count) == 0


def test_an_absent_server_opens_the_breaker_and_no_error_shows_the_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        settings = with_url(
            Settings.model_construct(), f"postgresql://me:s3cret@127.0.0.1:{port}/onex"
        )
        engine = open_engine(settings)
        breaker = CircuitBreaker("postgresql", BreakerSettings(failure_threshold=2))
        for expected in (InfraConnectionError, InfraConnectionError, InfraUnavailableError):
            with pytest.raises(expected) as caught, transaction(engine, breaker):
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

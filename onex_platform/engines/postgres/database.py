"""Connections to PostgreSQL: opened here, always with psycopg 3, UTC and bounded waiting.

The server's and the driver's errors leave through `translated`, which turns "not there" and "too
slow" into the platform's errors and counts them in the caller's breaker. A violated constraint or
a wrong statement is a defect of ours and passes as it is.
"""

from __future__ import annotations

import math
import os
import secrets
import select
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, cast

import psycopg
from psycopg import errors as server_errors
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row, tuple_row
from psycopg.types.json import set_json_dumps
from pydantic_core import to_json
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraError,
    InfraTimeoutError,
)
from onex_platform.base.resilience import CircuitBreaker, shared_breaker
from onex_platform.base.settings import PostgresSettings, Settings
from onex_platform.base.telemetry import redact

__all__ = [
    "LOCK_HOLDER",
    "Cursor",
    "Database",
    "Engine",
    "array_of",
    "copy_rows",
    "database_address",
    "database_of",
    "fetch_one",
    "lift_statement_limit",
    "open_database",
    "open_engine",
    "session_arguments",
    "session_name",
    "streamed",
    "translated",
]

Cursor = psycopg.Cursor[Any]
# Raises if the transaction may not be committed.
Fence = Callable[[Cursor], None]

_DRIVER = "postgresql+psycopg"
_TOO_SLOW = (
    server_errors.QueryCanceled,
    server_errors.LockNotAvailable,
    server_errors.IdleInTransactionSessionTimeout,
    server_errors.TransactionTimeout,
    psycopg.errors.ConnectionTimeout,
)
_NAME_BYTES = 63
_IDLE_TIMEOUT = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
# Whoever holds the advisory lock with this key.
LOCK_HOLDER = """
    FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32 | objid::bigint) = %(key)s"""
# The session that holds a lock does nothing else: it has been idle ever since.
_HELD_FOR = f"""
    SELECT clock_timestamp() - state_change AS time FROM pg_stat_activity
    WHERE pid = ANY(ARRAY(SELECT pid {LOCK_HOLDER}))"""  # noqa: S608 - constant parts


def open_engine(settings: Settings) -> Engine:
    """The pool of this process; whoever opens it disposes of it. Nothing is connected yet."""
    postgres = settings.postgres
    engine = create_engine(
        database_address(postgres),
        connect_args=session_arguments(postgres),
        pool_size=postgres.pool_size,
        max_overflow=0,
        pool_timeout=postgres.connect_timeout_seconds,
        # Row values belong neither in logs nor in error messages.
        hide_parameters=True,
    )
    event.listen(engine, "checkout", _require_silence)
    return engine


def _require_silence(session: psycopg.Connection[Any], *_: object) -> None:
    """Let the pool replace a session to which the server has said something while it was idle: that
    is goodbye. A server that was restarted costs no batch then; to ask would cost a round trip for
    each transaction."""
    if session.closed or _has_heard(session):
        raise DisconnectionError


def _has_heard(session: psycopg.Connection[Any]) -> bool:
    socket = select.poll()
    socket.register(session.fileno(), select.POLLIN)
    return bool(socket.poll(0))


def database_address(postgres: PostgresSettings) -> URL:
    """The platform database's address, with the driver named whatever the setting spelled."""
    if postgres.url is None:
        raise ConfigurationError(
            "No PostgreSQL address is known.",
            hint="Start the embedded server with `onex stack up`, or set ONEX_POSTGRES_URL.",
        )
    try:
        return make_url(postgres.url.get_secret_value()).set(drivername=_DRIVER)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            f"ONEX_POSTGRES_URL={redact(postgres.url.get_secret_value())!r} can't be parsed.",
            hint="Expected postgresql://user:password@host:port/database; "
            "write special characters of the password in percent form.",
        ) from None


def session_arguments(
    postgres: PostgresSettings, *, statement_timeout_seconds: float | None = None
) -> dict[str, Any]:
    """What every session of ours is opened with; a statement time-out of 0 means none."""
    statement_timeout = (
        postgres.statement_timeout_seconds
        if statement_timeout_seconds is None
        else statement_timeout_seconds
    )
    ours = {
        "timezone": "UTC",
        "statement_timeout": f"{statement_timeout * 1000:.0f}ms",
        "lock_timeout": f"{postgres.lock_timeout_seconds * 1000:.0f}ms",
        # Our statements are wide and short: compiling one takes longer than running it.
        "jit": "off",
        # A statement whose client died gives its locks back soon.
        "client_connection_check_interval": "2s",
    }
    theirs = cast("str", database_address(postgres).query.get("options", ""))
    return {
        "application_name": session_name(postgres),
        "connect_timeout": math.ceil(postgres.connect_timeout_seconds),
        "options": " ".join([theirs, *(f"-c {name}={value}" for name, value in ours.items())]),
        # A peer that vanished is noticed within a minute, not after the system's two hours.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }


def session_name(postgres: PostgresSettings) -> str:
    """How this process's sessions are called on the server: like those of no other process."""
    tag = f" {os.getpid()}.{_process_token(os.getpid())}"
    # The server keeps that many bytes.
    room = _NAME_BYTES - len(tag)
    return postgres.application_name.encode()[:room].decode(errors="ignore") + tag


@cache
def _process_token(_process: int) -> str:
    """A forked process is another one."""
    return secrets.token_hex(4)


@contextmanager
def translated(breaker: CircuitBreaker) -> Iterator[None]:
    """Run the block if the breaker lets it; PostgreSQL's failures leave as ours, and count."""
    with breaker.guard():
        try:
            yield
        except (DBAPIError, psycopg.Error, PoolTimeout) as error:
            failure = _translate(error)
            if failure is None:
                raise
            raise failure from error


@dataclass(frozen=True, slots=True)
class Database:
    """PostgreSQL as one process reaches it: its pool, and the breaker that its users share."""

    engine: Engine
    breaker: CircuitBreaker

    @contextmanager
    def transaction(self, *, idle_seconds: float | None = None) -> Iterator[Cursor]:
        """One guarded transaction: committed when the block ends, rolled back when it raises.

        The cursor is psycopg's own, COPY included; its rows are named tuples. If this process stops
        inside, the server ends the session after `idle_seconds`, and others get what it had locked.
        """
        with translated(self.breaker), self.engine.begin() as connection:
            driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
            with driver.cursor(row_factory=namedtuple_row) as cursor:
                if idle_seconds is not None:
                    cursor.execute(_IDLE_TIMEOUT, [f"{math.ceil(idle_seconds * 1000)}ms"])
                try:
                    yield cursor
                    self.require_fence(cursor)
                finally:
                    if driver.info.transaction_status == TransactionStatus.ACTIVE:
                        # Interrupted in the middle of a query: nothing more can be said to it.
                        connection.invalidate()

    def stream(
        self, query: str, parameters: Mapping[str, Any], rows_per_fetch: int = 1000
    ) -> Iterator[Any]:
        """The query's rows from one snapshot, fetched piece by piece: memory stays flat."""
        with (
            self.transaction() as cursor,
            cursor.connection.cursor("stream", row_factory=namedtuple_row) as portal,
        ):
            portal.itersize = rows_per_fetch
            yield from portal.execute(query, parameters)

    def fenced(self, fence: Fence) -> Database:
        """The same pool, for somebody whose transactions may be refused at their end."""
        return replace(self, engine=self.engine.execution_options(fence=fence))

    def require_fence(self, cursor: Cursor) -> None:
        """Raise if the owner may not commit what the transaction has written, if anything."""
        fence: Fence | None = self.engine.get_execution_options().get("fence")
        if fence is not None and not cursor.connection.closed:
            written = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS something"
            if fetch_one(cursor, written).something:
                fence(cursor)

    @contextmanager
    def session_lock(self, key: int) -> Iterator[None]:
        """Hold an advisory lock on a session of its own: it ends there, however this process
        ends."""
        with self._own_session() as session:
            session.execute("SELECT pg_advisory_lock(%s)", [key])
            session.commit()
            yield

    @contextmanager
    def session_lock_if_free(self, key: int) -> Iterator[timedelta | None]:
        """`session_lock` without waiting: None if it is held now, else for how long another has it.

        Of a holder that this role may not look at, that is for ever.
        """
        with self._own_session() as session:
            taken = session.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
            holder = None
            if not (taken and taken[0]):
                holder = session.execute(_HELD_FOR, {"key": key}).fetchone()
            session.commit()
            if taken and taken[0]:
                yield None
            elif holder is None:  # it has just been given back
                yield timedelta()
            else:
                yield timedelta.max if holder[0] is None else holder[0]

    @contextmanager
    def _own_session(self) -> Iterator[psycopg.Connection[Any]]:
        """A session that ends with the block, and with it whatever it holds."""
        with translated(self.breaker), self.engine.connect() as connection:
            try:
                yield cast("psycopg.Connection[Any]", connection.connection.driver_connection)
            finally:
                connection.invalidate()


@contextmanager
def open_database(settings: Settings, breaker: CircuitBreaker | None = None) -> Iterator[Database]:
    """The platform's database for the block; all of a process share one breaker, unless given."""
    engine = open_engine(settings)
    try:
        yield Database(engine, breaker or shared_breaker("PostgreSQL", settings.breaker))
    finally:
        engine.dispose()


def database_of(settings: Settings, opened: Database | None) -> AbstractContextManager[Database]:
    """The one that is opened already, which stays open; else the settings', for the block.

    A new session takes some ten milliseconds, most of them to learn about the tables.
    """
    return open_database(settings) if opened is None else nullcontext(opened)


@contextmanager
def streamed(
    cursor: Cursor, query: str, parameters: Mapping[str, Any], rows_at_once: int = 500
) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The query's rows as plain tuples, while the server still makes the rest of them.

    Inside the block the connection does nothing else. Leaving it before the last row cancels the
    query, and with it the transaction.
    """
    with cursor.connection.cursor(row_factory=tuple_row) as reader:
        rows = reader.stream(query, parameters, size=rows_at_once)
        with closing(cast("Generator[tuple[Any, ...]]", rows)):
            yield rows


def array_of(values: Iterable[object]) -> str:
    """Ids or numbers as PostgreSQL reads an array: the driver would look at each for long."""
    return f"{{{','.join(map(str, values))}}}"


def lift_statement_limit(cursor: Cursor) -> None:
    """Let the rest of the transaction take as long as it takes; waiting for locks stays bounded."""
    cursor.execute("SELECT set_config('statement_timeout', '0', true)")


def fetch_one(cursor: Cursor, query: str, parameters: Any = None) -> Any:
    """The one row of a query that always has one."""
    (row,) = cursor.execute(query, parameters).fetchall()
    return row


def copy_rows(
    cursor: Cursor, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> int:
    """COPY rows into the table's columns, given with their types, in binary; how many there were.

    A value of type jsonb may be any that pydantic can write as JSON, models included.
    """
    set_json_dumps(to_json, context=cursor)
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with cursor.copy(statement) as copy:
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)
    return cursor.rowcount


def storable(text: str) -> str:
    """Text as PostgreSQL's can hold it: neither NUL nor half a surrogate pair."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _translate(error: Exception) -> InfraError | None:
    if isinstance(error, PoolTimeout):
        return InfraTimeoutError(
            "No PostgreSQL connection of the pool came free in time.",
            hint="Raise ONEX_POSTGRES_POOL_SIZE, or look for transactions that stay open.",
        )
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    if isinstance(cause, _TOO_SLOW):
        return InfraTimeoutError(
            f"PostgreSQL did not finish in time: {text}.",
            hint="The limits are ONEX_POSTGRES_CONNECT_TIMEOUT_SECONDS, "
            "ONEX_POSTGRES_STATEMENT_TIMEOUT_SECONDS and ONEX_POSTGRES_LOCK_TIMEOUT_SECONDS.",
        )
    if isinstance(cause, server_errors.SerializationFailure | server_errors.DeadlockDetected):
        return InfraError(
            f"PostgreSQL rolled the transaction back for a rival one: {text}.",
            hint="Nothing was written; run it again.",
        )
    if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return InfraConnectionError(
            f"PostgreSQL can't be reached or refused us: {text}.",
            hint="Check ONEX_POSTGRES_URL, or the embedded server with `onex stack status`.",
        )
    return None

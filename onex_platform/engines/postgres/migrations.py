"""Database migrations: the numbered files of `sql/`, applied by yoyo-migrations.

What holds, whoever calls this and however often:
- all work happens under one advisory lock, held by the session that migrates: processes that
  start together take turns, and one that dies gives the lock back;
- a migration, its bookkeeping and its checksum are one transaction: a failure leaves the earlier
  migrations applied and nothing of the failed one;
- a file that was changed after it was applied, a number given late and a database that is newer
  than this code are refused by name.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
from yoyo import read_migrations
from yoyo.backends.core.postgresql import PostgresqlPsycopgBackend
from yoyo.connections import DatabaseURI
from yoyo.migrations import default_migration_table, read_sql_migration

from onex_platform.base.errors import ConfigurationError, InfraError, InfraTimeoutError
from onex_platform.base.paths import project_folder
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.database import (
    database_address,
    session_arguments,
    translated,
)

_LOCK_KEY = int.from_bytes(b"onex-sql", "big")
_NAME = re.compile(r"(?P<number>\d{4})\.[a-z0-9_]+")
_SHOWN_STATEMENT = 300

_CHECKSUMS = """
    CREATE TABLE IF NOT EXISTS onex_migration_checksums (
        migration_id text PRIMARY KEY,
        sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$')
    )"""
_APPLIED = f"""
    SELECT migration_id, applied_at_utc, sha256
    FROM {default_migration_table} LEFT JOIN onex_migration_checksums USING (migration_id)
    ORDER BY migration_id"""  # noqa: S608 - yoyo's constant
_REMEMBER = """
    INSERT INTO onex_migration_checksums (migration_id, sha256) VALUES (%s, %s)
    ON CONFLICT (migration_id) DO UPDATE SET sha256 = excluded.sha256"""


class MigrationState(StrEnum):
    APPLIED = "applied"
    PENDING = "pending"
    CHANGED = "changed"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MigrationStatus:
    """One migration as files and database know it together."""

    name: str
    state: MigrationState
    applied_at: datetime | None = None


_REFUSALS = {
    MigrationState.UNKNOWN: (
        "{names}: applied to this database, but unknown to this code; the database is newer.",
        "Upgrade onex-platform, or restore the database to the state this version knows.",
    ),
    MigrationState.CHANGED: (
        "{names}: the file was changed after it had been applied to this database.",
        "Restore the file from version control and put the change into a new migration.",
    ),
    MigrationState.LATE: (
        "{names}: not applied, but a migration with a higher number is.",
        "Rename it to the next free number, so that every database sees the same order.",
    ),
}


def migrate(settings: Settings, folder: Path | None = None) -> list[str]:
    """Apply what is pending, in order; the names of what was applied now, often none."""
    files = _files(folder)
    applied = []
    with _locked_backend(settings) as backend:
        # Whoever left yoyo's own lock row behind is dead: the living wait at the advisory lock.
        backend.init_database()
        backend.break_lock()
        backend.ensure_internal_schema_updated()
        backend.execute(_CHECKSUMS)
        pending = _pending(_compare(files, backend))
        for migration in files:
            if migration.id in pending:
                _apply(backend, migration)
                applied.append(migration.id)
    return applied


def migration_status(settings: Settings, folder: Path | None = None) -> list[MigrationStatus]:
    """Every migration of the files and of the database; reads only, a fresh database included."""
    files = _files(folder)
    with _backend(settings) as backend:
        return _compare(files, backend)


def _files(folder: Path | None) -> list[Any]:
    """yoyo's migrations of `folder`, in order; a wrong name or a number used twice is refused."""
    folder = folder or project_folder("sql")
    migrations = sorted(
        read_migrations(glob.escape(str(folder))), key=lambda migration: migration.id
    )
    numbers: dict[str, str] = {}
    for migration in migrations:
        name = _NAME.fullmatch(migration.id)
        if name is None or not migration.is_raw_sql():
            raise ConfigurationError(
                f"{Path(migration.path).name} in {folder} is not named like a migration.",
                hint="Expected four digits, a dot, a name in lower case and .sql: 0007.outbox.sql",
            )
        if (other := numbers.setdefault(name["number"], migration.id)) != migration.id:
            raise ConfigurationError(
                f"{other}.sql and {migration.id}.sql have the same number.",
                hint="Give the newer one the next free number.",
            )
    return migrations


@contextmanager
def _backend(settings: Settings) -> Iterator[Any]:
    """A yoyo backend on a session of its own; only lock waits are bounded, DDL may take long."""
    address = database_address(settings.postgres)
    session = session_arguments(settings.postgres, statement_timeout_seconds=0)
    uri = DatabaseURI(
        scheme=address.drivername,
        username=address.username,
        password=address.password,
        hostname=address.host,
        port=address.port,
        database=address.database,
        args={**address.query, **session},
    )
    with (
        translated(CircuitBreaker("postgresql", settings.breaker)),
        PostgresqlPsycopgBackend(uri, default_migration_table) as backend,
    ):
        yield backend


@contextmanager
def _locked_backend(settings: Settings) -> Iterator[Any]:
    with _backend(settings) as backend:
        try:
            backend.execute("SELECT pg_advisory_lock(:key)", {"key": _LOCK_KEY})
        except psycopg.errors.LockNotAvailable:
            raise InfraTimeoutError(
                "Another process has been migrating this database for "
                f"{settings.postgres.lock_timeout_seconds:g} s.",
                hint="Wait for it to end, or raise ONEX_POSTGRES_LOCK_TIMEOUT_SECONDS.",
            ) from None
        # The lock ends with the session, however this process ends.
        yield backend


def _compare(files: list[Any], backend: Any) -> list[MigrationStatus]:
    applied = {name: (at, sha256) for name, at, sha256 in _applied(backend)}
    newest = max(applied, default="")
    statuses = []
    for migration in files:
        at, sha256 = applied.pop(migration.id, (None, None))
        if at is None:
            state = MigrationState.LATE if migration.id < newest else MigrationState.PENDING
        else:
            unchanged = sha256 == _sha256(migration)
            state = MigrationState.APPLIED if unchanged else MigrationState.CHANGED
        statuses.append(MigrationStatus(migration.id, state, at))
    statuses += [
        MigrationStatus(name, MigrationState.UNKNOWN, at) for name, (at, _) in applied.items()
    ]
    return sorted(statuses, key=lambda status: status.name)


def _applied(backend: Any) -> Iterator[tuple[str, datetime, str | None]]:
    bookkeeping = "SELECT to_regclass('onex_migration_checksums') IS NOT NULL"
    if backend.execute(bookkeeping).fetchone()[0]:
        for name, at, sha256 in backend.execute(_APPLIED):
            yield name, at.replace(tzinfo=UTC), sha256


def _pending(statuses: list[MigrationStatus]) -> list[str]:
    def named(state: MigrationState) -> list[str]:
        return [status.name for status in statuses if status.state == state]

    for state, (message, hint) in _REFUSALS.items():
        if names := named(state):
            raise ConfigurationError(message.format(names=", ".join(names)), hint=hint)
    return named(MigrationState.PENDING)


def _apply(backend: Any, migration: Any) -> None:
    directives, _, statements = read_sql_migration(migration.path)
    if directives.get("transactional", "true").lower() != "true":
        raise ConfigurationError(
            f"{migration.id}.sql asks to run outside a transaction.",
            hint="Every migration is one transaction; run such work by an operator's command.",
        )
    with backend.transaction():
        for statement in statements:
            try:
                backend.cursor().execute(statement)
            except psycopg.Error as error:
                raise InfraError(
                    f"{migration.id}.sql failed and was rolled back: "
                    f"{error.diag.message_primary or error} in {_shortened(statement)!r}.",
                    hint="Correct the file and migrate again; earlier migrations stay applied.",
                ) from error
        backend.log_migration(migration, "apply")
        backend.mark_one(migration, log=False)
        backend.cursor().execute(_REMEMBER, (migration.id, _sha256(migration)))


def _sha256(migration: Any) -> str:
    """Of the text, so that a checkout with other line ends counts as the same file."""
    return hashlib.sha256(Path(migration.path).read_text("utf-8").encode()).hexdigest()


def _shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= _SHOWN_STATEMENT else f"{text[:_SHOWN_STATEMENT]} …"

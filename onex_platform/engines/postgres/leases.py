"""Leases in PostgreSQL: who works, who stands by, and who is dead.

What holds:
- A lease lives as long as it is renewed. A thread with a connection of its own does that, so that
  neither Spark nor a long statement can keep it from it. Only PostgreSQL's clock counts.
- Of an exclusive name at most one lease is at work. Whoever stands by takes over when that one was
  given back or has expired.
- A lease that was taken from its owner has ended for good: its number is checked by every
  transaction that writes, right before the commit (`fence`). A process that wakes up late can't
  commit; it finds out at its next step (`require`).
- A lease that expired, and that nobody has ended, is renewed as if nothing had happened.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from onex_platform.base.errors import InfraError, OnexError
from onex_platform.base.faults import effect
from onex_platform.base.paths import code_version
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import BreakerSettings, Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.engines.postgres.database import (
    Cursor,
    Database,
    fetch_one,
    open_engine,
    session_name,
)

Ending = Literal["released", "handed_over", "stalled", "expired"]

# Renewals in the time of a lease: two may fail, and it still lives.
_RENEWALS = 3
_KEPT_DAYS = 7
# A renewal is tried again and again, whatever others think of PostgreSQL.
_PATIENT = BreakerSettings(failure_threshold=1000, reset_seconds=1)
# The thread's connection, and one for its owner.
_CONNECTIONS = 2

_RECORD = (
    "number, name, exclusive, host, process, run_id, version, claimed_at, ready_at, taken_at,"
    " succession_at, expires_at, ended_at, ending,"
    " ended_at IS NULL AND expires_at >= clock_timestamp() AS lives"
)


class LeaseLostError(OnexError):
    """Somebody else has the work now; nothing more of this process is committed."""


class LeaseRecord(NamedTuple):
    """A lease as it stands in the table, and whether it lives."""

    number: int
    name: str
    exclusive: bool
    host: str
    process: int
    run_id: str | None
    version: str
    claimed_at: datetime
    ready_at: datetime | None
    taken_at: datetime | None
    succession_at: datetime | None
    expires_at: datetime
    ended_at: datetime | None
    ending: Ending | None
    lives: bool

    @property
    def owner(self) -> str:
        """Who that is, for people."""
        run = "" if self.run_id is None else f", run {self.run_id.partition('-')[0]}"
        return f"process {self.process} on {self.host}{run}"


class Lease:
    """A claim of this process, renewed by its keeper until it is given back or lost."""

    def __init__(self, keeper: LeaseKeeper, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.is_lost = False
        # Called by the keeper's thread after each renewal, so it may not take long.
        self.when_renewed: Callable[[], None] = lambda: None
        self._keeper = keeper

    def require(self) -> None:
        """Raise if the lease was lost, as far as the last renewal knows."""
        if self.is_lost:
            raise self._lost()

    def fence(self, cursor: Cursor) -> None:
        """Let the transaction commit only if the lease still stands; nobody ends it before then."""
        query = "SELECT FROM leases WHERE number = %s AND ended_at IS NULL FOR SHARE"
        if cursor.execute(query, [self.number]).fetchone() is None:
            self.is_lost = True
            raise self._lost()

    def take(self) -> bool:
        """Be the one at work, unless somebody else is; whether this one is now."""
        with effect("leases.take"), self._keeper.transaction() as cursor:
            _lock(cursor, self.name)
            _end_expired(cursor, "name = %(what)s", self.name)
            cursor.execute(
                "UPDATE leases SET taken_at = coalesce(taken_at, clock_timestamp())"
                " WHERE number = %(number)s AND ended_at IS NULL AND NOT EXISTS ("
                "  SELECT FROM leases AS held WHERE held.name = %(name)s AND held.exclusive"
                "   AND held.taken_at IS NOT NULL AND held.ended_at IS NULL"
                "   AND held.number <> %(number)s)",
                {"name": self.name, "number": self.number},
            )
            return cursor.rowcount == 1

    def stand_by(self) -> None:
        """Say that this one is warm and could take over at once."""
        self._note("ready_at")

    def ask_for_successor(self) -> None:
        """Say that somebody should be started who takes over."""
        self._note("succession_at")

    def heir(self) -> LeaseRecord | None:
        """Who stands by and is warm; of several, the one that came last."""
        waiting = [record for record in self._keeper.living(self.name) if record.taken_at is None]
        ready = [record for record in waiting if record.ready_at is not None]
        return max(ready, default=None)

    def end(self, ending: Ending = "released") -> None:
        """Give the lease back; one that can't be given back expires by itself."""
        self._keeper.drop(self)
        with suppress(InfraError), effect("leases.end"), self._keeper.transaction() as cursor:
            cursor.execute(
                "UPDATE leases SET ended_at = clock_timestamp(), ending = %s"
                " WHERE number = %s AND ended_at IS NULL",
                [ending, self.number],
            )

    def _note(self, moment: str) -> None:
        with self._keeper.transaction() as cursor:
            cursor.execute(
                f"UPDATE leases SET {moment} = coalesce({moment}, clock_timestamp())"  # noqa: S608
                " WHERE number = %s",
                [self.number],
            )

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"The lease {self.name!r}, number {self.number}, was lost: it was not renewed for "
            f"{self._keeper.seconds:g} s, and somebody else has it now.",
            hint="Nothing is lost; whoever has the lease goes on.",
        )


class LeaseKeeper:
    """Claims leases for this process and renews them until it is closed."""

    def __init__(self, settings: Settings) -> None:
        self._session = session_name(settings.postgres)
        self.seconds = settings.pipeline.lease_seconds
        # A renewal that takes longer than the lease is of no use: better to try again.
        own = settings.postgres.model_copy(
            update={
                "pool_size": _CONNECTIONS,
                "statement_timeout_seconds": self.seconds,
                "connect_timeout_seconds": min(settings.postgres.connect_timeout_seconds, 2),
            }
        )
        self._database = Database(
            open_engine(settings.model_copy(update={"postgres": own})),
            CircuitBreaker("PostgreSQL for leases", _PATIENT),
        )
        self._leases: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._renewed = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name="leases", daemon=True)

    def claim(self, name: str, *, exclusive: bool, run_id: str | None = None) -> Lease:
        """A lease of this name, renewed from now on; an exclusive one has to be taken yet."""
        with effect("leases.claim"), self.transaction() as cursor:
            cursor.execute(
                "DELETE FROM leases WHERE ended_at < clock_timestamp() - make_interval(days => %s)",
                [_KEPT_DAYS],
            )
            row = fetch_one(
                cursor,
                "INSERT INTO leases"
                " (name, exclusive, host, process, session, run_id, version, taken_at, expires_at)"
                " VALUES (%(name)s, %(exclusive)s, %(host)s, %(process)s, %(session)s, %(run_id)s,"
                "  %(version)s,"
                "  CASE WHEN NOT %(exclusive)s THEN clock_timestamp() END,"
                "  clock_timestamp() + make_interval(secs => %(seconds)s)) RETURNING number",
                {
                    "name": name,
                    "exclusive": exclusive,
                    "host": socket.gethostname(),
                    "process": os.getpid(),
                    "session": self._session,
                    "run_id": run_id,
                    "version": code_version(),
                    "seconds": self.seconds,
                },
            )
        lease = Lease(self, row.number, name)
        with self._lock:
            self._leases[lease.number] = lease
        if not self._thread.is_alive():
            self._thread.start()
        return lease

    def living(self, name: str) -> list[LeaseRecord]:
        return living(self._database, name)

    def transaction(self) -> AbstractContextManager[Cursor]:
        return self._database.transaction()

    def drop(self, lease: Lease) -> None:
        """Renew it no longer."""
        with self._lock:
            self._leases.pop(lease.number, None)

    def give_back(self, name: str, ending: Ending) -> None:
        """End this process's leases of a name, from whichever thread."""
        for lease in list(self._leases.values()):
            if lease.name == name:
                lease.end(ending)

    def await_renewal(self, seconds: float) -> bool:
        """Wait until a renewal that begins now has succeeded: PostgreSQL answers again."""
        self._renewed.clear()
        return self._renewed.wait(seconds)

    def close(self) -> None:
        """Give everything back."""
        for lease in list(self._leases.values()):
            lease.end()
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(self.seconds)
        self._database.engine.dispose()

    def _renew_for_ever(self) -> None:
        while not self._closing.wait(self.seconds / _RENEWALS):
            try:
                self._renew()
                self._renewed.set()
            except InfraError as error:
                get_logger(__name__).warning("leases.not_renewed", error=error.message)

    def _renew(self) -> None:
        with self._lock:
            ours = dict(self._leases)
        if not ours:
            return
        with self.transaction() as cursor:
            cursor.execute(
                "UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => %s)"
                " WHERE number = ANY(%s) AND ended_at IS NULL RETURNING number",
                [self.seconds, list(ours)],
            )
            renewed = {row.number for row in cursor}
        for number in renewed:
            ours[number].when_renewed()
        for number in ours.keys() - renewed:
            ours[number].is_lost = True
            self.drop(ours[number])
            get_logger(__name__).error("leases.lost", name=ours[number].name, number=number)


class Presence(NamedTuple):
    """A run's sign of life: its lease, and who renews it."""

    keeper: LeaseKeeper
    lease: Lease


def draining_lease(domain: str) -> str:
    """The name of the lease of whoever takes cuts, folds and publishes for a domain."""
    return f"{domain}.drain"


@contextmanager
def open_keeper(settings: Settings) -> Iterator[LeaseKeeper]:
    """A keeper for the block; what it still has is given back at the end."""
    keeper = LeaseKeeper(settings)
    try:
        yield keeper
    finally:
        keeper.close()


def living(database: Database, name: str | None = None) -> list[LeaseRecord]:
    """The leases that are renewed, of this name or of all, in the order of their numbers."""
    return [record for record in open_leases(database, name) if record.lives]


def open_leases(database: Database, name: str | None = None) -> list[LeaseRecord]:
    """The leases that nobody has ended, those included that have expired."""
    with database.transaction() as cursor:
        rows = cursor.execute(
            f"SELECT {_RECORD} FROM leases WHERE ended_at IS NULL"  # noqa: S608 - constant
            " AND (%(name)s::text IS NULL OR name = %(name)s) ORDER BY number",
            {"name": name},
        )
        return [LeaseRecord(*row) for row in rows]


def leases_of_runs(database: Database, run_ids: list[str]) -> dict[str, list[LeaseRecord]]:
    """Every lease that these runs have claimed, ended or not."""
    found: dict[str, list[LeaseRecord]] = {run_id: [] for run_id in run_ids}
    with database.transaction() as cursor:
        rows = cursor.execute(
            f"SELECT {_RECORD} FROM leases WHERE run_id = ANY(%s) ORDER BY number",  # noqa: S608
            [run_ids],
        )
        for row in rows:
            found[row.run_id].append(LeaseRecord(*row))
    return found


def end_expired(database: Database, run_id: str) -> bool:
    """End what a run has claimed and no longer renews; whether there was something.

    One that renewed it at the last moment keeps it.
    """
    with database.transaction() as cursor:
        return _end_expired(cursor, "run_id = %(what)s", run_id)


def end_forgotten(database: Database, age: timedelta) -> None:
    """End every lease that expired so long ago and that nobody has asked for since."""
    with database.transaction() as cursor:
        _end_expired(cursor, "expires_at < clock_timestamp() - %(what)s::interval", age)


def _end_expired(cursor: Cursor, which: str, what: str | timedelta) -> bool:
    """End expired leases, and the sessions of their owners: a process that was stopped inside a
    transaction would keep what it has locked there."""
    expired = f"{which} AND ended_at IS NULL AND expires_at < clock_timestamp()"
    rows = cursor.execute(
        f"SELECT session FROM leases WHERE {expired}",  # noqa: S608
        {"what": what},
    ).fetchall()
    if not rows:
        return False
    cursor.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND usename = current_user"
        " AND application_name = ANY(%s)"
        " AND application_name <> current_setting('application_name')",
        [[row.session for row in rows]],
    )
    cursor.execute(
        "UPDATE leases SET ended_at = clock_timestamp(), ending = 'expired'"  # noqa: S608
        f" WHERE {expired}",
        {"what": what},
    )
    return cursor.rowcount > 0


def _lock(cursor: Cursor, name: str) -> None:
    """One at a time decides who has a name; the others wait, which takes no time."""
    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lease {name}"])

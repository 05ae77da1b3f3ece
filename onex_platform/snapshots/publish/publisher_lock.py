"""Turns in PostgreSQL: who publishes for a domain does so alone, and not for ever.

A turn is an advisory lock that ends with its transaction. A publisher that is stopped inside its
turn keeps it: its session stands idle, or sticks while it writes rows that nobody reads, where none
of PostgreSQL's own time-outs reaches it. So whoever waits watches the holder, and ends its session
once it has had the turn for longer than a living publisher can need. That is safe at any moment:
what the other has read by then, the broker refuses.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.errors import LockNotAvailable

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.engines.postgres.database import LOCK_HOLDER, Cursor, Database

# How often a waiting publisher looks at the holder; in between, it stands in PostgreSQL's queue.
_LOOK_SECONDS = 1


@contextmanager
def publication_lock(
    settings: Settings, database: Database, domain: str, point: str
) -> Iterator[Cursor]:
    """One transaction in which nobody else publishes for the domain.

    `point` is the crash point of its commit. Kafka's failures pass through it without counting
    against PostgreSQL.
    """
    failure = None
    with database.transaction() as cursor:
        _lock_publication(cursor, settings, domain)
        try:
            yield cursor
            with effect(point):
                database.require_fence(cursor)
                cursor.connection.commit()
        except InfraError as error:
            cursor.connection.rollback()
            failure = error
    if failure is not None:
        raise failure


def longest_publication(settings: Settings) -> float:
    """Seconds that a living publisher can need: to open its name, to send, to commit."""
    return settings.kafka.request_timeout_seconds + 2 * settings.snapshots.transaction_seconds


def _lock_publication(cursor: Cursor, settings: Settings, domain: str) -> None:
    key, limit = publication_lock_key(domain), longest_publication(settings)
    began = since = time.monotonic()
    holder = None
    cursor.execute(f"SET LOCAL lock_timeout = '{_LOOK_SECONDS}s'")
    while True:
        try:
            with cursor.connection.transaction():  # a savepoint: the wait may fail, we go on
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])
            break
        except LockNotAvailable:
            now = time.monotonic()
            if now > began + limit + settings.postgres.lock_timeout_seconds:
                raise  # others come and go all the time
            # A transaction is named by its virtual id, which no later one gets again.
            found = cursor.execute(
                f"SELECT virtualtransaction {LOCK_HOLDER}", {"key": key}
            ).fetchone()
            if found != holder:
                holder, since = found, now
            elif holder is not None and now > since + limit:
                _end(cursor, domain, key, holder.virtualtransaction)
    cursor.execute("SET LOCAL lock_timeout TO DEFAULT")


def _end(cursor: Cursor, domain: str, key: int, holder: str) -> None:
    """End the session in which this very transaction still has the turn."""
    ended = cursor.execute(
        f"SELECT pid, pg_terminate_backend(pid) AS done {LOCK_HOLDER}"
        " AND virtualtransaction = %(holder)s",
        {"key": key, "holder": holder},
    ).fetchall()
    for session in ended:
        get_logger(__name__).warning(
            "snapshots.stuck_publisher_ended", domain=domain, pid=session.pid
        )


def publication_lock_key(domain: str) -> int:
    """The number of the domain's lock."""
    digest = hashlib.sha256(f"publication of {domain}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)

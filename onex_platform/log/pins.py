"""Pins: a reader in progress keeps what it reads.

A page that is replaced stays for the grace period. A reader that may take longer pins the log; what
was part of it when the pin was set is then kept until the reader is done. A pin holds an advisory
lock on a session of its own, so one whose process died keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID, uuid4

from onex_platform.engines.postgres.database import Cursor, Database, fetch_one


@contextmanager
def pinned(database: Database, domain: str) -> Iterator[UUID]:
    """Pin a log for the block; the pin's id. Pins whose process died are removed."""
    pin_id = uuid4()
    with database.session_lock(_lock_key(pin_id)):
        with database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM log_pins WHERE pin_id NOT IN (SELECT pin_id FROM held_log_pins)"
            )
            cursor.execute(
                "INSERT INTO log_pins (pin_id, domain) VALUES (%s, %s)", [pin_id, domain]
            )
        try:
            yield pin_id
        finally:
            with database.transaction() as cursor:
                cursor.execute("DELETE FROM log_pins WHERE pin_id = %s", [pin_id])


def pinned_since(cursor: Cursor, domain: str) -> datetime | None:
    """Since when readers pin the log; None if nobody does."""
    query = "SELECT min(pinned_at) AS moment FROM held_log_pins WHERE domain = %s"
    moment: datetime | None = fetch_one(cursor, query, [domain]).moment
    return moment


def is_abandoned(cursor: Cursor, pin_id: UUID) -> bool:
    """Whether the process is gone that set the pin; nobody can hold it again before the
    transaction ends."""
    lock = "SELECT pg_try_advisory_xact_lock(%s) AS taken"
    return bool(fetch_one(cursor, lock, [_lock_key(pin_id)]).taken)


def _lock_key(pin_id: UUID) -> int:
    """As the view `held_log_pins` computes it."""
    return int.from_bytes(pin_id.bytes[:8], signed=True)

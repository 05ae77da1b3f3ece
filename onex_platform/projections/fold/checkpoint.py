"""How far the log is folded, moved by compare-and-swap inside the caller's transaction.

The fold cursor of a domain is also the turn to write its rows: whoever moves or holds it is alone
until the transaction ends.
"""

from __future__ import annotations

from onex_platform.engines.postgres.database import Cursor


def fold_position(cursor: Cursor, domain: str) -> int:
    """Every position below this one is folded."""
    query = "SELECT position FROM fold_cursors WHERE domain = %s"
    row = cursor.execute(query, [domain]).fetchone()
    return 0 if row is None else int(row.position)


def lock_checkpoint(cursor: Cursor, domain: str) -> None:
    """Wait until nobody else writes this domain's rows, and be the one who does."""
    begin = "INSERT INTO fold_cursors (domain, position) VALUES (%s, 0) ON CONFLICT DO NOTHING"
    cursor.execute(begin, [domain])
    cursor.execute("SELECT FROM fold_cursors WHERE domain = %s FOR UPDATE", [domain])


def move_fold_cursor(cursor: Cursor, domain: str, start: int, end: int) -> bool:
    """Move from `start` to `end` and hold the turn; False if the cursor is somewhere else."""
    lock_checkpoint(cursor, domain)
    cursor.execute(
        "UPDATE fold_cursors SET position = %(end)s, moved_at = now()"
        " WHERE domain = %(domain)s AND position = %(start)s",
        {"domain": domain, "start": start, "end": end},
    )
    return cursor.rowcount == 1

"""The ids of events that are in the log, bounded in time without reopening a duplicate.

Ids are forgotten by the time that the event itself reports, since a repetition reports the same
time again. The floor is raised, and committed, before anything below it is deleted: at every moment
an event is either remembered or recognisably too old to be judged.

Of the events that the platform publishes the ledger keeps a digest besides: whatever comes back
from Kafka with the same one is what was published, and nothing else under the same id.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from onex_platform.base.errors import ConfigurationError
from onex_platform.engines.postgres.database import Cursor, Database, array_of, fetch_one

_DIGEST_BYTES = 16


class Recall(NamedTuple):
    """What the ledger knows at one moment: ids among those asked, and how far back it goes."""

    known: frozenset[UUID]
    floor: datetime | None


def recall(cursor: Cursor, domain: str, event_ids: Collection[UUID | str] = ()) -> Recall:
    """Which of these ids are in the log, and the floor below which nobody can tell.

    Both come from one snapshot: an id that was forgotten meanwhile can't pass for a new one.
    """
    row = fetch_one(
        cursor,
        "SELECT"
        " (SELECT pruned_before FROM ledger_floors WHERE domain = %(domain)s) AS floor,"
        " (SELECT array_agg(event_id) FROM event_ledger"
        "  WHERE domain = %(domain)s AND event_id = ANY(%(ids)s::uuid[])) AS known",
        {"domain": domain, "ids": array_of(event_ids)},
    )
    return Recall(frozenset(row.known or ()), row.floor)


def enter_staged(cursor: Cursor, domain: str, table: str, batch_id: UUID) -> int:
    """Enter the ids that wait in the table for their batch's commit; how many were new."""
    cursor.execute(
        "INSERT INTO event_ledger (event_id, domain, reported_at)"  # noqa: S608 - constant
        f" SELECT event_id, %s, reported_at FROM {table} WHERE batch_id = %s"
        " ON CONFLICT DO NOTHING",
        [domain, batch_id],
    )
    return cursor.rowcount


def enter_published(cursor: Cursor, domain: str, table: str, batch_id: UUID) -> None:
    """Enter the events of a batch that wait in the table to be published, with their digests.

    Those that came through the inbox are known already, but were not published before.
    """
    cursor.execute(
        "INSERT INTO event_ledger (event_id, domain, reported_at, digest)"  # noqa: S608 - constant
        " SELECT DISTINCT ON (event_id) event_id, %(domain)s, reported_at,"
        " substr(sha256(convert_to(concat_ws(E'\\n', event_kind,"
        " coalesce(event_key, event_id::text), envelope ->> 'tenant', envelope), 'UTF8')),"
        f" 1, {_DIGEST_BYTES})"
        f" FROM {table} WHERE batch_id = %(batch)s ORDER BY event_id"
        " ON CONFLICT (event_id, domain) DO UPDATE SET digest = excluded.digest",
        {"domain": domain, "batch": batch_id},
    )


def digest_of(kind: bytes, key: bytes, tenant: bytes, value: bytes) -> bytes:
    """What tells a record from others under the same id, as `enter_published` notes it."""
    return sha256(b"\n".join((kind, key, tenant, value))).digest()[:_DIGEST_BYTES]


def published(
    database: Database, domain: str, event_ids: Collection[str], floor: datetime | None
) -> set[bytes]:
    """The digests of those among these events that the platform published, as far back as the
    floor."""
    with database.transaction() as cursor:
        row = fetch_one(
            cursor,
            "SELECT string_agg(digest, ''::bytea) AS digests FROM event_ledger"
            " WHERE domain = %(domain)s AND event_id = ANY(%(ids)s::uuid[]) AND digest IS NOT NULL"
            " AND reported_at >= coalesce(%(floor)s::timestamptz, '-infinity')",
            {"domain": domain, "ids": array_of(event_ids), "floor": floor},
        )
    found: bytes = row.digests or b""
    return {found[at : at + _DIGEST_BYTES] for at in range(0, len(found), _DIGEST_BYTES)}


def prune(
    database: Database,
    domain: str,
    *,
    now: datetime,
    keep: timedelta,
    largest_retention: timedelta,
    chunk_rows: int = 10_000,
) -> int:
    """Forget ids reported longer ago than `keep`, in short transactions; how many they were.

    Whatever an input still holds must stay decidable, so `keep` may not be below its retention.
    """
    if keep < largest_retention:
        raise ConfigurationError(
            f"ONEX_REGISTRATION_LEDGER_DAYS={keep / timedelta(days=1):g} is below the longest "
            f"retention of an input topic, {largest_retention / timedelta(days=1):g} days.",
            hint="Raise it above every input's retention, or shorten the retention.",
        )
    with database.transaction() as cursor:
        floor = fetch_one(
            cursor,
            "INSERT INTO ledger_floors AS held (domain, pruned_before) VALUES (%s, %s)"
            " ON CONFLICT (domain) DO UPDATE"
            " SET pruned_before = greatest(held.pruned_before, excluded.pruned_before)"
            " RETURNING pruned_before",
            [domain, now - keep],
        )
    forgotten = 0
    while True:
        with database.transaction() as cursor:
            cursor.execute(
                "DELETE FROM event_ledger WHERE ctid = ANY(ARRAY("
                " SELECT ctid FROM event_ledger WHERE domain = %s AND reported_at < %s"
                " ORDER BY reported_at LIMIT %s))",
                [domain, floor.pruned_before, chunk_rows],
            )
            forgotten += cursor.rowcount
            if cursor.rowcount < chunk_rows:
                return forgotten

"""What the canaries find wrong: told once when it begins, and once when it is over.

The book is PostgreSQL. Something is noted as told after the broker has acknowledged it: whoever is
killed in between tells it again, under the same event id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid5

from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.domain.identity import CANARY_ID
from onex_platform.engines.postgres.database import Cursor
from onex_platform.migration.publication import published
from onex_platform.topics.alarms import Alarm, tell

_COLUMNS = "name, since, message, context, told_at, over_at"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, by a name that stays while it lasts."""

    name: str
    message: str
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownTrouble:
    """A trouble in the book; `over_at`: its end has not been told yet."""

    name: str
    since: datetime
    message: str
    context: Mapping[str, Any]
    told_at: datetime | None
    over_at: datetime | None


def known_troubles(cursor: Cursor) -> list[KnownTrouble]:
    """What lasts, and what has ended untold."""
    rows = cursor.execute(f"SELECT {_COLUMNS} FROM canary_troubles ORDER BY since, name")  # noqa: S608
    return [KnownTrouble(*row) for row in rows]


def note_troubles(
    platform: PlatformContext, kinds: Collection[str], found: Collection[Trouble], now: datetime
) -> None:
    """Enter what is wrong by now; of the same kinds, what is not wrong any more is over.

    A name begins with its kind and a blank. What comes back before its end was told goes on.
    """
    names = [trouble.name for trouble in found]
    with platform.database.transaction() as cursor:
        for trouble in found:
            cursor.execute(
                "INSERT INTO canary_troubles (name, since, message, context)"
                " VALUES (%s, %s, %s, %s::jsonb) ON CONFLICT (name) DO UPDATE"
                " SET message = excluded.message, context = excluded.context, over_at = NULL",
                [trouble.name, now, trouble.message, json.dumps(trouble.context)],
            )
        cursor.execute(
            "UPDATE canary_troubles SET over_at = %s WHERE over_at IS NULL"
            " AND split_part(name, ' ', 1) = ANY(%s) AND name <> ALL(%s)",
            [now, list(kinds), names],
        )
        # Nobody need hear of the end of what nobody heard of.
        cursor.execute("DELETE FROM canary_troubles WHERE over_at IS NOT NULL AND told_at IS NULL")


def tell_troubles(platform: PlatformContext, now: datetime) -> int:
    """Tell what was not told yet; how many alarms the broker has acknowledged."""
    with platform.database.transaction() as cursor:
        known = known_troubles(cursor)
    begun = [trouble for trouble in known if trouble.told_at is None]
    over = [trouble for trouble in known if trouble.told_at is not None and trouble.over_at]
    alarms = [*map(_alarm, begun), *map(_all_clear, over)]
    if not alarms:
        return 0
    with published(platform.database, platform.catalogue) as catalogue:
        told = tell(platform.settings, catalogue, "canary", "canaries.alert", alarms)
    if told:
        with effect("canaries.mark_told"), platform.database.transaction() as cursor:
            for trouble in begun:
                cursor.execute(
                    "UPDATE canary_troubles SET told_at = %s WHERE name = %s AND since = %s",
                    [now, trouble.name, trouble.since],
                )
            for trouble in over:
                cursor.execute(
                    "DELETE FROM canary_troubles WHERE name = %s AND over_at = %s",
                    [trouble.name, trouble.over_at],
                )
    return told


def _alarm(trouble: KnownTrouble) -> Alarm:
    return Alarm(
        correlation_id=uuid5(CANARY_ID, f"{trouble.name} {trouble.since.isoformat()}"),
        error="CanaryStopped",
        message=trouble.message,
        operation="follow_canaries",
        occurred_at=trouble.since,
        context={"trouble": trouble.name, **trouble.context},
    )


def _all_clear(trouble: KnownTrouble) -> Alarm:
    """The same trouble, over: an event of its own."""
    assert trouble.over_at is not None  # noqa: S101 - only such are given
    return Alarm(
        correlation_id=uuid5(CANARY_ID, f"{trouble.name} {trouble.since.isoformat()} over"),
        error="CanaryRecovered",
        message=f"Over since {trouble.over_at.isoformat(timespec='seconds')}: {trouble.message}",
        operation="follow_canaries",
        occurred_at=trouble.over_at,
        context={"trouble": trouble.name, **trouble.context},
        severity="info",
    )

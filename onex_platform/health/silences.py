"""Silences: operators' orders not to be told of alerts for a while, and why.

They end by themselves, and stay in the book. What is silenced is measured, raised and listed as
ever. An emergency is told all the same, unless the order says that it must not be.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.context import PlatformContext
from onex_platform.engines.postgres.database import Cursor
from onex_platform.health.alert_rules import RULES, EnumTier
from onex_platform.health.measurements import newest_measurement

EVERYTHING = "everything"
LONGEST = timedelta(days=7)
_COLUMNS = (
    "silence_id, target, emergencies, reason, ordered_by, ordered_at, until, lifted_at, lifted_by"
)


class Silence(NamedTuple):
    """An order, as it stands in the book."""

    silence_id: int
    target: str
    emergencies: bool
    reason: str
    ordered_by: str
    ordered_at: datetime
    until: datetime
    lifted_at: datetime | None = None
    lifted_by: str | None = None


class Silenceable(Protocol):
    """What of an alert decides whether it is silenced."""

    @property
    def rule(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def tier(self) -> EnumTier: ...


def is_silenced(alert: Silenceable, silences: Sequence[Silence]) -> bool:
    """Whether one of the silences, which are in force, is about the alert.

    A silence is about a rule, a scope, a part of a scope such as the group of a topic, or all.
    """
    names = {EVERYTHING, alert.rule, alert.scope, *alert.scope.split()}
    return any(
        silence.target in names and (silence.emergencies or alert.tier is not EnumTier.EMERGENCY)
        for silence in silences
    )


def active_silences(cursor: Cursor, domain: str, now: datetime) -> list[Silence]:
    """Those in force at a moment."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM alert_silences WHERE domain = %(domain)s"  # noqa: S608
        " AND ordered_at <= %(now)s AND until > %(now)s AND lifted_at IS NULL"
        " ORDER BY silence_id",
        {"domain": domain, "now": now},
    )
    return [Silence(*row) for row in rows]


def silences(cursor: Cursor, domain: str, limit: int) -> list[Silence]:
    """The book, newest first."""
    rows = cursor.execute(
        f"SELECT {_COLUMNS} FROM alert_silences WHERE domain = %s"  # noqa: S608 - constants
        " ORDER BY silence_id DESC LIMIT %s",
        [domain, limit],
    )
    return [Silence(*row) for row in rows]


def silence(
    platform: PlatformContext,
    target: str,
    *,
    reason: str,
    by: str,
    now: datetime,
    lasts: timedelta,
    emergencies: bool = False,
) -> Silence:
    """Keep alerts of a rule or scope from being told until then; the order stays in the book."""
    for name, value in (("target", target), ("reason", reason), ("by", by)):
        if not value.strip():
            raise ConfigurationError(f"{name} is empty; a silence says of what, who and why.")
    if not timedelta() < lasts <= LONGEST:
        raise ConfigurationError(
            f"A silence can't last {lasts}.", hint=f"Give a time above zero, up to {LONGEST}."
        )
    with effect("alerts.silence"), platform.database.transaction() as cursor:
        _require_known(cursor, platform, target)
        row = cursor.execute(
            "INSERT INTO alert_silences"  # noqa: S608 - constants
            " (domain, target, emergencies, reason, ordered_by, ordered_at, until)"
            f" VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}",
            [platform.domain, target, emergencies, reason, by, now, now + lasts],
        ).fetchall()[0]
    return Silence(*row)


def lift(platform: PlatformContext, target: str, *, by: str, now: datetime) -> list[Silence]:
    """End the silences of a target that are in force; what stays true is told from now on."""
    if not by.strip():
        raise ConfigurationError("by is empty; whoever lifts a silence is named.")
    with effect("alerts.unsilence"), platform.database.transaction() as cursor:
        rows = cursor.execute(
            "UPDATE alert_silences SET lifted_at = %(now)s, lifted_by = %(by)s"  # noqa: S608
            " WHERE domain = %(domain)s AND target = %(target)s AND until > %(now)s"
            f" AND lifted_at IS NULL RETURNING {_COLUMNS}",
            {"domain": platform.domain, "target": target, "by": by, "now": now},
        ).fetchall()
        if not rows:
            known = sorted({item.target for item in active_silences(cursor, platform.domain, now)})
            raise ConfigurationError(
                f"{target!r} is not silenced.",
                hint=f"Silenced are: {', '.join(known)}." if known else "Nothing is.",
            )
    return [Silence(*row) for row in rows]


def _require_known(cursor: Cursor, platform: PlatformContext, target: str) -> None:
    """Refuse what no alert can be about: most likely it is misspelled."""
    last = newest_measurement(cursor, platform.domain)
    scopes = {item.scope for item in last.readings} if last else set()
    parts = {part for scope in scopes for part in scope.split()}
    topics = {contract.topic for contract in platform.catalogue}
    known = {EVERYTHING, *RULES, *scopes, *parts, *topics}
    if target in known:
        return
    near = difflib.get_close_matches(target, known, n=1)
    raise ConfigurationError(
        f"{target!r} is no rule and no scope of alerts.",
        hint=f"Did you mean {near[0]}?" if near else f"Rules are: {', '.join(RULES)}.",
    )

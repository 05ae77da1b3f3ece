"""The expiry guard at work, tenant by tenant: what may expire now, and what is held.

Everything it counts stands in the database: what was declared within the window, since when a hold
lasts, what an operator ordered. So it does not matter which process scans next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import uuid5

from onex_platform.base.settings import Settings
from onex_platform.deadlines import guard_rules
from onex_platform.deadlines.guard_rules import GuardPolicy, Hold
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import FACT_NAMESPACE
from onex_platform.engines.postgres.database import Cursor, array_of, fetch_one
from onex_platform.projections import overdue

# Those of the window that are not active any more belonged to the fleet when the window began.
_RECENT = f"""
    SELECT
        count(*) AS recent,
        count(*) FILTER (WHERE NOT {overdue.IS_ACTIVE.format(table="d")}) AS gone
    FROM declared_expiries AS d
    WHERE d.domain = %(domain)s AND d.tenant = %(tenant)s AND d.guarded
        AND d.declared_at > %(since)s"""  # noqa: S608 - constant parts
_STANDING = """
    SELECT
        EXISTS (
            SELECT FROM guard_overrides WHERE domain = %(domain)s AND tenant = %(tenant)s
                AND ordered_at <= %(now)s AND until > %(now)s
        ) AS overridden,
        (
            SELECT max(ended_at) FROM expiry_holds
            WHERE domain = %(domain)s AND tenant = %(tenant)s AND ending = 'maximum'
        ) AS believed_before"""


class AllowedExpiry(NamedTuple):
    """An expiry that may be declared; `guarded` ones count against the limit."""

    fact: LogEvent
    guarded: bool


@dataclass(slots=True)
class _Tenant:
    """A tenant's numbers during one scan."""

    name: str
    overridden: bool
    believed_before: datetime | None  # what was overdue when a hold ran out is not doubted again
    hold: Hold | None
    recent: int
    gone: int
    drained: int
    active: int = 0
    counted: bool = False
    held: int = 0


class ExpiryGuard:
    """Lets expiries pass up to each tenant's limit, for one scan; holds begin and end with it.

    In a dry run they do so here alone, and nothing is written.
    """

    def __init__(
        self, domain: str, settings: Settings, now: datetime, *, dry_run: bool = False
    ) -> None:
        self._domain = domain
        self._now = now
        self._dry_run = dry_run
        self._policy = policy_of(settings)
        self._tenants: dict[str, _Tenant] = {}

    @property
    def held(self) -> int:
        """How many overdue nodes were not let through."""
        return sum(tenant.held for tenant in self._tenants.values())

    def admit(self, cursor: Cursor, facts: Iterable[LogEvent]) -> list[AllowedExpiry]:
        """Of expiries, oldest deadline first, those that may be declared in this transaction."""
        by_tenant: dict[str, list[LogEvent]] = {}
        for fact in facts:
            by_tenant.setdefault(fact.tenant, []).append(fact)
        return [
            admitted
            for name, expiries in by_tenant.items()
            for admitted in self._admit(cursor, self._recounted(cursor, name), expiries)
        ]

    def close(self, cursor: Cursor) -> None:
        """After a scan that saw everything overdue: end the holds whose silence is over."""
        for row in open_holds(cursor, self._domain):
            tenant = self._tenant(cursor, row.tenant)
            hold = Hold(row.since, row.fleet, row.expiry_limit)
            if guard_rules.is_silence_over(hold, tenant.held, tenant.recent):
                self._end_hold(cursor, tenant, "silence_over")
            else:
                cursor.execute(
                    "UPDATE expiry_holds SET held = %s WHERE hold_id = %s",
                    [tenant.held, row.hold_id],
                )

    def _admit(
        self, cursor: Cursor, tenant: _Tenant, expiries: Sequence[LogEvent]
    ) -> list[AllowedExpiry]:
        if tenant.hold is not None and tenant.overridden:
            self._end_hold(cursor, tenant, "override")
        elif tenant.hold is not None and guard_rules.is_too_long(
            tenant.hold, self._now, self._policy
        ):
            self._end_hold(cursor, tenant, "maximum")
            tenant.believed_before = self._now
        if tenant.overridden:
            return [AllowedExpiry(fact, guarded=False) for fact in expiries]
        believed = [fact for fact in expiries if _is_before(fact, tenant.believed_before)]
        doubted = [fact for fact in expiries if not _is_before(fact, tenant.believed_before)]
        allowed = doubted[: self._allowance(cursor, tenant, len(doubted))]
        held = self._undeclared(cursor, doubted[len(allowed) :])
        tenant.recent += len(allowed)
        tenant.drained += len(allowed)
        tenant.held += held
        if held and tenant.hold is None:
            self._begin_hold(cursor, tenant)
        return [
            *(AllowedExpiry(fact, guarded=False) for fact in believed),
            *(AllowedExpiry(fact, guarded=True) for fact in allowed),
        ]

    def _undeclared(self, cursor: Cursor, expiries: Sequence[LogEvent]) -> int:
        """How many of these nobody has declared since they were looked up: a scan beside this one
        may have, and what it declared is not held."""
        if not expiries:
            return 0
        query = (
            "SELECT count(*) AS expiries FROM declared_expiries"
            " WHERE domain = %s AND event_id = ANY(%s::uuid[])"
        )
        ids = array_of(fact.event_id for fact in expiries)
        return len(expiries) - int(fetch_one(cursor, query, [self._domain, ids]).expiries)

    def _allowance(self, cursor: Cursor, tenant: _Tenant, wanted: int) -> int:
        if tenant.hold is not None:
            return guard_rules.drain_allowance(tenant.hold, tenant.drained, self._now, self._policy)
        # A fleet is counted only as far as it matters: the rest of it costs nothing.
        enough = guard_rules.fleet_that_allows(tenant.recent + wanted, self._policy) - tenant.gone
        if not tenant.counted and enough > tenant.active:
            most = max(enough, 2 * tenant.active)
            tenant.active = overdue.count_active(cursor, self._domain, tenant.name, most)
            tenant.counted = tenant.active < most
        return guard_rules.budget(self._limit(tenant), tenant.recent)

    def _limit(self, tenant: _Tenant) -> int:
        return guard_rules.expiry_limit(tenant.active + tenant.gone, self._policy)

    def _tenant(self, cursor: Cursor, name: str) -> _Tenant:
        if name not in self._tenants:
            self._tenants[name] = self._load(cursor, name)
        return self._tenants[name]

    def _recounted(self, cursor: Cursor, name: str) -> _Tenant:
        """As the database has it by now: a scan beside this one may have declared some as well.

        What a dry run lets pass is in no database, so it counts for itself.
        """
        known = self._tenants.get(name)
        if known is not None and not self._dry_run:
            self._tenants[name] = replace(
                self._load(cursor, name),
                active=known.active,
                gone=known.gone,
                counted=known.counted,
                held=known.held,
            )
        return self._tenant(cursor, name)

    def _load(self, cursor: Cursor, name: str) -> _Tenant:
        which = {"domain": self._domain, "tenant": name, "now": self._now}
        standing = fetch_one(cursor, _STANDING, which)
        window = {**which, "since": self._now - self._policy.window}
        counts = fetch_one(cursor, _RECENT, window)
        hold, drained = None, 0
        for row in open_holds(cursor, self._domain, name):
            hold = Hold(row.since, row.fleet, row.expiry_limit)
            drained = fetch_one(cursor, _RECENT, {**which, "since": row.since}).recent
        return _Tenant(
            name,
            standing.overridden,
            standing.believed_before,
            hold,
            counts.recent,
            counts.gone,
            drained,
        )

    def _begin_hold(self, cursor: Cursor, tenant: _Tenant) -> None:
        hold = Hold(self._now, tenant.active + tenant.gone, self._limit(tenant))
        tenant.hold, tenant.drained = hold, 0
        if self._dry_run:
            return
        cursor.execute(
            "INSERT INTO expiry_holds (hold_id, domain, tenant, since, fleet, expiry_limit, held)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                uuid5(FACT_NAMESPACE, f"hold {self._domain} {tenant.name} {self._now.isoformat()}"),
                self._domain,
                tenant.name,
                *hold,
                tenant.held,
            ],
        )

    def _end_hold(self, cursor: Cursor, tenant: _Tenant, ending: str) -> None:
        tenant.hold = None
        if self._dry_run:
            return
        cursor.execute(
            "UPDATE expiry_holds SET ended_at = %s, ending = %s, held = %s"
            " WHERE domain = %s AND tenant = %s AND ended_at IS NULL",
            [self._now, ending, tenant.held, self._domain, tenant.name],
        )


def note_expiries(cursor: Cursor, admitted: Sequence[AllowedExpiry], now: datetime) -> None:
    """Put down what is declared, for the next count."""
    facts = [item.fact for item in admitted]
    cursor.execute(
        "INSERT INTO declared_expiries"
        " (event_id, domain, tenant, entity_id, declared_at, guarded)"
        " SELECT event_id, domain, tenant, entity_id, %(now)s, guarded FROM unnest("
        "  %(ids)s::uuid[], %(domains)s::text[], %(tenants)s::text[], %(entities)s::uuid[],"
        "  %(guarded)s::boolean[]) AS item (event_id, domain, tenant, entity_id, guarded)"
        " ON CONFLICT DO NOTHING",
        {
            "now": now,
            "ids": [fact.event_id for fact in facts],
            "domains": [fact.entity.domain for fact in facts],
            "tenants": [fact.tenant for fact in facts],
            "entities": [fact.entity.entity_id for fact in facts],
            "guarded": [item.guarded for item in admitted],
        },
    )


def open_holds(cursor: Cursor, domain: str, tenant: str | None = None) -> list[Any]:
    """The holds that last, of one tenant or of all."""
    return cursor.execute(
        "SELECT hold_id, tenant, since, fleet, expiry_limit, held FROM expiry_holds"
        " WHERE domain = %(domain)s AND ended_at IS NULL"
        " AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s) ORDER BY tenant",
        {"domain": domain, "tenant": tenant},
    ).fetchall()


def policy_of(settings: Settings) -> GuardPolicy:
    chosen = settings.deadlines
    return GuardPolicy(
        share=Fraction(str(chosen.guard_share)),
        floor=chosen.guard_floor,
        window=timedelta(seconds=chosen.guard_window_seconds),
        drain_share=Fraction(str(chosen.drain_share)),
        longest_hold=timedelta(seconds=chosen.hold_seconds),
    )


def _is_before(fact: LogEvent, moment: datetime | None) -> bool:
    return moment is not None and fact.deadline is not None and fact.deadline < moment

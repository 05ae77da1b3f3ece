"""The deadline scan: finds rows past their deadline and declares it, once, with care.

What holds:
- A fact names the deadline that it judged, and its id is that of entity, epoch and deadline. Two
  scanners declare it once; whatever entered the log before it wins.
- Nothing is judged beyond what is folded, nor within the grace after a restart (`eligibility.py`).
- More expiries of a tenant than its guard allows are held (`expiry_guard.py`).
- Batches are short transactions that read a page of an index and insert facts; no row of the
  registry is locked. A scan is bounded in facts and in time, and the next goes on where it stopped.
- Only a scan declares: rebuilds and replays fold what was declared.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid5

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import get_logger
from onex_platform.context import PlatformContext
from onex_platform.deadlines.eligibility import (
    Watch,
    evident_until,
    keep_watch,
    look_at_watch,
    look_in_vain,
)
from onex_platform.deadlines.expiry_guard import ExpiryGuard, note_expiries
from onex_platform.deadlines.scan_state import alert_of_holds, prune_expiries, writing
from onex_platform.deadlines.timeout_facts import undeclared
from onex_platform.domain.events import EnumEventKind, LogEvent
from onex_platform.domain.identity import FACT_NAMESPACE
from onex_platform.engines.postgres.database import Cursor, fetch_one
from onex_platform.ingest.inbox import submit
from onex_platform.projections import overdue
from onex_platform.projections.overdue import BEGINNING, OverdueKey

_LAST_SCAN = """
    SELECT
        scanned_at,
        scanned_before,
        EXISTS (SELECT FROM scan_positions AS p WHERE p.domain = %(domain)s) AS stopped,
        EXISTS (
            SELECT FROM expiry_holds AS h
            WHERE h.domain = %(domain)s AND (ended_at IS NULL OR alerted_at IS NULL)
        ) AS unsettled
    FROM deadline_watches WHERE domain = %(domain)s"""

Kind = EnumEventKind
_KINDS = (Kind.LIVENESS_EXPIRED, Kind.ACK_TIMED_OUT)


@dataclass(slots=True)
class ScanAccount:
    """What a scan found and did; numbers for metadata, metrics and people."""

    judged_before: datetime | None = None  # None: timeouts are another registry's affair
    watched_at: datetime | None = None  # the last look; None: nobody ever looked
    grace_until: datetime | None = None  # set while nothing is judged yet
    ack_timed_out: int = 0
    expired: int = 0
    waiting: int = 0  # overdue, with a fact on its way
    unpublished: int = 0  # overdue, but asked too late or not at all
    held: int = 0
    in_grace: int = 0
    oldest: datetime | None = None  # the oldest deadline that was declared now, or is in grace
    complete: bool = True  # False: the next scan goes on where this one stopped
    stood_back: bool = False  # another scan is at work: nothing was judged
    alerts: int = 0  # holds that were told to the world

    @property
    def declared(self) -> int:
        return self.ack_timed_out + self.expired

    @property
    def overdue(self) -> int:
        """Every row past its deadline that was looked at."""
        return self.declared + self.waiting + self.unpublished + self.held + self.in_grace


def declares_timeouts(settings: Settings) -> bool:
    """Whether silence is judged here, or by another registry whose facts are only projected."""
    chosen = settings.deadlines.enabled
    return settings.registration.decider_enabled if chosen is None else chosen


def scan(
    platform: PlatformContext, now: datetime, *, dry_run: bool = False, tenant: str | None = None
) -> ScanAccount:
    """Declare what is overdue at `now`, as far as the evidence goes; a dry run only counts.

    With a tenant, nobody else is judged, and the scans of all find everything as they left it.
    Raises `InfraError` if the evidence can't be had; then nothing is judged, and the watch is over.
    """
    account = ScanAccount()
    if not declares_timeouts(platform.settings):
        return account
    before, watch = (_look if dry_run else _keep)(platform, now)
    account.judged_before, account.watched_at = before, watch.watched_at
    if not watch.may_judge(now):
        account.grace_until = watch.grace_until
    run = _Run(platform, now, before, account, dry_run=dry_run, tenant=tenant)
    if dry_run:
        run.through()
    elif account.grace_until is None and _has_work(platform, before):
        with _scan_lock(platform) as is_ours:
            if is_ours:
                run.through()
        account.stood_back = not is_ours
        account.complete &= is_ours
        account.alerts = alert_of_holds(platform, now) if is_ours else 0
    return account


@contextmanager
def _scan_lock(platform: PlatformContext) -> Iterator[bool]:
    """Whether to scan now: rivals would do no harm, only the same work twice.

    So nobody waits for the turn, and one that is kept for too long is not respected: its holder was
    stopped, or is lost in a network, and would keep everybody alive for ever.
    """
    longest = timedelta(seconds=platform.settings.deadlines.turn_seconds)
    key = _lock_key(platform.domain)
    with platform.database.session_lock_if_free(key) as held_for:
        if held_for is not None and held_for > longest:
            get_logger(__name__).warning(
                "deadlines.passing_a_stuck_scan", held_seconds=held_for.total_seconds()
            )
        yield held_for is None or held_for > longest


def scan_when_due(platform: PlatformContext, now: datetime) -> ScanAccount | None:
    """For loops: keep the watch, and scan if that may change something; None if not."""
    return scan(platform, now) if note_watch(platform, now) else None


def note_watch(platform: PlatformContext, now: datetime) -> bool:
    """Note that the deadlines are watched, and say whether a scan is due.

    Raises `InfraError` if the evidence can't be had; then it is noted that the watch is over.
    """
    return declares_timeouts(platform.settings) and _is_due(platform, now, *_keep(platform, now))


def is_due(platform: PlatformContext, now: datetime) -> bool:
    """Whether a scan may declare something; nothing is noted.

    That is so if a deadline passed since the last scan, if that scan did not come to its end, and
    every now and then while something waits that could not be declared.
    """
    return declares_timeouts(platform.settings) and _is_due(platform, now, *_look(platform, now))


def _is_due(platform: PlatformContext, now: datetime, before: datetime, watch: Watch) -> bool:
    """One look at each index."""
    if not watch.may_judge(now):
        return False
    with platform.database.transaction() as cursor:
        last = fetch_one(cursor, _LAST_SCAN, {"domain": platform.domain})
        pause = timedelta(seconds=platform.settings.deadlines.rescan_seconds)
        rested = last.scanned_at is None or now - last.scanned_at >= pause
        if rested and last.unsettled:
            return True
        new = rested or last.scanned_before is None or last.stopped
        since = BEGINNING if new else OverdueKey(last.scanned_before, BEGINNING.entity_id)
        return any(overdue.exists(cursor, platform.domain, kind, before, since) for kind in _KINDS)


def _has_work(platform: PlatformContext, before: datetime) -> bool:
    """Whether something is overdue, or a hold has to be looked after."""
    with platform.database.transaction() as cursor:
        return fetch_one(cursor, _LAST_SCAN, {"domain": platform.domain}).unsettled or any(
            overdue.exists(cursor, platform.domain, kind, before) for kind in _KINDS
        )


def _keep(platform: PlatformContext, now: datetime) -> tuple[datetime, Watch]:
    """How far the evidence goes, and the watch, which is noted or, without evidence, broken off."""
    try:
        before = evident_until(platform, now)
    except InfraError:
        with effect("deadlines.in_vain"), writing(platform) as cursor:
            look_in_vain(cursor, platform.domain, now)
        raise
    with effect("deadlines.watch"), writing(platform) as cursor:
        return before, keep_watch(cursor, platform.domain, platform.settings, now)


def _look(platform: PlatformContext, now: datetime) -> tuple[datetime, Watch]:
    before = evident_until(platform, now)
    with platform.database.transaction() as cursor:
        return before, look_at_watch(cursor, platform.domain, platform.settings, now)


class _Run:
    """One pass over what is overdue."""

    def __init__(
        self,
        platform: PlatformContext,
        now: datetime,
        before: datetime,
        account: ScanAccount,
        *,
        dry_run: bool,
        tenant: str | None,
    ) -> None:
        self._platform = platform
        self._domain = platform.domain
        self._now = now
        self._before = before
        self._account = account
        self._dry_run = dry_run
        self._tenant = tenant
        self._is_aside = dry_run or tenant is not None  # later scans don't build on it
        self._limits = platform.settings.deadlines
        self._ack_window = timedelta(seconds=platform.settings.registration.ack_seconds)
        self._guard = ExpiryGuard(platform.domain, platform.settings, now, dry_run=dry_run)

    def through(self) -> None:
        stopped = {kind: self._walk(kind) for kind in _KINDS}
        self._account.held = self._guard.held
        if self._is_aside:
            return
        with effect("deadlines.close"), self._transaction() as cursor:
            for kind, (began, ended) in stopped.items():
                _remember_place(cursor, self._domain, kind, ended)
                if kind is Kind.LIVENESS_EXPIRED and began == BEGINNING and ended is None:
                    self._guard.close(cursor)
            prune_expiries(cursor, self._domain, self._limits, self._now)
            cursor.execute(
                "UPDATE deadline_watches SET scanned_at = %s, scanned_before = %s"
                " WHERE domain = %s",
                [self._now, self._before, self._domain],
            )

    def _walk(self, kind: EnumEventKind) -> tuple[OverdueKey, OverdueKey | None]:
        """Where the walk began, and where it stopped before the end, if it did."""
        with self._transaction() as cursor:
            began = BEGINNING if self._is_aside else _place(cursor, self._domain, kind)
        place: OverdueKey | None = began
        started, already = time.monotonic(), self._account.declared
        while place is not None:
            left = self._limits.scan_facts - (self._account.declared - already)
            with effect("deadlines.declare"), self._transaction() as cursor:
                place = self._judge(cursor, kind, place, min(self._limits.batch_rows, left))
            enough = self._account.declared - already >= self._limits.scan_facts
            if enough or time.monotonic() - started > self._limits.scan_seconds:
                break
        self._account.complete &= place is None
        return began, place

    def _judge(
        self, cursor: Cursor, kind: EnumEventKind, after: OverdueKey, size: int
    ) -> OverdueKey | None:
        """Judge a page of rows; where it ends."""
        account, now = self._account, self._now
        page = overdue.read_page(
            cursor, self._domain, kind, self._before, after, size, self._ack_window, self._tenant
        )
        facts = undeclared(cursor, self._domain, page.passed, now)
        account.unpublished += page.unpublished
        account.waiting += len(page.passed) - len(facts)
        if account.grace_until is not None:
            account.in_grace += len(facts)
            self._note_oldest(facts)
            return page.end
        if kind is Kind.LIVENESS_EXPIRED:
            admitted = self._guard.admit(cursor, facts)
            facts = [item.fact for item in admitted]
            if not self._dry_run:
                note_expiries(cursor, admitted, now)
        declared = len(facts) if self._dry_run else submit(cursor, facts)
        if kind is Kind.LIVENESS_EXPIRED:
            account.expired += declared
        else:
            account.ack_timed_out += declared
        self._note_oldest(facts)
        return page.end

    def _note_oldest(self, facts: Iterable[LogEvent]) -> None:
        known = [self._account.oldest, *(fact.deadline for fact in facts)]
        self._account.oldest = min((one for one in known if one is not None), default=None)

    def _transaction(self) -> AbstractContextManager[Cursor]:
        return writing(self._platform)


def _place(cursor: Cursor, domain: str, kind: EnumEventKind) -> OverdueKey:
    query = "SELECT deadline, entity_id FROM scan_positions WHERE domain = %s AND kind = %s"
    row = cursor.execute(query, [domain, kind]).fetchone()
    return BEGINNING if row is None else OverdueKey(*row)


def _remember_place(
    cursor: Cursor, domain: str, kind: EnumEventKind, place: OverdueKey | None
) -> None:
    cursor.execute("DELETE FROM scan_positions WHERE domain = %s AND kind = %s", [domain, kind])
    if place is not None:
        cursor.execute(
            "INSERT INTO scan_positions (domain, kind, deadline, entity_id)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (domain, kind) DO UPDATE"
            " SET deadline = excluded.deadline, entity_id = excluded.entity_id",
            [domain, kind, *place],
        )


def _lock_key(domain: str) -> int:
    return int.from_bytes(uuid5(FACT_NAMESPACE, f"deadlines {domain}").bytes[:8], signed=True)

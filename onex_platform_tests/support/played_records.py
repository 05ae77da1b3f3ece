"""Reads a simulated history as the platform would: intake, ledger, order, fold."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from onex_platform.domain.batch import Decider
from onex_platform.domain.events import LogEvent
from onex_platform.domain.identity import REGISTRATION_DOMAIN, EntityKey, identify_node
from onex_platform.domain.intake import IntakeRules, Parked, RawRecord, admit
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.log_order import mark_duplicates, number
from onex_platform.domain.reference.plain_fold import BatchFold, fold_batch
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.history_files import Offsets
from onex_platform.simulate.plan import FleetPlan
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.records import Announcement, Record
from onex_platform.simulate.routes import Routes, routes_of
from onex_platform.topics.catalogue import load_catalogue

LEDGER = timedelta(days=30)
STORMY = FleetPlan(nodes=60, duration=timedelta(hours=3), profile=PROFILES["stormy"])


def routes() -> Routes:
    return routes_of(load_catalogue())


def rules_for(plan: FleetPlan) -> IntakeRules:
    return IntakeRules(
        default_tenant=plan.tenant,
        durations=plan.windows,
        max_event_bytes=plan.max_event_bytes,
        ledger_floor=plan.start - LEDGER,
    )


def raw(record: Record, offset: int = 0) -> RawRecord:
    return RawRecord(
        topic=record.topic,
        partition=record.partition,
        offset=offset,
        timestamp=moment(record.time_ms),
        append_time=record.append_time,
        key=record.key,
        value=record.value,
        headers=record.headers,
        kind=record.kind,
        legacy=record.legacy,
    )


def moment(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


@dataclass
class Reading:
    """What came of a history: events in the log and parked records."""

    begins: datetime
    ends: datetime
    events: list[LogEvent] = field(default_factory=list)
    parked: Counter[str] = field(default_factory=Counter)

    def numbered(self) -> Iterator[LogEvent]:
        return mark_duplicates(number(self.events, self.begins, self.ends), frozenset())

    def fold(self, decider: Decider | None = None) -> BatchFold:
        return fold_batch({}, self.numbered(), decider)


def read(records: Iterable[RawRecord], plan: FleetPlan) -> Reading:
    reading = Reading(begins=plan.start, ends=moment(plan.end_ms) + timedelta(days=1))
    rules = rules_for(plan)
    for record in records:
        event = admit(record, rules, read_at=moment(plan.end_ms))
        if isinstance(event, Parked):
            reading.parked[event.reason] += 1
        else:
            reading.events.append(event)
    return reading


def with_offsets(records: Iterable[Record]) -> Iterator[RawRecord]:
    offsets = Offsets()
    return (raw(record, offsets.take(record.topic, record.partition)) for record in records)


def read_fleet(fleet: Fleet) -> Reading:
    return read(with_offsets(fleet), fleet.plan)


def entity_of(announced: Announcement) -> EntityKey:
    identity = identify_node(announced.node_id, announced.tenant)
    return EntityKey(REGISTRATION_DOMAIN, identity.entity_id)


def promised(fleet: Fleet) -> dict[EntityKey, tuple[EnumRegistrationState, bool]]:
    """What the scenarios announce of every node: its state, and whether it is closed."""
    return {entity_of(a): (a.state, a.closed) for a in fleet.announcements()}


def kept(fold: BatchFold) -> dict[EntityKey, tuple[EnumRegistrationState, bool]]:
    """What became of every node."""
    return {key: _standing(change.row) for key, change in fold.changes.items()}


def _standing(row: ModelRegistrationProjection) -> tuple[EnumRegistrationState, bool]:
    return row.current_state, row.is_closed()


def fleet(plan: FleetPlan) -> Fleet:
    return Fleet(plan, routes())


def digest(plan: FleetPlan) -> str:
    found = hashlib.sha256()
    for record in fleet(plan):
        found.update(repr(record).encode())
    return found.hexdigest()

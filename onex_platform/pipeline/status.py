"""How the service is: who works, how far each station is behind, and what stands in the way.

Every answer comes from PostgreSQL and Kafka; nothing here starts Spark or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from onex_platform.base.errors import InfraError
from onex_platform.capture.read.kafka_relay import relays_are_heard_of
from onex_platform.checks import Number, Verdict
from onex_platform.context import PlatformContext
from onex_platform.deadlines.checks import no_overdue_without_fact
from onex_platform.engines.postgres.leases import LeaseRecord, draining_lease, open_leases
from onex_platform.ingest.checks import archive_keeps_up
from onex_platform.ingest.inputs import input_ids, next_offsets
from onex_platform.ingest.lag import topic_states
from onex_platform.migration.present import platform_now
from onex_platform.pipeline.proof_times import last_proofs
from onex_platform.projections.backlog import measure_backlog
from onex_platform.projections.checks import fold_keeps_up, nobody_is_set_aside
from onex_platform.projections.write.outbox import oldest_waiting, waiting
from onex_platform.snapshots.publish.held_events import no_event_is_held_back

# What waits longer in the outbox has somebody in its way.
_PUBLISHED_WITHIN = timedelta(seconds=30)
# The nightly proof, and some hours for it.
_PROVED_WITHIN = timedelta(hours=30)


@dataclass(frozen=True, slots=True)
class Station:
    """A part of the service: whether it is well, one sentence, and the numbers behind it."""

    name: str
    healthy: bool
    says: str
    numbers: dict[str, Number]


@dataclass(frozen=True, slots=True)
class Status:
    """The whole service at one moment."""

    at: datetime
    leases: list[LeaseRecord]
    stations: list[Station]

    @property
    def healthy(self) -> bool:
        return all(station.healthy for station in self.stations)

    def as_document(self) -> dict[str, Any]:
        """For machines; times are in ISO format."""
        return {
            "healthy": self.healthy,
            "at": self.at.isoformat(),
            "leases": [
                {
                    name: value.isoformat() if isinstance(value, datetime) else value
                    for name, value in lease._asdict().items()
                }
                for lease in self.leases
            ],
            "stations": [asdict(station) for station in self.stations],
        }


def look(platform: PlatformContext, now: datetime) -> Status:
    """Ask every station; one that can't be asked is not well, and says why."""
    leases = open_leases(platform.database)
    stations = {
        "drain": lambda: _drain(platform, leases),
        "archive": lambda: _archive(platform, now),
        "fold": lambda: fold_keeps_up(platform, now),
        "publication": lambda: _publication(platform, now),
        "deadlines": lambda: no_overdue_without_fact(platform, now).verdict,
        "set aside": lambda: nobody_is_set_aside(platform, now),
        "held back": lambda: no_event_is_held_back(platform.database, platform.domain, now),
        "relays": lambda: _relays(platform),
        "proof": lambda: _proof(platform, now),
    }
    return Status(now, leases, [_asked(name, ask) for name, ask in stations.items()])


def _asked(name: str, ask: Callable[[], Verdict]) -> Station:
    try:
        return Station(name, *ask())
    except InfraError as error:
        return Station(name, False, str(error), {})


def _drain(platform: PlatformContext, leases: list[LeaseRecord]) -> Verdict:
    """Whether somebody drains, or nothing waits for anybody."""
    name = draining_lease(platform.domain)
    ours = [lease for lease in leases if lease.name == name and lease.lives]
    holder = next((lease for lease in ours if lease.taken_at is not None), None)
    ready = sum(lease.taken_at is None and lease.ready_at is not None for lease in ours)
    backlog = measure_backlog(platform)
    numbers: dict[str, Number] = {
        "standing by": ready,
        "records": backlog.records,
        "facts": backlog.facts,
        "events": backlog.events,
    }
    if holder is not None:
        others = f"{ready} stand by" if ready else "nobody stands by"
        return Verdict(True, f"{holder.owner} works; {others}.", numbers)
    if platform.settings.pipeline.warm_runs:
        return Verdict(False, "Nobody works, though a warm run is to be kept.", numbers)
    return Verdict(not backlog, f"Nobody works. {backlog}", numbers)


def _archive(platform: PlatformContext, now: datetime) -> Verdict:
    """The input topics together."""
    platform = platform_now(platform)
    made_anew = input_ids(platform).made_anew
    states = topic_states(
        platform.settings,
        platform.catalogue.registration_inputs(),
        next_offsets(platform),
        now,
        made_anew,
    )
    lags = [state.lag for state in states if state.lag is not None]
    events = sum(lag.events for lag in lags)
    oldest = max((lag.seconds for lag in lags), default=0.0)
    late = [(state.topic, archive_keeps_up(state)) for state in states]
    complaints = [f"{topic}: {found.description}" for topic, found in late if not found.passed]
    says = " ".join(complaints) or f"{events} records wait, the oldest for {oldest:.1f} s."
    numbers: dict[str, Number] = {"records": events, "oldest in seconds": round(oldest, 1)}
    return Verdict(not complaints, says, numbers)


def _publication(platform: PlatformContext, now: datetime) -> Verdict:
    """What the outbox holds, and for how long."""
    with platform.database.transaction() as cursor:
        entries = waiting(cursor, platform.domain)
        age = oldest_waiting(cursor, platform.domain)
    seconds = age.total_seconds()
    numbers: dict[str, Number] = {**entries._asdict(), "oldest in seconds": round(seconds, 1)}
    says = f"{entries.rows} rows and {entries.events} events wait, the oldest for {seconds:.1f} s."
    return Verdict(age <= _PUBLISHED_WITHIN, says, numbers)


def _relays(platform: PlatformContext) -> Verdict:
    """Whether the deadline watch waits for a snapshotter that is gone."""
    with platform.database.transaction() as cursor:
        return relays_are_heard_of(cursor)


def _proof(platform: PlatformContext, now: datetime) -> Verdict:
    """When the rows were last compared with the log, and how that went."""
    proofs = last_proofs(platform)
    if not proofs:
        return Verdict(True, "Nothing was proved yet.", {})
    failed = [proof for proof in proofs if not proof.passed]
    latest = max(proof.proved_at for proof in proofs)
    numbers: dict[str, Number] = {proof.name: proof.proved_at.isoformat() for proof in proofs}
    if failed:
        return Verdict(False, " ".join(f"{p.name}: {p.says}" for p in failed), numbers)
    hours = (now - latest).total_seconds() / 3600
    says = f"The last proof was made {hours:.1f} h ago and held."
    return Verdict(now - latest <= _PROVED_WITHIN, says, numbers)

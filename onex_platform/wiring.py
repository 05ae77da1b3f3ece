"""What the stations' wiring shares: names in the asset graph, partitions, and when a run may start.

Stations don't import each other's `defs`; whatever they must agree on in Dagster's terms is here.

Whether a run lives is decided by its lease in PostgreSQL. Dagster goes on showing a run as started
whose process was killed; here such a run is found, and reported to Dagster as failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import dagster as dg

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.postgres.database import Database
from onex_platform.engines.postgres.leases import (
    LeaseRecord,
    draining_lease,
    end_expired,
    end_forgotten,
    leases_of_runs,
    living,
)

EVENT_PAGES = dg.AssetKey("event_pages")
DEAD_LETTERS = dg.AssetKey("dead_letters")
SERVICE_HEALTH = dg.AssetKey("service_health")
REGISTRATION_PROJECTIONS = dg.AssetKey("registration_projections")
REGISTRATION_HISTORY = dg.AssetKey("registration_history")
REGISTRATION_SNAPSHOTS = dg.AssetKey("registration_snapshots")

# The run that takes cuts, folds them, and watches the deadlines meanwhile.
DRAINING_JOB = "drain_registration"

GROUP = "registration"
OWNERS = ["team:registry"]
# Whoever extends the log or the rows of the domain waits here for the one before. Correctness does
# not hang on it (rivals change nothing), but work that a rival throws away is not worth starting.
WRITER_POOL = "registration_writer"
# The hour is closed by then: by the run that drained it, or by the hourly schedule.
HOURLY = dg.FreshnessPolicy.cron(
    deadline_cron="30 * * * *", lower_bound_delta=timedelta(minutes=30)
)

# Maintenance reads and rewrites a lot; two of its kinds at once would only slow each other down.
MAINTENANCE_POOL = "registration_maintenance"

# On a run that was found dead: why.
DEAD_TAG = "onex/dead"

_FORGOTTEN = timedelta(minutes=1)
_FREE_FAILURES = 1
_FIRST_PAUSE_SECONDS = 15
_LONGEST_PAUSE_SECONDS = 60
_RUNS_LOOKED_AT = 8
_IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def topic_key(topic: str) -> dg.AssetKey:
    """A topic's place in the graph, the same in every environment."""
    return dg.AssetKey(["kafka", topic])


def hours(settings: Settings) -> dg.HourlyPartitionsDefinition:
    """The hours of the log. One becomes a partition when it has ended."""
    return dg.HourlyPartitionsDefinition(
        start_date=settings.pages.first_day.strftime("%Y-%m-%d-00:00"), timezone="UTC"
    )


def hour_key(hours: dg.HourlyPartitionsDefinition, hour: datetime) -> str:
    """The partition of the hour that begins then."""
    return hours.get_partition_key_for_timestamp(hour.timestamp())


def hours_of_run(context: dg.AssetExecutionContext) -> dg.TimeWindow:
    """The hours that a run is for, in UTC; refused unless all of them are over.

    Dagster offers no others, but it starts a run for whatever hours its API is given, and an hour
    that goes on can only be waited for.
    """
    window = context.partition_time_window
    now = datetime.now(UTC)
    if window.end > now:
        raise ConfigurationError(
            f"The hours to materialise end at {window.end.isoformat()}, "
            f"which is later than now, {now.isoformat(timespec='seconds')}.",
            hint="Choose hours that are over.",
        )
    return dg.TimeWindow(window.start.astimezone(UTC), window.end.astimezone(UTC))


def schedule(job: Any, cron: str, **options: Any) -> dg.ScheduleDefinition:
    """The job at these times in UTC, switched on from the start."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule=cron, default_status=dg.DefaultScheduleStatus.RUNNING, **options
    )


class Registry(Protocol):
    """What is needed to ask for leases; a `PlatformContext` has it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def database(self) -> Database: ...


def drainer(registry: Registry) -> LeaseRecord | None:
    """Who drains now: a run of Dagster's, or an `onex pipeline run`."""
    name = draining_lease(REGISTRATION_DOMAIN)
    leases = living(registry.database, name)
    return next((lease for lease in leases if lease.taken_at is not None), None)


def drained_by(instance: dg.DagsterInstance, registry: Registry) -> str | None:
    """Who drains, or is about to: one sentence."""
    if (holder := drainer(registry)) is not None:
        return f"The registry is drained by {holder.owner}."
    is_kept = registry.settings.pipeline.warm_runs and not pause_after_failures(
        instance, DRAINING_JOB
    )
    if is_kept or runs_in_flight(instance, registry, DRAINING_JOB):
        return f"A run of {DRAINING_JOB} is about to drain."
    return None


def runs_in_flight(
    instance: dg.DagsterInstance, registry: Registry, job_name: str
) -> list[dg.DagsterRun]:
    """The runs of a job that are queued or running; dead ones are reported as failed first.

    Of these jobs every run claims a lease when it starts, so one without a lease is dead as well,
    after a while.
    """
    runs = instance.get_run_records(dg.RunsFilter(job_name=job_name, statuses=_IN_FLIGHT))
    dead = _end_dead(instance, registry, runs, claim_at_once=True)
    return [record.dagster_run for record in runs if record.dagster_run.run_id not in dead]


def end_dead_runs(instance: dg.DagsterInstance, registry: Registry) -> list[str]:
    """Report every run as failed whose lease has expired; their ids.

    A run that never claimed one may be somebody else's and is left alone.
    """
    runs = instance.get_run_records(dg.RunsFilter(statuses=_IN_FLIGHT))
    dead = _end_dead(instance, registry, runs, claim_at_once=False)
    # Of those, Dagster knew already that they are over; or they are none of its runs.
    end_forgotten(registry.database, _FORGOTTEN)
    return sorted(dead)


def _end_dead(
    instance: dg.DagsterInstance,
    registry: Registry,
    records: Sequence[dg.RunRecord],
    *,
    claim_at_once: bool,
) -> set[str]:
    launched = [r for r in records if r.dagster_run.status is not dg.DagsterRunStatus.QUEUED]
    ids = [record.dagster_run.run_id for record in launched]
    leases = leases_of_runs(registry.database, ids)
    dead = set()
    for record in launched:
        run, own = record.dagster_run, leases[record.dagster_run.run_id]
        if any(lease.lives for lease in own) or not (own or claim_at_once):
            continue
        reason = _death(registry, run.run_id, own, record.update_timestamp)
        if reason is not None:
            _report_death(instance, run, reason)
            dead.add(run.run_id)
    return dead


def _death(
    registry: Registry, run_id: str, leases: Sequence[LeaseRecord], updated_at: datetime
) -> str | None:
    """Why a run is dead none of whose leases lives; None: it begins, ends, or has just renewed."""
    lost = [lease for lease in leases if lease.ending in (None, "expired")]
    if lost:
        is_open = any(lease.ended_at is None for lease in lost)
        if is_open and not end_expired(registry.database, run_id):
            return None
        last = lost[-1]
        return f"{last.owner} has not renewed its lease since {last.expires_at:%H:%M:%S} UTC."
    moments = [lease.ended_at for lease in leases if lease.ended_at is not None]
    since, patience = max(moments, default=updated_at), registry.settings.pipeline.start_seconds
    if datetime.now(UTC) - since <= timedelta(seconds=patience):
        return None
    what = "given its lease back and not ended" if leases else "been launched and claimed no lease"
    return f"it has {what} for {patience:g} s."


def _report_death(instance: dg.DagsterInstance, run: dg.DagsterRun, reason: str) -> None:
    """Tell Dagster that a run is over, so that its slots are free and its end is seen."""
    now = instance.get_run_by_id(run.run_id)
    if now is None or now.is_finished:
        return
    instance.add_run_tags(run.run_id, {DEAD_TAG: reason})
    if now.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(now, f"Cancelled; then its process died: {reason}")
    else:
        instance.report_run_failed(now, f"The run is dead: {reason}")
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def reason_to_wait(instance: dg.DagsterInstance, registry: Registry, job_name: str) -> str | None:
    """Why the job should not be started now: a run is in flight, or the last ones have failed."""
    if runs_in_flight(instance, registry, job_name):
        return f"A run of {job_name} is in flight."
    return pause_after_failures(instance, job_name)


def pause_after_failures(instance: dg.DagsterInstance, job_name: str) -> str | None:
    """Why the job should not be started so soon after its last runs failed.

    One failure may be an accident: the next run starts at once. From the second in a row on the
    pause doubles, so that a fault that stays does not become a storm of runs. Nothing is
    remembered: the runs themselves say all of it.
    """
    records = instance.get_run_records(dg.RunsFilter(job_name=job_name), limit=_RUNS_LOOKED_AT)
    # Of a process that died, nobody knows that it failed.
    ended = [
        record
        for record in records
        if record.dagster_run.is_finished and DEAD_TAG not in record.dagster_run.tags
    ]
    failures = 0
    for record in ended:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    if failures < _FREE_FAILURES + 1:
        return None
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (failures - _FREE_FAILURES - 1), _LONGEST_PAUSE_SECONDS)
    left = pause - (datetime.now(UTC) - ended[0].update_timestamp).total_seconds()
    if left <= 0:
        return None
    return f"{failures} runs of {job_name} failed in a row; the next may start in {left:.0f} s."

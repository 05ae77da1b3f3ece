"""What the stations' wiring shares: names in the asset graph, partitions, and when a run may start.

Stations don't import each other's `defs`; whatever they must agree on in Dagster's terms is here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from onex_platform.settings import Settings

EVENT_PAGES = dg.AssetKey("event_pages")
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

_FIRST_PAUSE_SECONDS = 15
_LONGEST_PAUSE_SECONDS = 120
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


def schedule(job: Any, cron: str, **options: Any) -> dg.ScheduleDefinition:
    """The job at these times in UTC, switched on from the start."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule=cron, default_status=dg.DefaultScheduleStatus.RUNNING, **options
    )


def is_in_flight(instance: dg.DagsterInstance, job_name: str) -> bool:
    """Whether a run of the job is queued or running."""
    return bool(
        instance.get_run_ids(dg.RunsFilter(job_name=job_name, statuses=_IN_FLIGHT), limit=1)
    )


def reason_to_wait(instance: dg.DagsterInstance, job_name: str) -> str | None:
    """Why the job should not be started now: a run is in flight, or the last ones have failed.

    The pause doubles with each failure in a row, so that a fault that stays does not become a
    storm of runs. Nothing is remembered: the runs themselves say all of it.
    """
    records = instance.get_run_records(dg.RunsFilter(job_name=job_name), limit=_RUNS_LOOKED_AT)
    if is_in_flight(instance, job_name):
        return f"A run of {job_name} is in flight."
    failures = 0
    for record in records:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    if not failures:
        return None
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
    left = pause - (datetime.now(UTC) - records[0].update_timestamp).total_seconds()
    if left <= 0:
        return None
    return f"{failures} runs of {job_name} failed in a row; the next may start in {left:.0f} s."

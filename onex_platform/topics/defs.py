"""Topics in the asset graph: each contract as an external asset, and failed runs as events.

The platform neither owns the brokers nor runs them, so a topic is never materialised here; it is
the end of a line that other assets begin from. The key holds the topic's name, which is the same in
every environment.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import dagster as dg

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform.topics.alarms import Alarm, raise_alarms
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract

_GROUP = "topics"
_ALARMS_PER_TICK = 50
# A sensor that lost its place goes back so far; a failure that is told twice is one event.
_LOOK_BACK = timedelta(hours=1)


def build_definitions(catalogue: Catalogue) -> dg.Definitions:
    return dg.Definitions(
        assets=[_external_asset(contract) for contract in catalogue],
        sensors=[_failure_sensor(catalogue)],
    )


def _external_asset(contract: TopicContract) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=wiring.topic_key(contract.topic),
        # What the relay writes to: the line from the rows to their topic is in the graph.
        deps=[wiring.REGISTRATION_SNAPSHOTS] if contract.snapshot_of else [],
        group_name=_GROUP,
        kinds={"kafka"},
        owners=[f"team:{contract.owner}"],
        tags={"onex/category": contract.category.value},
        description="\n\n".join(filter(None, (contract.description, contract.warning))),
        metadata={
            "message key": contract.key,
            "partitions": contract.partitions,
            "retention": str(contract.retention or "unlimited"),
            "cleanup policy": contract.cleanup_policy,
            "timestamps": contract.timestamp_type,
            "direction": contract.direction,
            "producers": ", ".join(contract.producers),
            "consumers": ", ".join(contract.consumers),
        },
    )


def _failure_sensor(catalogue: Catalogue) -> dg.SensorDefinition:
    @dg.sensor(
        name="publish_failures",
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def publish_failures(
        context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings]
    ) -> dg.SensorResult | dg.SkipReason:
        """Publish each failed run as an event, without secrets.

        Dagster's own failure sensors move on when they fail themselves. This one moves on when
        the broker has acknowledged: it is when servers fail that runs do.
        """
        failures = context.instance.fetch_run_status_changes(
            _after(context.cursor), limit=_ALARMS_PER_TICK, ascending=True
        ).records
        if not failures:
            return dg.SkipReason("No run has failed.")
        raise_alarms(settings, catalogue, list(map(_alarm, failures)))
        return dg.SensorResult(cursor=str(failures[-1].storage_id))

    return publish_failures


def _after(cursor: str | None) -> dg.RunStatusChangeRecordsFilter:
    if cursor is not None and cursor.isdecimal():
        return dg.RunStatusChangeRecordsFilter(
            dg.DagsterEventType.RUN_FAILURE, after_storage_id=int(cursor)
        )
    since = datetime.now(UTC) - _LOOK_BACK
    return dg.RunStatusChangeRecordsFilter(
        dg.DagsterEventType.RUN_FAILURE, after_timestamp=since.timestamp()
    )


def _alarm(record: dg.EventLogRecord) -> Alarm:
    entry = record.event_log_entry
    # A run that was reported as failed from outside has no data of its own.
    event = entry.get_dagster_event()
    failure = event.job_failure_data if event.event_specific_data else None
    step = failure.first_step_failure_event if failure else None
    error = step.step_failure_data.error if step else failure.error if failure else None
    while error and error.cause and (error.cls_name or "").startswith("Dagster"):
        error = error.cause  # Dagster's wrapping says less than what it wraps
    return Alarm(
        correlation_id=UUID(entry.run_id),
        error=(error and error.cls_name) or "RunFailure",
        message=error.message.strip() if error else event.message or entry.user_message,
        operation=entry.job_name or "",
        occurred_at=datetime.fromtimestamp(record.timestamp, UTC),
        context={"run_id": entry.run_id, "job": entry.job_name, "step": step and step.step_key},
    )

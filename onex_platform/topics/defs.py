"""Topics in the asset graph: each contract as an external asset, and runs as events.

The platform neither owns the brokers nor runs them, so a topic is never materialised here; it is
the end of a line that other assets begin from. The key holds the topic's name, which is the same in
every environment.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import dagster as dg

from onex_platform import wiring
from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import WorkflowFailedPayload, WorkflowPayload
from onex_platform.topics.alarms import Alarm, error_code, signal_of, told
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.contract import TopicContract
from onex_platform.topics.signals import Published, Signal, publish_signals

_GROUP = "topics"
CHANGES_PER_TICK = 50
# What Dagster notes of a run, and the event that others read; one ended by hand did not complete.
_WORKFLOW_KINDS = {
    dg.DagsterEventType.RUN_START: EnumEventKind.WORKFLOW_STARTED,
    dg.DagsterEventType.RUN_SUCCESS: EnumEventKind.WORKFLOW_COMPLETED,
    dg.DagsterEventType.RUN_FAILURE: EnumEventKind.WORKFLOW_FAILED,
    dg.DagsterEventType.RUN_CANCELED: EnumEventKind.WORKFLOW_FAILED,
}
_NAMELESS = {
    dg.DagsterEventType.RUN_FAILURE: "RunFailure",
    dg.DagsterEventType.RUN_CANCELED: "RunCanceled",
}
# A sensor that lost its place goes back so far; what is told twice is one event.
_LOOK_BACK = timedelta(hours=1)


def build_definitions(catalogue: Catalogue) -> dg.Definitions:
    return dg.Definitions(
        assets=[_external_asset(contract) for contract in catalogue],
        sensors=[_run_sensor()],
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


def _run_sensor() -> dg.SensorDefinition:
    @dg.sensor(
        name="publish_runs",
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def publish_runs(
        context: dg.SensorEvaluationContext,
        settings: dg.ResourceParam[Settings],
        published: dg.ResourceParam[Published],
    ) -> dg.SensorResult | dg.SkipReason:
        """Publish how runs begin and end, as events of workflows; a failure also as an error.

        Dagster's own status sensors move on when they fail themselves. This one moves on when the
        broker has acknowledged: it is when servers fail that runs do.
        """
        changes = _changes(context.instance, context.cursor)
        if not changes:
            return dg.SkipReason("No run has begun or ended.")
        signals = [signal for change in changes for signal in _signals(change)]
        with published() as catalogue:
            publish_signals(settings, catalogue, signals)
        return dg.SensorResult(cursor=str(changes[-1].storage_id))

    return publish_runs


def _changes(instance: dg.DagsterInstance, cursor: str | None) -> list[dg.EventLogRecord]:
    """The next changes of runs, in their order.

    Dagster answers for one kind at a time. What lies behind the last change of a kind that has more
    of them waits for the next look.
    """
    by_kind = [
        instance.fetch_run_status_changes(
            _after(kind, cursor), limit=CHANGES_PER_TICK, ascending=True
        ).records
        for kind in _WORKFLOW_KINDS
    ]
    full = [found[-1].storage_id for found in by_kind if len(found) == CHANGES_PER_TICK]
    changes = sorted((change for found in by_kind for change in found), key=_place)
    return [change for change in changes if not full or change.storage_id <= min(full)]


def _place(change: dg.EventLogRecord) -> int:
    return change.storage_id


def _after(kind: Any, cursor: str | None) -> dg.RunStatusChangeRecordsFilter:
    if cursor is not None and cursor.isdecimal():
        return dg.RunStatusChangeRecordsFilter(kind, after_storage_id=int(cursor))
    since = datetime.now(UTC) - _LOOK_BACK
    return dg.RunStatusChangeRecordsFilter(kind, after_timestamp=since.timestamp())


def _signals(change: dg.EventLogRecord) -> Iterator[Signal]:
    """A change as others read it."""
    entry = change.event_log_entry
    dagster_kind = entry.get_dagster_event().event_type
    kind = _WORKFLOW_KINDS[dagster_kind]
    payload: WorkflowPayload = WorkflowPayload(
        workflow_id=entry.run_id, workflow_name=entry.job_name
    )
    if kind is EnumEventKind.WORKFLOW_FAILED:
        alarm = _alarm(change)
        payload = WorkflowFailedPayload(
            workflow_id=entry.run_id,
            workflow_name=entry.job_name,
            error_code=error_code(alarm.error),
            error_message=told(alarm.message),
        )
        if dagster_kind is dg.DagsterEventType.RUN_FAILURE:
            yield signal_of(alarm)
    run_id = UUID(entry.run_id)
    yield Signal(
        kind=kind,
        key=entry.run_id,
        event_id=uuid5(run_id, kind.event_type),
        correlation_id=run_id,
        occurred_at=datetime.fromtimestamp(change.timestamp, UTC),
        payload=payload,
    )


def _alarm(record: dg.EventLogRecord) -> Alarm:
    entry = record.event_log_entry
    # A run that was reported as failed from outside has no data of its own.
    event = entry.get_dagster_event()
    is_told = event.event_type is dg.DagsterEventType.RUN_FAILURE and event.event_specific_data
    failure = event.job_failure_data if is_told else None
    step = failure.first_step_failure_event if failure else None
    error = step.step_failure_data.error if step else failure.error if failure else None
    while error and error.cause and (error.cls_name or "").startswith("Dagster"):
        error = error.cause  # Dagster's wrapping says less than what it wraps
    return Alarm(
        correlation_id=UUID(entry.run_id),
        error=(error and error.cls_name) or _NAMELESS[event.event_type],
        message=error.message.strip() if error else event.message or entry.user_message,
        operation=entry.job_name or "",
        occurred_at=datetime.fromtimestamp(record.timestamp, UTC),
        context={"run_id": entry.run_id, "job": entry.job_name, "step": step and step.step_key},
    )

"""The platform's graph for tests: built from a test's settings, run in this process."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import dagster as dg
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from onex_platform.base.settings import PipelineSettings, Settings
from onex_platform.definitions import build_definitions
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import describe
from onex_platform.stack.processes import wait_until


class Graph:
    """The definitions of one test, and the instance that its runs are recorded in."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        # A test waits for nothing that it has not sent.
        pipeline = PipelineSettings(linger_seconds=0.2, poll_seconds=0.1)
        self.settings = settings.model_copy(update={"pipeline": pipeline})
        self.definitions = build_definitions(settings=self.settings)
        self.instance = instance

    def run(self, job: str, **arguments: Any) -> dg.ExecuteInProcessResult:
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, **arguments
        )

    def materialize(self, key: dg.AssetKey, **arguments: Any) -> dg.ExecuteInProcessResult:
        """As the button in the web interface does it, checks included."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        selected = job.get_subset(
            asset_selection={key},
            asset_check_selection={
                check
                for check in self.definitions.resolve_asset_graph().asset_check_keys
                if check.asset_key == key
            },
        )
        return selected.execute_in_process(instance=self.instance, **arguments)

    def tick(self, sensor: str, cursor: str | None = None) -> Any:
        """What one evaluation of a sensor wants done; its resources are opened and closed."""
        definition = self.definitions.resolve_sensor_def(sensor)
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources=self.definitions.resources,
        ) as context:
            return definition.evaluate_tick(context)


def numbers(metadata: Any) -> dict[str, Any]:
    """Metadata as plain values."""
    return {name: value.value for name, value in metadata.items()}


def partition_range(first: datetime, last: datetime) -> dict[str, str]:
    """The tags of a run that a backfill starts for a range of hours."""
    return {
        "dagster/asset_partition_range_start": hour_key(first),
        "dagster/asset_partition_range_end": hour_key(last),
    }


def hour_key(hour: datetime) -> str:
    return hour.strftime("%Y-%m-%d-%H:00")


def hours_ago(now: datetime, count: int) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=count)


def keep_senders_times(settings: Settings, topic: str) -> None:
    """Let records keep the time they are sent with, so that a test can fill hours that are over."""
    name, kind = "message.timestamp.type", "CreateTime"
    entry = ConfigEntry(name, kind, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    with open_admin(settings) as admin:
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(timeout=10)
        assert wait_until(lambda: describe(admin, [topic])[topic].config[name] == kind, 10)

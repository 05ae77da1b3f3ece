"""Backfills as Dagster's web interface launches them and its daemon carries them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dagster as dg
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import InProcessTestWorkspaceLoadTarget
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon
from dagster_graphql.schema import create_schema

_LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    ... on LaunchBackfillSuccess { backfillId }
    ... on Error { message }
  }
}
"""


class Backfills:
    """The platform's code location, and the instance that backfills of it are recorded in."""

    def __init__(self, workspace: WorkspaceProcessContext) -> None:
        self._workspace = workspace
        self.instance = workspace.instance

    def launch(self, keys: Sequence[dg.AssetKey], first: str, last: str) -> dict[str, str]:
        """Select a range of hours of each asset; Dagster's answer: an id, or a message."""
        hours = {"range": {"start": first, "end": last}}
        selected = [{"assetKey": {"path": key.path}, "partitions": hours} for key in keys]
        answer = asyncio.run(
            create_schema().execute_async(
                _LAUNCH,
                context_value=self._workspace.create_request_context(),
                variable_values={"params": {"partitionsByAssets": selected}},
            )
        )
        assert answer.errors is None
        launched: dict[str, str] = answer.data["launchPartitionBackfill"]
        return launched

    def carry_out(self, backfill_id: str) -> PartitionBackfill:
        """Iterate as the daemons of backfills and of the run queue do, until it has ended."""
        backfill = self._known(backfill_id)
        while backfill.backfill_end_timestamp is None:
            list(execute_backfill_iteration(self._workspace, logging.getLogger(__name__)))
            list(QueuedRunCoordinatorDaemon(interval_seconds=1).run_iteration(self._workspace))
            backfill = self._known(backfill_id)
        return backfill

    def _known(self, backfill_id: str) -> PartitionBackfill:
        found = self.instance.get_backfill(backfill_id)
        assert found is not None
        return found


@contextmanager
def open_backfills() -> Iterator[Backfills]:
    """The code location of this process's environment; runs are executed in this process."""
    target = LoadableTargetOrigin(module_name="onex_platform.definitions", attribute="defs")
    with (
        dg.instance_for_test(synchronous_run_launcher=True) as instance,
        WorkspaceProcessContext(
            instance, InProcessTestWorkspaceLoadTarget(InProcessCodeLocationOrigin(target))
        ) as workspace,
    ):
        yield Backfills(workspace)

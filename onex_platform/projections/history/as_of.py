"""What was the state then: the nearest earlier hour's end state, and the log from there on.

One node is folded here, from its bucket alone; the fleet on Spark, without nodes that raise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from onex_platform.base.errors import OnexError
from onex_platform.domain.identity import CANARY_ID
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.ingest.event_schema import bucket_of
from onex_platform.log.page_log import PageLog
from onex_platform.projections.fold.column_fold import BucketFold
from onex_platform.projections.fold.refold import (
    ReplayJob,
    Scope,
    by_bucket,
    plan_replay,
    replay_bucket,
    rows_of,
    tasks_for,
)
from onex_platform.projections.fold.row_columns import STATE_SCHEMA, to_projection
from onex_platform.projections.history.hourly_states import known_position, nearest_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NotFoldedError(OnexError):
    """The code raises for this node: what its state was can't be told."""


def node_as_of(
    log: PageLog, moment: datetime, entity_id: UUID
) -> ModelRegistrationProjection | None:
    """A node's row as it was at a moment, deregistered or not; None if it was unknown then."""
    end = known_position(log, moment)
    base = nearest_state(log, end)
    scope = Scope(nodes=frozenset({entity_id}))
    job = plan_replay(log, base.position, end, base=base, scope=scope)
    bucket = bucket_of(entity_id.bytes, log.buckets)
    replayed = replay_bucket(job, bucket, rows_of, {entity_id.bytes})
    for fault in replayed.faults.values():
        raise NotFoldedError(
            f"The events of node {entity_id} can't be folded: {fault.error}",
            hint="Its events are in the log. With code that can fold them, run "
            f"`onex registry rebuild --node {entity_id}`.",
        )
    return next(iter(replayed.rendered), None)


def fleet_as_of(spark: SparkSession, log: PageLog, moment: datetime) -> DataFrame:
    """Every row that users see as it was at a moment, deregistered nodes included."""
    end = known_position(log, moment)
    base = nearest_state(log, end)
    job = plan_replay(log, base.position, end, base=base, spark=spark)
    rows = state_frame(spark, job, tasks_for(log, job.size))
    return rows.where(rows.entity_id != bytearray(CANARY_ID.bytes))


def state_frame(spark: SparkSession, job: ReplayJob, tasks: int) -> DataFrame:
    """Every row at the end of a replay."""

    def fold(_: int, buckets: list[int]) -> Iterator[pa.RecordBatch]:
        for bucket in buckets:
            yield from replay_bucket(job, bucket, BucketFold.table).rendered.to_batches()

    return by_bucket(spark, job.buckets, tasks, fold, STATE_SCHEMA)


def iter_fleet(frame: DataFrame) -> Iterator[ModelRegistrationProjection]:
    """The rows of a fleet's frame, one by one: memory stays that of a partition."""
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield to_projection(row.asDict())


def count_by_state(frame: DataFrame) -> Counter[EnumRegistrationState]:
    """How many nodes were in each state, without the deregistered ones, counted on Spark."""
    open_rows = frame.where("deregistered_at IS NULL")
    counts = open_rows.groupBy("current_state").count().collect()
    return Counter({EnumRegistrationState(row[0]): row[1] for row in counts})

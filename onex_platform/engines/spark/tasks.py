"""Tasks on Spark: functions over Arrow's batches, and the schema of what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def run_here(task: ArrowTask, batches: Iterable[pa.RecordBatch]) -> list[Any]:
    """What a task returns that runs in this process, as Spark's `collect` would hand it over."""
    from pyspark.sql import Row

    return [Row(**row) for batch in task(batches) for row in batch.to_pylist()]


def spark_type(schema: pa.Schema) -> Any:
    """The schema that Spark is told a task returns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)

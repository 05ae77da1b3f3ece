"""The daemon of Spark's Python workers, with everything imported that the platform's tasks use.

`spark.python.daemon.module` names this module.
"""

from __future__ import annotations

from onex_platform.engines.spark.worker import serve

USED_BY_TASKS = (
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "onex_platform.log.compaction.compact",
    "onex_platform.projections.fold.reducer",
    "onex_platform.projections.rebuild.rebuild",
)

if __name__ == "__main__":
    serve(USED_BY_TASKS)

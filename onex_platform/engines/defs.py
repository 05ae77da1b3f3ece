"""Dagster's way to Spark: one session per run, from the settings, closed when the run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform.engines.spark import open_session, spark_properties
from onex_platform.settings import Settings


def spark_resource(connectors: Callable[[Settings], Iterable[Path]]) -> dg.ResourceDefinition:
    """dagster-pyspark's resource: in this process, on a master or on a Connect server, by setting.

    Steps of a run share the session, since runs are executed in one process. A session that was
    there before is used and left running. `connectors` finds the jars, if there is a use for them.
    """

    @dg.resource(required_resource_keys={"settings"}, description=spark_resource.__doc__)
    def spark(context: dg.InitResourceContext) -> Iterator[PySparkResource]:
        settings: Settings = context.resources.settings
        # A Connect server was started with jars of its own.
        jars = [] if settings.spark.remote else [str(jar) for jar in connectors(settings)]
        with open_session(settings, jars):
            pyspark = PySparkResource(spark_config=spark_properties(settings, jars))
            pyspark.setup_for_execution(context)
            yield pyspark

    return spark

"""Dagster's way to Spark and to leases: one of each per run, from the settings, ended with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dagster as dg
from dagster_pyspark import PySparkResource

from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.leases import Presence, open_keeper
from onex_platform.engines.spark.session import open_session, spark_properties


@dg.resource(required_resource_keys={"settings"})
def presence(context: dg.InitResourceContext) -> Iterator[Presence | None]:
    """The run's lease, claimed before anything else and renewed until the run ends."""
    run = context.run
    if run is None:
        yield None
        return
    with open_keeper(context.resources.settings) as keeper:
        yield Presence(keeper, keeper.claim(run.job_name, exclusive=False, run_id=run.run_id))


def spark_resource(connectors: Callable[[Settings], Iterable[Path]]) -> dg.ResourceDefinition:
    """dagster-pyspark's resource: in this process, on a master or on a Connect server, by setting.

    Steps of a run share the session, since runs are executed in one process. A session that was
    there before is used and left running. `connectors` finds the jars, if there is a use for them.
    """

    @dg.resource(
        required_resource_keys={"settings", "presence"}, description=spark_resource.__doc__
    )
    def spark(context: dg.InitResourceContext) -> Iterator[PySparkResource]:
        settings: Settings = context.resources.settings
        # A Connect server was started with jars of its own.
        jars = [] if settings.spark.remote else [str(jar) for jar in connectors(settings)]
        with open_session(settings, jars):
            pyspark = PySparkResource(spark_config=spark_properties(settings, jars))
            pyspark.setup_for_execution(context)
            yield pyspark

    return spark

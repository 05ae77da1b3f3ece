"""The only entry point of Dagster: the stations, put together.

`build_definitions` makes everything from arguments, so that a test swaps one part and keeps the
rest. `defs` is what Dagster loads; nothing is read or made before it is called.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

import dagster as dg

from onex_platform import stack
from onex_platform.base.settings import INTERNAL_ENVIRONMENTS, Settings, load_settings
from onex_platform.base.telemetry import configure_logging, hide_hosts
from onex_platform.capture import defs as capture
from onex_platform.deadlines import defs as deadlines
from onex_platform.engines import defs as engines
from onex_platform.governance import defs as governance
from onex_platform.ingest import defs as pages
from onex_platform.pipeline import defs as pipeline
from onex_platform.projections import defs as projections
from onex_platform.snapshots import defs as snapshots
from onex_platform.topics import defs as topics
from onex_platform.topics.catalogue import (
    Catalogue,
    load_catalogue,
    require_ledger_beyond_retention,
)


def build_definitions(
    *,
    settings: Settings | None = None,
    catalogue: Catalogue | None = None,
    resources: Mapping[str, object] | None = None,
) -> dg.Definitions:
    """The whole graph; an argument replaces the platform's own part of that name."""
    settings = load_settings() if settings is None else settings
    catalogue = load_catalogue() if catalogue is None else catalogue
    require_ledger_beyond_retention(catalogue, settings.registration.ledger_days)
    own = {
        "settings": settings,
        "presence": engines.presence,
        "spark": engines.spark_resource(stack.spark_jars),
        "archive": pages.archive_resource(catalogue),
    }
    return dg.Definitions.merge(
        dg.Definitions(
            resources=own | dict(resources or {}),
            # One process per run: its steps share a Spark session instead of starting one each.
            executor=dg.in_process_executor,
        ),
        topics.build_definitions(catalogue),
        governance.build_definitions(),
        pages.build_definitions(settings, catalogue),
        capture.build_definitions(settings),
        projections.build_definitions(settings),
        deadlines.build_definitions(),
        snapshots.build_definitions(),
        pipeline.build_definitions(settings),
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What a code location serves: the graph as this process's environment describes it.

    Addresses that are not set are those of the embedded stack, if it runs.
    """
    settings = stack.attach(load_settings(), services=())
    configure_logging(settings.log.level, settings.log.style)
    hide_hosts(settings.environment not in INTERNAL_ENVIRONMENTS)
    # Dagster prints its own records; ours must not repeat them.
    logging.getLogger("dagster").propagate = False
    # The release is pinned: what may change in the next one is read when that is moved to.
    warnings.simplefilter("ignore", dg.BetaWarning)
    return build_definitions(settings=settings)

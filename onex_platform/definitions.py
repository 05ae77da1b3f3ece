"""The only entry point of Dagster: the stations, put together.

`build_definitions` makes everything from arguments, so that a test swaps one part and keeps the
rest. `defs` is what Dagster loads; nothing is read or made before it is called.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from functools import partial

import dagster as dg

from onex_platform import stack
from onex_platform.base.settings import INTERNAL_ENVIRONMENTS, Settings, load_settings
from onex_platform.base.telemetry import configure_logging, hide_hosts
from onex_platform.capture import defs as capture
from onex_platform.context import PlatformContext, open_platform
from onex_platform.deadlines import defs as deadlines
from onex_platform.engines import defs as engines
from onex_platform.governance import defs as governance
from onex_platform.health import defs as health
from onex_platform.health.canaries import defs as canaries
from onex_platform.ingest import defs as pages
from onex_platform.migration.present import catalogue_now
from onex_platform.migration.publication import published
from onex_platform.pipeline import defs as pipeline
from onex_platform.projections import defs as projections
from onex_platform.snapshots import defs as snapshots
from onex_platform.topics import defs as topics
from onex_platform.topics.catalogue import (
    Catalogue,
    load_catalogue,
    load_whole_catalogue,
    require_ledger_beyond_retention,
)
from onex_platform.topics.signals import Published


def build_definitions(
    *,
    settings: Settings | None = None,
    catalogue: Catalogue | None = None,
    resources: Mapping[str, object] | None = None,
) -> dg.Definitions:
    """The whole graph; an argument replaces the platform's own part of that name."""
    settings = load_settings() if settings is None else settings
    governed = load_whole_catalogue() if catalogue is None else catalogue
    catalogue = load_catalogue() if catalogue is None else catalogue
    require_ledger_beyond_retention(catalogue, settings.registration.ledger_days)
    own = {
        "settings": settings,
        "presence": engines.presence,
        "spark": engines.spark_resource(stack.spark_jars),
        "platform": _platform_resource(catalogue),
        "published": _published_resource(governed),
        "log": pages.log,
        "archive": pages.archive,
    }
    return dg.Definitions.merge(
        dg.Definitions(
            resources=own | dict(resources or {}),
            # One process per run: its steps share a Spark session instead of starting one each.
            executor=dg.in_process_executor,
        ),
        topics.build_definitions(catalogue),
        governance.build_definitions(governed, catalogue_now),
        pages.build_definitions(settings, catalogue, governed),
        capture.build_definitions(settings),
        projections.build_definitions(settings),
        deadlines.build_definitions(),
        snapshots.build_definitions(),
        pipeline.build_definitions(settings),
        health.build_definitions(),
        canaries.build_definitions(governed),
    )


def _platform_resource(catalogue: Catalogue) -> dg.ResourceDefinition:
    @dg.resource(required_resource_keys={"settings", "presence"})
    def platform(context: dg.InitResourceContext) -> Iterator[PlatformContext]:
        """What every station works with, opened for a run or for a tick; a run that lost its
        lease can't write."""
        presence = context.resources.presence
        with open_platform(context.resources.settings, catalogue) as opened:
            yield opened if presence is None else opened.fenced(presence.lease.fence)

    return platform


def _published_resource(catalogue: Catalogue) -> dg.ResourceDefinition:
    @dg.resource(required_resource_keys={"platform"})
    def publication(context: dg.InitResourceContext) -> Published:
        """The topics to publish to, as far as they have moved by then."""
        return partial(published, context.resources.platform.database, catalogue)

    return publication


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

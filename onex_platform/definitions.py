"""The only entry point of Dagster: the stations, put together.

`build_definitions` makes everything from arguments, so that a test swaps one part and keeps the
rest. `defs` is what Dagster loads; nothing is read or made before it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import dagster as dg

from onex_platform.settings import Settings, load_settings
from onex_platform.telemetry import configure_logging
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
    return dg.Definitions.merge(
        dg.Definitions(resources={"settings": settings, **(resources or {})}),
        topics.build_definitions(catalogue),
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What a code location serves: the graph as this process's environment describes it."""
    settings = load_settings()
    configure_logging(settings.log.level, settings.log.style)
    # Dagster prints its own records; ours must not repeat them.
    logging.getLogger("dagster").propagate = False
    return build_definitions(settings=settings)

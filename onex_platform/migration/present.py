"""The catalogue as of now: what is listed, created and read follows how far topics have moved.

Whoever lives long asks again where it matters: a topic may be retired while it works.
"""

from __future__ import annotations

from dataclasses import replace

from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext
from onex_platform.engines.postgres.database import open_database
from onex_platform.migration.phase_table import phases, phases_are_kept
from onex_platform.topics.catalogue import Catalogue


def catalogue_now(settings: Settings, catalogue: Catalogue) -> Catalogue:
    """The catalogue at the phases of the settings' database; as its files say if there is none, or
    none yet with tables: no move can have begun there.

    A database that is named and does not answer is an error. Without its word a topic that was
    retired would be made anew.
    """
    if settings.postgres.url is None:
        return catalogue
    with open_database(settings) as database, database.transaction() as cursor:
        return catalogue.at(phases(cursor)) if phases_are_kept(cursor) else catalogue


def platform_now(platform: PlatformContext) -> PlatformContext:
    """The platform with its topics moved as far as their phases say; one query."""
    with platform.database.transaction() as cursor:
        return replace(platform, catalogue=platform.catalogue.at(phases(cursor)))

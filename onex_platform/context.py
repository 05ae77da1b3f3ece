"""What every station works with, opened once where a program begins, and handed in from there.

Nothing that only one station uses belongs here: a log is opened on top of it, and so are the cuts
that fill one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import CANARY_TENANT, REGISTRATION_DOMAIN
from onex_platform.engines.kafka.topic_admin import KafkaSession
from onex_platform.engines.postgres.database import Database, Fence, open_database
from onex_platform.topics.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class PlatformContext:
    """The platform of one domain, as one process reaches it."""

    settings: Settings
    catalogue: Catalogue
    database: Database
    kafka: KafkaSession
    domain: str = REGISTRATION_DOMAIN

    def fenced(self, fence: Fence) -> PlatformContext:
        """The same, for somebody whose transactions may be refused at their end."""
        return replace(self, database=self.database.fenced(fence))


@contextmanager
def open_platform(
    settings: Settings, catalogue: Catalogue, domain: str = REGISTRATION_DOMAIN
) -> Iterator[PlatformContext]:
    """The platform that the settings name, for the block; nothing is connected yet."""
    if settings.tenant == CANARY_TENANT:
        raise ConfigurationError(
            f"ONEX_TENANT={CANARY_TENANT} is reserved for the platform's canary.",
            hint="Name the tenant whose events need not name one.",
        )
    with open_database(settings) as database, KafkaSession(settings) as kafka:
        yield PlatformContext(settings, catalogue, database, kafka, domain)

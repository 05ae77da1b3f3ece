"""What is published follows the phases: the catalogue as topics have moved, for whoever sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from onex_platform.base.errors import InfraConnectionError, InfraError, InfraUnavailableError
from onex_platform.engines.postgres.database import Database
from onex_platform.migration.phase_table import phases_to_publish_by
from onex_platform.topics.catalogue import Catalogue

# More than a sender needs. One that stops inside holds up a change of phase no longer.
_IDLE_SECONDS = 60.0
_AWAY = (InfraConnectionError, InfraUnavailableError)


@contextmanager
def published(database: Database, catalogue: Catalogue) -> Iterator[Catalogue]:
    """The catalogue, its topics moved as far as they are; during the block no phase changes.

    Kafka's failures pass through it without counting against PostgreSQL.
    """
    failure = None
    with database.transaction(idle_seconds=_IDLE_SECONDS) as cursor:
        moved = catalogue.at(phases_to_publish_by(cursor))
        try:
            yield moved
        except InfraError as error:
            failure = error
    if failure is not None:
        raise failure


class LastPublished:
    """`published` for whoever has to tell that PostgreSQL is away, too.

    While it is, topics are as they were when it was last asked: nobody changes a phase without it.
    """

    def __init__(self, database: Database, catalogue: Catalogue) -> None:
        self._database = database
        self._catalogue = catalogue

    @contextmanager
    def __call__(self) -> Iterator[Catalogue]:
        with ExitStack() as asked:
            with suppress(*_AWAY):
                self._catalogue = asked.enter_context(published(self._database, self._catalogue))
            yield self._catalogue

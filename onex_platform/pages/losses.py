"""Losses: records that the broker deleted before they were archived, found and accepted.

Ingest stops at a loss and names it (`RecordsLostError`); only an operator may go on without the
records. What was given up stays on record: it closes the gap in the account of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from onex_platform.engines.kafka import open_consumer
from onex_platform.engines.postgres import transaction
from onex_platform.errors import OnexError
from onex_platform.pages.archive import PageArchive, input_topics
from onex_platform.pages.cursors import CursorMove, move_consumer_cursors
from onex_platform.pages.cuts import OffsetRange, Place, lost_ranges


class RivalReaderError(OnexError):
    """Reading went on elsewhere; nothing was accepted."""


def find_losses(archive: PageArchive) -> dict[Place, OffsetRange]:
    """What comes next for the archive, but is no longer on the broker."""
    with open_consumer(archive.settings) as consumer:
        return lost_ranges(consumer, input_topics(), archive.index.cursors())


def accept_losses(archive: PageArchive, lost: Mapping[Place, OffsetRange]) -> None:
    """Let reading go on behind the losses, and keep them on record, in one transaction."""
    moves = (CursorMove(*place, span.start, span.end) for place, span in lost.items())
    with transaction(archive.engine, archive.breaker) as cursor:
        if not move_consumer_cursors(cursor, archive.domain, moves):
            raise RivalReaderError(
                "Reading went on while the losses were looked at.",
                hint="Nothing was changed; look again with `onex pages skip-lost`.",
            )
        cursor.executemany(
            "INSERT INTO lost_ranges (domain, topic, partition, start_offset, end_offset)"
            " VALUES (%s, %s, %s, %s, %s)",
            [(archive.domain, *place, *span) for place, span in lost.items()],
        )

"""Losses: records that the broker deleted before they were archived, found and accepted.

Ingest stops at a loss and names it (`RecordsLostError`); only an operator may go on without the
records. What was given up stays on record: it closes the gap in the account of offsets. If a
partition's offsets began anew, the account of the old ones is closed and a new one is opened; the
partition is read from its beginning, so that whatever it has is archived. What of that was archived
before is recognised by its id.
"""

from __future__ import annotations

from onex_platform.base.errors import OnexError
from onex_platform.context import PlatformContext
from onex_platform.engines.kafka.clients import open_consumer
from onex_platform.ingest.cuts.consistent_cut import Losses, find_lost
from onex_platform.ingest.inputs import input_ids, input_topics, next_offsets
from onex_platform.ingest.offsets import (
    CursorMove,
    CursorRestart,
    move_consumer_cursors,
    restart_consumer_cursors,
)
from onex_platform.migration.present import platform_now


class RivalReaderError(OnexError):
    """Reading went on elsewhere; nothing was accepted."""


def find_losses(platform: PlatformContext) -> Losses:
    """What comes next for the archive, but is no longer on the broker."""
    platform = platform_now(platform)
    ids = input_ids(platform)
    with open_consumer(platform.settings) as consumer:
        return find_lost(consumer, input_topics(platform.catalogue), next_offsets(platform), ids)


def accept_losses(platform: PlatformContext, lost: Losses) -> None:
    """Let reading go on behind the losses, and keep them on record, in one transaction."""
    moves = (CursorMove(*place, span.start, span.end) for place, span in lost.deleted.items())
    restarts = (
        CursorRestart(*place, restart.expected, restart.held.start, restart.topic_id)
        for place, restart in lost.restarted.items()
    )
    with platform.database.transaction() as cursor:
        if not (
            move_consumer_cursors(cursor, platform.domain, moves)
            and restart_consumer_cursors(cursor, platform.domain, restarts)
        ):
            raise RivalReaderError(
                "Reading went on while the losses were looked at.",
                hint="Nothing was changed; look again with `onex pages skip-lost`.",
            )
        cursor.executemany(
            "INSERT INTO lost_ranges"
            " (domain, topic, partition, generation, start_offset, end_offset)"
            " SELECT domain, topic, partition, generation, %s, %s FROM consumer_cursors"
            " WHERE domain = %s AND topic = %s AND partition = %s",
            [(*span, platform.domain, *place) for place, span in lost.deleted.items()],
        )

"""The whole topic from the rows: after it was deleted, or for a new version of it.

Rows go in the order of their ids, a batch at a time, so that the relay can publish in between. Each
batch is read when it is sent, so nothing here can put an old state over a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.transactions import Sent
from onex_platform.projections.snapshot_rows import RowState, read_rows_after
from onex_platform.snapshots.publish.topic_setup import ensure_topic
from onex_platform.snapshots.publish.writer import Publication, SnapshotWriter


def rebuild_topic(
    settings: Settings,
    writer: SnapshotWriter,
    on_progress: Callable[[int], None] = lambda records: None,
) -> Sent:
    """Make sure that the topic exists, and publish every row."""
    if writer.config.topic in writer.topics():  # else it was left, and must not be made anew
        ensure_topic(settings, writer.catalogue, writer.config)
    return publish_everything(settings, writer, on_progress)


def publish_everything(
    settings: Settings,
    writer: SnapshotWriter,
    on_progress: Callable[[int], None] = lambda records: None,
) -> Sent:
    """Publish every row of the domain, closed ones as tombstones."""
    limit = settings.snapshots.batch_records

    def publish_after(last: str, publication: Publication) -> tuple[Sent, str]:
        keys = [last]
        with read_rows_after(publication.cursor, writer.config.domain, last, limit) as rows:
            sent = publication.send(_noting_last_key(rows, keys))
        return sent, keys[0]

    published, last = Sent(0), str(UUID(int=0))
    while True:
        sent, last = writer.exclusively(partial(publish_after, last))
        published += sent
        on_progress(published.acknowledged)
        if sent.acknowledged + len(sent.too_large) < limit:
            return published


def _noting_last_key(rows: Iterable[RowState], keys: list[str]) -> Iterator[RowState]:
    for row in rows:
        keys[0] = row[0]
        yield row

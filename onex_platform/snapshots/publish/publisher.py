"""`SnapshotPublisherRegistration`: snapshots of single rows and of batches, and their removal.

A snapshot's version is the row's, and PostgreSQL has the last word on it: what is older than the
row is refused, whoever sends it and whenever it wakes up. Every call returns when the broker has
acknowledged, so nothing is left to flush in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from types import TracebackType
from typing import Self
from uuid import UUID

from confluent_kafka import Message

from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import (
    ModelRegistrationProjection,
    ModelRegistrationSnapshot,
)
from onex_platform.engines.kafka.clients import read_to_end, written_positions
from onex_platform.engines.postgres.database import Database
from onex_platform.projections.snapshot_rows import RowState, read_rows
from onex_platform.snapshots.publish.writer import Publication, SnapshotWriter
from onex_platform.snapshots.read.snapshot_map import (
    Draft,
    MalformedSnapshotError,
    SnapshotMap,
)
from onex_platform.snapshots.snapshot_records import PublishedState, published_state, version_in
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import Catalogue


class StaleSnapshotError(OnexError):
    """The registry's row is not what the snapshot says; nothing was published."""


class SnapshotTooLargeError(OnexError):
    """The topic can't take a record of that size; nothing was published."""


class UnreadableSnapshotError(OnexError):
    """The topic's last record of an entity is no snapshot."""


class SnapshotPublisherRegistration:
    """Publishes one domain's snapshots; a context manager that starts and stops.

    Starting takes over from every publisher of the domain that was started before. One that is
    stuck in the middle of its work is waited for as long as a living one could need, then ended.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        catalogue: Catalogue,
        config: ModelSnapshotTopicConfig | None = None,
    ) -> None:
        self.config = config or ModelSnapshotTopicConfig.default(catalogue, settings.environment)
        self._settings = settings
        self._writer = SnapshotWriter(settings, database, catalogue, self.config)

    def start(self) -> None:
        """Open the producer and make sure that both servers answer."""
        self._writer.exclusively(lambda publication: None)

    def stop(self) -> None:
        """Close the producer; everything that was published is acknowledged."""
        self._writer.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def publish_snapshot(self, snapshot: ModelRegistrationSnapshot) -> None:
        """Publish one snapshot; refuses one that is not of the row's present version."""
        self._require_domain(snapshot.domain)
        version = str(snapshot.snapshot_version)
        row = (
            snapshot.to_kafka_key(),
            version,
            snapshot.model_dump_json(),
            snapshot.tenant,
        )

        def publish(publication: Publication) -> None:
            _require_current(snapshot, self._stored(publication, snapshot.entity_id))
            if publication.send([row]).too_large:
                raise SnapshotTooLargeError(
                    f"The snapshot of {snapshot.entity_id} has {len(row[2])} characters, which is "
                    f"more than {self.config.topic} takes.",
                    hint="Let the node announce less, or raise max_message in the contract.",
                )

        self._writer.exclusively(publish)

    def publish_from_projection(
        self, projection: ModelRegistrationProjection
    ) -> ModelRegistrationSnapshot:
        """Publish the snapshot of a row that was read from the store."""
        if projection.row_version < 1 or projection.is_closed():
            raise StaleSnapshotError(
                f"{projection.key} with row_version={projection.row_version} is "
                f"{'deregistered' if projection.is_closed() else 'no stored row'}.",
                hint="Read it with ProjectionReaderRegistration; delete_snapshot removes one.",
            )
        snapshot = ModelRegistrationSnapshot.from_projection(
            projection, snapshot_created_at=datetime.now(UTC)
        )
        self.publish_snapshot(snapshot)
        return snapshot

    def publish_batch(self, projections: Iterable[ModelRegistrationProjection]) -> int:
        """Publish many rows, closed ones as tombstones; how many the broker acknowledged.

        A row that has moved on is left out: whoever moved it has queued the newer one. So is one
        that is too large for the topic, which the log names.
        """
        pending, acknowledged = iter(projections), 0
        while batch := list(islice(pending, self._settings.snapshots.batch_records)):
            versions = {}
            for projection in batch:
                self._require_domain(projection.domain)
                versions[str(projection.entity_id)] = projection.row_version
            acknowledged += self._publish_current(versions)
        return acknowledged

    def delete_snapshot(self, entity_id: UUID, domain: str = REGISTRATION_DOMAIN) -> bool:
        """Publish a tombstone; False if the node is open, or the topic has no snapshot of it.

        An open node's snapshot stays, because the sweep would only bring it back: deregister it.
        Whether there is one is seen by reading the topic from its beginning.
        """
        self._require_domain(domain)

        def delete(publication: Publication) -> bool:
            stored = self._stored(publication, entity_id)
            if stored is not None and stored[2] is not None:
                return False
            published = self._published(entity_id, publication.topics[-1])
            if published is None or published.is_tombstone:
                return False
            tombstone = (str(entity_id), str(published.version + 1), None, None)
            publication.send([stored or tombstone])
            return True

        return self._writer.exclusively(delete)

    def get_latest_snapshot(self, entity_id: UUID) -> ModelRegistrationSnapshot | None:
        """What the topic says of a node; None for a tombstone or nothing.

        Reads the topic from its beginning. Who asks often keeps a cache of it. Raises if what
        stands last is no snapshot: readers who come later may find nothing else.
        """
        key, fault = str(entity_id).encode(), None
        draft = Draft(SnapshotMap(), self.config.domain)
        for message in read_to_end(self._settings, [self.config.topic]):
            if message.key() == key:
                fault = _folded(message, draft)
        shown = draft.finished()
        latest = shown.get(entity_id)
        if reason := fault or shown.faulty.get(key):
            raise UnreadableSnapshotError(
                f"{self.config.topic} has a record of {entity_id} that is no snapshot: {reason}.",
                hint="`onex snapshots status --contents` says what is wrong with the topic, and "
                "`onex snapshots sweep --contents` repairs it.",
            )
        return latest

    def _published(self, entity_id: UUID, topic: str) -> PublishedState | None:
        """What the topic's last record of a node is, commits of a moment ago included."""
        topics = [topic]
        ends = written_positions(self._settings, topics)
        published = None
        for message in read_to_end(self._settings, topics, ends=ends):
            state = published_state(message)
            if state is not None and state.entity_id == entity_id:
                published = state
        return published

    def _publish_current(self, versions: dict[str, int]) -> int:
        def publish(publication: Publication) -> int:
            with read_rows(publication.cursor, self.config.domain, versions) as rows:
                current = (row for row in rows if int(row[1]) == versions[row[0]])
                return publication.send(current).acknowledged

        return self._writer.exclusively(publish)

    def _stored(self, publication: Publication, entity_id: UUID) -> RowState | None:
        with read_rows(publication.cursor, self.config.domain, [entity_id]) as rows:
            found = list(rows)
        return found[0] if found else None

    def _require_domain(self, domain: str) -> None:
        if domain != self.config.domain:
            raise ConfigurationError(
                f"domain={domain!r}: {self.config.topic} holds snapshots of "
                f"{self.config.domain!r} alone.",
                hint="Each domain has a topic of its own in the catalogue.",
            )


def _folded(message: Message, draft: Draft) -> str | None:
    """Fold a record in; the reason if it is no snapshot."""
    key, value = message.key(), message.value()
    try:
        if value is None:
            draft.bury(key, version_in(message.headers()))
        else:
            draft.put(key, value)
    except MalformedSnapshotError as error:
        return str(error)
    return None


def _require_current(snapshot: ModelRegistrationSnapshot, stored: RowState | None) -> None:
    if stored is None:
        raise StaleSnapshotError(
            f"{snapshot.entity_id} is not in the registry.",
            hint="A snapshot is made of a stored row.",
        )
    _, version, value, _ = stored
    if value is None or int(version) != snapshot.snapshot_version:
        now = "deregistered" if value is None else f"at version {version}"
        raise StaleSnapshotError(
            f"snapshot_version={snapshot.snapshot_version} of {snapshot.entity_id} is not the "
            f"registry's: the row is {now}.",
            hint="Read the row again and publish that.",
        )

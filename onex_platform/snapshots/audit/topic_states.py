"""What a snapshot topic says of each entity, in versions and digests, and how rows differ; pure.

Two readers must find the row there. One follows the topic, and a newer record counts for him,
whatever the order, as in `snapshot_map`. The other comes after compaction, which leaves the last
record of a key in its partition: he sees what stands last, be it older, and nothing if that is no
snapshot. So both are remembered where they differ, which they never do while only we write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from pydantic import ValidationError

from onex_platform.domain.projection import ModelRegistrationSnapshot

NO_SNAPSHOT = b""  # the digest of no row
_DIGEST_BYTES = 16


class EnumSnapshotFault(StrEnum):
    """How the topic can differ from an entity's row."""

    MISSING = "missing"
    OLDER = "older"
    NOT_TOMBSTONED = "not_tombstoned"
    TOMBSTONED = "tombstoned"
    UNKNOWN = "unknown"
    AHEAD = "ahead"
    DIFFERENT = "different"  # the same version, but other contents


class State(NamedTuple):
    """A version, and whether the entity is gone in it. Readers take the greater one of two: the
    newer, and a tombstone at the same version. Version 0 stands for none that they know.
    """

    version: int
    closed: bool


_REMOVAL = State(0, closed=True)


class Fault(NamedTuple):
    """What an entity's row is, what the topic has, and what is wrong about that."""

    entity_id: UUID
    kind: EnumSnapshotFault
    row: State | None
    record: State | None

    @property
    def is_outdone(self) -> bool:
        """Whether readers would keep the record if the row were published as it is."""
        return self.row is not None and self.record is not None and self.row <= self.record


class _Held(NamedTuple):
    """What somebody who follows the topic has of an entity, and where it stands."""

    state: State
    partition: int
    digest: bytes | None


class TopicStates:
    """The records of a topic, folded one after the other; one small entry per entity."""

    def __init__(self) -> None:
        self._held: dict[UUID, _Held] = {}
        # The last record in each partition, for entities whose last is not simply the one held.
        self._lasts: dict[UUID, dict[int, State]] = {}

    def take(
        self, entity_id: UUID, state: State, partition: int, digest: bytes | None = None
    ) -> None:
        """Fold a record in. A tombstone without a version removes whatever there is."""
        held = self._held.get(entity_id)
        if held is None:
            self._held[entity_id] = _Held(state, partition, digest)
            return
        counts = state >= held.state or state == _REMOVAL
        if not counts or partition != held.partition or entity_id in self._lasts:
            lasts = self._lasts.setdefault(entity_id, {held.partition: held.state})
            lasts[partition] = state
        if state == held.state:
            if digest != held.digest:  # one reader has this, the other one that
                self._held[entity_id] = held._replace(digest=NO_SNAPSHOT)
        elif counts:
            self._held[entity_id] = _Held(state, partition, digest)

    def entities(self) -> Iterable[UUID]:
        return self._held.keys()

    def fault_of(self, entity_id: UUID, row: State | None) -> Fault | None:
        """What is wrong if row and topic were read at one moment; contents aside."""
        held = self._held.get(entity_id)
        record = None if held is None else held.state
        kind = _kind_of(row, record)
        if kind is None and (lasts := self._lasts.get(entity_id)):
            record = max(lasts.values())
            kind = _kind_of(row, record)
        return None if kind is None else Fault(entity_id, kind, row, record)

    def says(self, entity_id: UUID, version: int, digest: bytes) -> bool | None:
        """Whether the topic says the same as an open row; None if it does not have its version."""
        if self.fault_of(entity_id, State(version, closed=False)) is not None:
            return None
        return self._held[entity_id].digest == digest


def _kind_of(row: State | None, record: State | None) -> EnumSnapshotFault | None:
    if row is None:
        return None if record is None or record.closed else EnumSnapshotFault.UNKNOWN
    if record is None:  # Kafka drops tombstones after a while
        return None if row.closed else EnumSnapshotFault.MISSING
    if record.version > row.version:
        return EnumSnapshotFault.AHEAD
    if record.closed != row.closed:
        closed = row.closed
        return EnumSnapshotFault.NOT_TOMBSTONED if closed else EnumSnapshotFault.TOMBSTONED
    return EnumSnapshotFault.OLDER if record.version < row.version else None


def digest_of(text: bytes | str) -> bytes:
    """Of everything but the time of publication; a text that is no snapshot equals no other."""
    try:
        snapshot = ModelRegistrationSnapshot.model_validate_json(text)
    except ValidationError:
        return NO_SNAPSHOT
    said = snapshot.model_dump_json(exclude={"snapshot_created_at"})
    return hashlib.blake2b(said.encode(), digest_size=_DIGEST_BYTES).digest()

"""The sweep: what the topic lacks or has wrong is queued in the outbox, and the relay publishes it.

- It publishes nothing itself, and queues nothing twice: what waits already is left alone.
- A record that is *ahead* of its row comes from a database that was set back, or from somebody who
  should not write. Nothing that the registry publishes would be newer for readers, so it is only
  reported; `raise_versions` lifts the rows above the topic, and then they are published.
- A record of the row's version that says something *different*, or is a tombstone though the row is
  open, would be kept by readers as well: its row is lifted by one, and published.
- At most `limit` repairs a time; the next sweep finds the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from uuid import UUID

from onex_platform.base.faults import effect
from onex_platform.domain.projection import MOST_VERSION
from onex_platform.projections.snapshot_rows import lift_versions, queue_stored
from onex_platform.projections.write import outbox
from onex_platform.snapshots.audit.comparison import TopicComparison, compare
from onex_platform.snapshots.audit.topic_states import EnumSnapshotFault, Fault
from onex_platform.snapshots.publish.relay import OutboxRelay

REPAIRS_PER_SWEEP = 100_000


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was found, and how many repairs were queued."""

    comparison: TopicComparison
    queued: int = 0
    raised: int = 0


def sweep(
    relay: OutboxRelay,
    entities: Collection[UUID] | None = None,
    *,
    raise_versions: bool = False,
    contents: bool = False,
    limit: int = REPAIRS_PER_SWEEP,
) -> Sweep:
    """Compare rows and topic, or those of some entities, and queue what has to be published."""
    found = look(relay, entities, contents=contents)
    # Where two topics outdo a row, the higher version comes last, and counts.
    outdone = dict(
        sorted(
            (
                (fault.entity_id, fault.record.version)
                for fault in found.faults
                if fault.is_outdone
                and fault.record is not None
                and (raise_versions or fault.kind is not EnumSnapshotFault.AHEAD)
            ),
            key=itemgetter(1),
        )
    )
    lifted = dict(islice(outdone.items(), limit))
    with relay.database.transaction() as cursor:
        raised = lift_versions(cursor, relay.domain, lifted) if lifted else 0
        with effect("snapshots.queue_repairs"):
            queued = outbox.queue_rows(cursor, relay.domain, islice(_repairs(found.faults), limit))
    return Sweep(found, queued + raised, raised)


def look(
    relay: OutboxRelay, entities: Collection[UUID] | None = None, *, contents: bool = False
) -> TopicComparison:
    """Compare only; with both topics while the snapshot topic moves, as one: a repair goes to
    both."""
    first, *others = (
        compare(
            relay.settings,
            relay.database,
            relay.writer.config.model_copy(update={"topic": topic}),
            entities,
            contents=contents,
        )
        for topic in relay.writer.topics()
    )
    for other in others:
        first.equal = min(first.equal, other.equal)
        first.faults += other.faults
    return first


def _repairs(faults: Collection[Fault]) -> Iterator[tuple[str, UUID, int]]:
    for fault in faults:
        if fault.is_outdone:
            continue
        if fault.row is not None:
            entry = "tombstone" if fault.row.closed else "snapshot"
            yield entry, fault.entity_id, fault.row.version
        elif fault.kind is EnumSnapshotFault.UNKNOWN and fault.record is not None:
            yield "tombstone", fault.entity_id, min(fault.record.version + 1, MOST_VERSION)


def queue_entities(relay: OutboxRelay, entities: Collection[UUID]) -> set[UUID]:
    """Queue these rows to be published again as they are; those that exist."""
    with relay.database.transaction() as cursor:
        return queue_stored(cursor, relay.domain, entities)

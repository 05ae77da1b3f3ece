"""Two whole lives through the running platform, to be watched: one node leaves, one falls silent.

Unlike the fleet, these nodes wait for the registry: what they do next depends on what it answered.
After each step the registry's row and the snapshot in the topic stand side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from onex_platform.base.settings import Settings
from onex_platform.context import PlatformContext
from onex_platform.deadlines.scan import scan
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.projection import ModelRegistrationProjection, ModelRegistrationSnapshot
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.kafka.clients import KafkaRecord, open_producer, produce_all
from onex_platform.ingest.archive import PageArchive
from onex_platform.migration.present import platform_now
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.simulate.wire import dump
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.topic_config import snapshot_topic

Kind = EnumEventKind
State = EnumRegistrationState

# A tenant of their own: whoever else is silent neither holds their expiry up nor is judged by it.
_TENANT = "demo"
_LIVENESS_SECONDS = 2.0
_LOOKS = 25
_LOOK_SECONDS = 0.2


class Sight(NamedTuple):
    """What can be seen of a node at one moment, and what should be."""

    moment: str
    node: str
    row: ModelRegistrationProjection | None
    snapshot: ModelRegistrationSnapshot | None
    expected: EnumRegistrationState | None  # None: deregistered

    @property
    def is_as_expected(self) -> bool:
        """The row is in the expected state, and the topic says the same of it."""
        if self.row is None:
            return False
        if self.expected is None:
            return self.row.is_closed() and self.snapshot is None
        return (
            self.row.current_state is self.expected
            and self.snapshot is not None
            and self.snapshot.current_state is self.expected
            and self.snapshot.snapshot_version == self.row.row_version
        )


def watch_lives(
    archive: PageArchive,
    serve: Callable[[PageArchive], object],
    report: Callable[[str], None] = lambda moment: None,
) -> list[Sight]:
    """Play both lives; what was seen after each step. `serve` runs the platform for a moment."""
    platform = archive.platform
    patient = _under(archive, _with(archive.settings, "deadlines", enabled=False))
    brief = _with(patient.settings, "registration", first_liveness_seconds=_LIVENESS_SECONDS)
    granting_little = _under(archive, brief)
    reader = ProjectionReaderRegistration(platform.database)
    topic = snapshot_topic(platform.settings, platform_now(platform).catalogue, platform.domain)
    leaver, silent = uuid4(), uuid4()
    names = {leaver: "leaver", silent: "silent"}
    sights: list[Sight] = []
    with SnapshotCache.open(platform.settings, topic) as cache:

        def see(moment: str, served: PageArchive = patient, **expected: State | None) -> None:
            report(moment)
            serve(served)
            cache.refresh()
            for node, name in names.items():
                if name in expected:
                    row = reader.get_entity_state(node, include_deregistered=True)
                    sights.append(Sight(moment, name, row, cache.get(node), expected[name]))

        _send(platform, Kind.NODE_INTROSPECTION, names)
        see("announced", leaver=State.AWAITING_ACK, silent=State.AWAITING_ACK)
        _send(platform, Kind.NODE_ACK, names)
        see("acknowledged", granting_little, leaver=State.ACTIVE, silent=State.ACTIVE)
        _send(platform, Kind.NODE_SHUTDOWN, {leaver: "leaver"})
        see("one shut down", leaver=None)
        _await_deadline(reader, silent)
        serve(patient)  # up to the deadline, everything is folded
        _judge_without_grace(platform)
        see("one fell silent", silent=State.LIVENESS_EXPIRED)
    return sights


def _under(archive: PageArchive, settings: Settings) -> PageArchive:
    return replace(archive, platform=replace(archive.platform, settings=settings))


def _with(settings: Settings, group: str, **changes: Any) -> Settings:
    return settings.model_copy(update={group: getattr(settings, group).model_copy(update=changes)})


def _judge_without_grace(platform: PlatformContext) -> None:
    """Declare the silence, of these nodes alone: others may be here, and keep their grace.

    If nobody has looked before, the first look only begins the watch.
    """
    strict = _with(platform.settings, "deadlines", grace_seconds=0, enabled=True)
    for _ in range(_LOOKS):
        found = scan(replace(platform, settings=strict), datetime.now(UTC), tenant=_TENANT)
        if found.expired:
            break
        time.sleep(_LOOK_SECONDS)


def _await_deadline(reader: ProjectionReaderRegistration, node: UUID) -> None:
    row = reader.get_entity_state(node)
    if row is not None and row.liveness_deadline is not None:
        time.sleep(max(0.0, (row.liveness_deadline - datetime.now(UTC)).total_seconds()))


def _send(platform: PlatformContext, kind: EnumEventKind, names: dict[UUID, str]) -> None:
    topic = platform.catalogue.for_kind(kind).topic
    records = [
        KafkaRecord(topic, dump(_envelope(kind, node, name)), str(node))
        for node, name in names.items()
    ]
    with open_producer(platform.settings) as producer:
        produce_all(producer, records)


def _envelope(kind: EnumEventKind, node: UUID, name: str) -> dict[str, Any]:
    description: dict[EnumEventKind, dict[str, Any]] = {
        Kind.NODE_INTROSPECTION: {
            "node_type": "effect",
            "node_name": name,
            "node_version": "1.0.0",
            "capabilities": {"database": True},
        },
        Kind.NODE_SHUTDOWN: {"node_type": "effect", "reason": "graceful_shutdown"},
    }
    return {
        "event_id": uuid4(),
        "event_type": kind.event_type,
        "source": name,
        "tenant": _TENANT,
        "timestamp": datetime.now(UTC),
        "payload": {"node_id": str(node), **description.get(kind, {})},
    }

"""What the relay and alarms publish follows the phase of a topic's move."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest

from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.migration.mirror import headers_of, id_of
from onex_platform.migration.phase_table import (
    begin_change,
    end_change,
    phases_alone,
    phases_to_publish_by,
)
from onex_platform.topics.alarms import Alarm, raise_alarms
from onex_platform.topics.catalogue import ALSO_ON, Catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.events import event, number_id
from onex_platform_tests.support.moving_topics import intent
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

Kind = EnumEventKind


def _enter(registry: Registry, source: str, target: str, phase: Phase) -> None:
    with phases_alone(registry.store.database) as cursor:
        begin_change(cursor, source, target, (Phase.ASSESS, phase), by="tests", reason=None)
        end_change(cursor, source, phase)


@pytest.mark.parametrize(
    ("phase", "heard"), [(Phase.ASSESS, 0), (Phase.DUAL, 1), (Phase.MOVE, 1), (Phase.FREEZE, 0)]
)
def test_legacy_nodes_hear_requests_while_both_names_are_written(
    registry: Registry, phase: Phase, heard: int
) -> None:
    catalogue = registry.catalogue
    new = catalogue.for_kind(Kind.INTROSPECTION_REQUESTED).topic
    [old] = [c.topic for c in catalogue.legacy() if c.legacy_of == new]
    _enter(registry, old, new, phase)
    fact = event(Kind.INTROSPECTION_REQUESTED, 1, event_id=number_id(500), node=number_id(1))
    starts = end_positions(registry.settings, [old, new])
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, [fact])
    with registry.relay() as relay:
        assert relay.publish_pending().events == 1
    for topic, other, count in ((new, old, 1), (old, new, heard)):
        found = list(read_to_end(registry.settings, [topic], starts))
        assert [id_of(message) for message in found] == [str(fact.event_id)] * count
        marks = [dict(headers_of(message)).get(ALSO_ON) for message in found]
        assert marks == [other.encode() if heard else None] * count


def test_an_alarm_goes_to_both_versions_while_its_topic_moves(registry: Registry) -> None:
    own = with_own_topics(registry.catalogue, Kind.ERROR_DETECTED)
    source = own.for_kind(Kind.ERROR_DETECTED)
    target = source.model_copy(update={"topic": f"{source.topic}1"})
    moved = Catalogue([*own, target], {source.topic: intent(target.topic)})
    moved = moved.at({source.topic: Phase.DUAL})
    create_topics(registry.settings, Catalogue([source, target]))
    alarm = Alarm(
        correlation_id=number_id(1),
        error="InfraError",
        message="An example.",
        operation="test",
        occurred_at=datetime.now(UTC),
        context={},
    )
    assert raise_alarms(registry.settings, moved, [alarm]) == 1
    values = [
        json.loads(message.value() or b"")
        for message in read_to_end(registry.settings, [source.topic, target.topic])
    ]
    assert len(values) == 2
    assert values[0] == values[1]


def test_a_change_of_phase_waits_for_a_batch_that_is_under_way(registry: Registry) -> None:
    database = registry.store.database
    changed = threading.Event()

    def change() -> None:
        with phases_alone(database):
            changed.set()

    changer = threading.Thread(target=change)
    with database.transaction() as cursor:
        phases_to_publish_by(cursor)
        changer.start()
        waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        assert eventually(lambda: cursor.execute(waits).fetchone() is not None)
        assert not changed.is_set()
    changer.join()
    assert changed.is_set()

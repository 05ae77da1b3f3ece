"""What the relay and alarms publish follows the phase of a topic's move."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from onex_platform.base.errors import InfraConnectionError, InfraError
from onex_platform.context import PlatformContext
from onex_platform.deadlines.scan_state import alert_of_holds
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.payloads import ErrorDetectedPayload
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.engines.kafka.topic_admin import KafkaSession
from onex_platform.governance.provision import create_topics
from onex_platform.migration.mirror import headers_of, id_of
from onex_platform.migration.phase_table import (
    begin_change,
    end_change,
    phases_alone,
    phases_to_publish_by,
)
from onex_platform.migration.publication import LastPublished
from onex_platform.projections.fold.set_aside import alert_of_set_aside
from onex_platform.projections.write import outbox
from onex_platform.snapshots.publish.held_events import alert_of_held
from onex_platform.topics.alarms import Alarm, raise_alarms
from onex_platform.topics.catalogue import ALSO_ON, Catalogue, Outlet
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform.topics.signals import Signal, publish_signals
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


@pytest.fixture
def errors(registry: Registry) -> tuple[str, str]:
    """A version of the topic for errors that nobody else writes to, and the one it moves to."""
    own = with_own_topics(registry.catalogue, Kind.ERROR_DETECTED)
    source = own.for_kind(Kind.ERROR_DETECTED)
    target = source.model_copy(update={"topic": f"{source.topic}1"})
    registry.catalogue = Catalogue([*own, target], {source.topic: intent(target.topic)})
    create_topics(registry.settings, Catalogue([source, target]))
    return source.topic, target.topic


def _counts(registry: Registry, topics: tuple[str, str]) -> tuple[int, ...]:
    return tuple(len(list(read_to_end(registry.settings, [topic]))) for topic in topics)


def test_signals_of_a_process_follow_the_phases_as_they_change(
    registry: Registry, errors: tuple[str, str]
) -> None:
    def signals() -> list[Signal]:
        return [
            Signal(
                kind=Kind.ERROR_DETECTED,
                key="key",
                event_id=uuid4(),
                correlation_id=number_id(1),
                occurred_at=datetime.now(UTC),
                payload=ErrorDetectedPayload(
                    error_code="NO", severity="error", message="", operation="", context={}
                ),
            )
        ]

    database = registry.store.database
    moving = LastPublished(database, registry.catalogue)

    def publish() -> tuple[int, ...]:
        with moving() as catalogue:
            publish_signals(registry.settings, catalogue, signals())
        return _counts(registry, errors)

    assert publish() == (1, 0)
    _enter(registry, *errors, Phase.DUAL)
    assert publish() == (2, 1)
    _enter(registry, *errors, Phase.FREEZE)
    assert publish() == (2, 2)
    # Without PostgreSQL they go where they went last; Kafka's failures are not PostgreSQL's.
    for _ in range(9):
        with pytest.raises(InfraConnectionError, match="Kafka"), moving():
            raise InfraConnectionError("Kafka is away.")
    assert publish() == (2, 3)
    for _ in range(9):
        with suppress(InfraError), database.breaker.guard():
            raise InfraConnectionError("PostgreSQL is away.")
    assert publish() == (2, 4)


@pytest.mark.parametrize("teller", ["set_aside", "holds", "held"])
def test_whoever_raises_alarms_follows_the_phases(
    registry: Registry, errors: tuple[str, str], teller: str
) -> None:
    _enter(registry, *errors, Phase.DUAL)
    database, domain, now = registry.store.database, registry.config.domain, datetime.now(UTC)
    node, reason = number_id(1), "not today"
    with database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO set_aside_nodes (domain, entity_id, since_position, event_id, kind, error)"
            " VALUES (%s, %s, 1, %s, %s, %s)",
            [domain, node, node, Kind.NODE_ACCEPTED, reason],
        )
        cursor.execute(
            "INSERT INTO expiry_holds (hold_id, domain, tenant, since, fleet, expiry_limit, held)"
            " VALUES (%s, %s, 'acme', %s, 9, 3, 6)",
            [node, domain, now],
        )
        queue_events(cursor, [event(Kind.NODE_ACCEPTED, 1, event_id=number_id(500), node=node)])
        [entry] = outbox.pending_events(cursor, domain, 1)
        outbox.hold(cursor, domain, {node: (entry, reason)})
    with KafkaSession(registry.settings) as kafka:
        platform = PlatformContext(registry.settings, registry.catalogue, database, kafka, domain)
        told = {
            "set_aside": lambda: alert_of_set_aside(platform, now),
            "holds": lambda: alert_of_holds(platform, now),
            "held": lambda: alert_of_held(platform.settings, platform.catalogue, database, domain),
        }[teller]
        assert [told(), told()] == [1, 0]
    assert _counts(registry, errors) == (1, 1)


def test_the_topics_of_a_kind_are_looked_up_once_per_batch(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, outlets = list[EnumEventKind](), Catalogue.outlets

    def counted(catalogue: Catalogue, kind: EnumEventKind) -> tuple[Outlet, ...]:
        looked_up.append(kind)
        return outlets(catalogue, kind)

    monkeypatch.setattr(Catalogue, "outlets", counted)
    kind = Kind.INTROSPECTION_REQUESTED
    with registry.store.database.transaction() as cursor:
        queue_events(
            cursor,
            [event(kind, n, event_id=number_id(500 + n), node=number_id(n)) for n in range(9)],
        )
    with registry.relay() as relay:
        assert relay.publish_pending().events == 9
    assert looked_up == [kind]


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

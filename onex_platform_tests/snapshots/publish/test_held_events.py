"""An event that Kafka refuses holds up its own node, in order, and nobody else."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from onex_platform.base import faults
from onex_platform.engines.kafka.clients import end_positions, open_admin, read_to_end
from onex_platform.engines.kafka.topic_admin import TopicLayout, create
from onex_platform.projections.write import outbox
from onex_platform.records.key_folder import TENANTS, KeyFolder
from onex_platform.snapshots.publish.held_events import no_event_is_held_back
from onex_platform.snapshots.publish.relay import OutboxRelay
from onex_platform.topics import alarms
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.events import Kind, event, number_id
from onex_platform_tests.support.key_folders import filled, with_keys
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events

pytestmark = pytest.mark.servers

ERRORS = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic
SICK = 3


@pytest.fixture
def topic(registry: Registry) -> str:
    """One partition for all events, which takes small ones only, and few of them at once."""
    registry.catalogue = with_own_topics(registry.catalogue, Kind.NODE_ACCEPTED)
    name = registry.catalogue.for_kind(Kind.NODE_ACCEPTED).topic
    with open_admin(registry.settings) as admin:
        create(admin, [TopicLayout(name, 1, 1, {"max.message.bytes": "1100"})])
    return name


def queue(registry: Registry, *events: tuple[int, int, bool]) -> None:
    """Events as (node, number, whether it is too large)."""
    facts = [
        replace(
            event(
                Kind.NODE_ACCEPTED,
                number,
                event_id=number_id(number),
                node=number_id(node),
                # Of random text, which can't be compressed.
                reason=secrets.token_hex(510) if large else "fine",
            )
        )
        for node, number, large in events
    ]
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, facts)


def published(registry: Registry, topic: str) -> dict[UUID, list[UUID]]:
    """What readers have of each node, in order, repetitions left out: the last one counts."""
    found: dict[UUID, dict[UUID, None]] = {}
    for message in read_to_end(registry.settings, [topic]):
        envelope = json.loads(message.value() or b"")
        ids = found.setdefault(UUID(envelope["payload"]["node_id"]), {})
        ids.pop(UUID(envelope["event_id"]), None)
        ids[UUID(envelope["event_id"])] = None
    return {node: list(ids) for node, ids in found.items()}


def held(relay: OutboxRelay) -> list[outbox.Held]:
    with relay.database.transaction() as cursor:
        return outbox.held(cursor, relay.domain)


def due_again(registry: Registry) -> None:
    with registry.store.database.transaction() as cursor:
        cursor.execute("UPDATE held_publications SET next_try_at = now() - interval '1 s'")


@pytest.mark.parametrize("batch_records", [1000, 3])
def test_a_refused_event_holds_up_its_own_node_in_order_and_nobody_else(
    registry: Registry, topic: str, batch_records: int
) -> None:
    events = [
        (node, 100 * node + n, node == SICK and n == 2) for n in range(4) for node in range(9)
    ]
    queue(registry, *events)
    errors = end_positions(registry.settings, [ERRORS])
    with registry.relay(batch_records=batch_records) as relay:
        account = relay.publish_pending()
        assert (account.events, account.held) == (34, [str(number_id(SICK))])
        assert published(registry, topic) == {
            number_id(node): [number_id(100 * node + n) for n in range(2 if node == SICK else 4)]
            for node in range(9)
        } | {number_id(SICK): published(registry, topic)[number_id(SICK)]}
        [waits] = held(relay)
        assert (waits.entity_id, waits.event_id) == (number_id(SICK), number_id(302))
        assert (waits.events, waits.attempts) == (2, 1)
        assert "size" in waits.error.lower()
        # It is told once; meanwhile nothing waits, and what comes new passes it by.
        told = [
            json.loads(m.value() or b"") for m in read_to_end(registry.settings, [ERRORS], errors)
        ]
        [alarm] = [t for t in told if t["payload"]["context"].get("node") == str(number_id(SICK))]
        assert alarm["payload"]["error_code"] == "PUBLICATION_HELD"
        assert relay.waiting() == (0, 0)
        queue(registry, (1, 150, False), (SICK, 350, False))
        assert relay.publish_pending().events == 1
        verdict = no_event_is_held_back(relay.database, relay.domain, datetime.now(UTC))
        assert not verdict.passed
        assert (verdict.metadata["held nodes"], verdict.metadata["held events"]) == (1, 3)
        # Still refused, it waits longer.
        due_again(registry)
        assert relay.publish_pending().held == [str(number_id(SICK))]
        assert held(relay)[0].attempts == 2
        # The topic takes larger ones now: all that waited follows, in its order.
        with open_admin(registry.settings) as admin:
            _allow(admin, topic)
        due_again(registry)
        assert relay.publish_pending().events == 3
        assert published(registry, topic)[number_id(SICK)] == [
            number_id(n) for n in (300, 301, 302, 303, 350)
        ]
        assert held(relay) == []
        assert no_event_is_held_back(relay.database, relay.domain, datetime.now(UTC)).passed


def _allow(admin: object, topic: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([change]).values():  # type: ignore[attr-defined]
        future.result(10)


def _rename_kind(registry: Registry, old: str, new: str, node: UUID) -> None:
    with registry.store.database.transaction() as cursor:
        cursor.execute(
            "UPDATE outbox SET event_kind = %s WHERE event_kind = %s AND entity_id = %s",
            [new, old, node],
        )
        assert cursor.rowcount == 1


def test_an_event_that_can_t_be_written_holds_up_its_own_node_as_well(
    registry: Registry, topic: str
) -> None:
    queue(registry, *((node, node, False) for node in range(4)))
    kind, node = Kind.NODE_ACCEPTED.value, number_id(2)
    _rename_kind(registry, kind, "nobody knows it", node)
    with registry.relay() as relay:
        account = relay.publish_pending()
        assert (account.events, account.held) == (3, [str(node)])
        assert held(relay)[0].error.startswith("ValueError: 'nobody knows it'")
        _rename_kind(registry, "nobody knows it", kind, node)
        due_again(registry)
        assert relay.publish_pending().events == 1
        assert held(relay) == []


def test_a_tenant_without_a_key_is_held_and_one_whose_key_was_destroyed_is_not(
    registry: Registry, topic: str, tmp_path: Path
) -> None:
    registry.settings = with_keys(tmp_path, registry.settings)
    registry.catalogue = Catalogue(
        c.with_private_fields({"payload.reason": "high"}) if c.topic == topic else c
        for c in registry.catalogue
    )
    filled(registry.settings, tenants=("living", "gone"))
    KeyFolder(registry.settings).destroy("gone")
    facts = [
        event(Kind.NODE_ACCEPTED, n, node=number_id(n), tenant=tenant, reason="private")
        for n, tenant in enumerate(("living", "gone", "new"), start=1)
    ]
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, facts)
    with registry.relay() as relay:
        account = relay.publish_pending()
        assert (account.events, account.held) == (2, [str(number_id(3))])
        [waits] = held(relay)
        assert "tenant 'new'" in waits.error
        assert "`onex keys make --tenant new`" in waits.error
        KeyFolder(registry.settings).make(TENANTS, "new")
        due_again(registry)
        assert relay.publish_pending().events == 1
        assert held(relay) == []
    reasons = {
        envelope["tenant"]: envelope["payload"]["reason"].partition(":")[0]
        for message in read_to_end(registry.settings, [topic])
        for envelope in [json.loads(message.value() or b"")]
    }
    assert reasons == {"living": "sealed", "gone": "***", "new": "sealed"}


def test_a_node_that_could_not_be_told_of_is_told_of_with_the_next_attempt(
    registry: Registry, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onex_platform.base.errors import InfraTimeoutError

    def fail(*_: object) -> int:
        raise InfraTimeoutError("The broker sleeps.")

    queue(registry, (1, 1, True))
    with registry.relay() as relay:
        with monkeypatch.context() as patch:
            patch.setattr(alarms, "raise_alarms", fail)
            assert relay.publish_pending().held == [str(number_id(1))]
        with relay.database.transaction() as cursor:
            assert len(outbox.held(cursor, relay.domain, untold=True)) == 1
        due_again(registry)
        relay.publish_pending()
        with relay.database.transaction() as cursor:
            assert outbox.held(cursor, relay.domain, untold=True) == []


@pytest.mark.parametrize(
    "point", ["after:held_publication.alert", "before:held_publication.mark_alert"]
)
def test_a_node_that_was_told_of_and_not_noted_is_told_of_again_under_the_same_id(
    registry: Registry, topic: str, point: str
) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    before = end_positions(registry.settings, [ERRORS])
    queue(registry, (1, 1, True))
    faults.arm(point, die)
    with registry.relay() as relay:
        with pytest.raises(KeyboardInterrupt):
            relay.publish_pending()
        due_again(registry)
        relay.publish_pending()
    told = [json.loads(m.value() or b"") for m in read_to_end(registry.settings, [ERRORS], before)]
    assert len(told) == 2
    assert len({alarm["event_id"] for alarm in told}) == 1

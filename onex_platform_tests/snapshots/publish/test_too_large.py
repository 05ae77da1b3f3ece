"""A snapshot that the topic can't take: the others go on, it is named, and it stays visible."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import admit
from onex_platform.domain.payloads import IntrospectionPayload
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import alter
from onex_platform.engines.kafka.transactions import Sent
from onex_platform.snapshots.audit.sweep import look, sweep
from onex_platform.snapshots.publish.publisher import (
    SnapshotPublisherRegistration,
    SnapshotTooLargeError,
)
from onex_platform.snapshots.publish.relay import OutboxRelay, RelayAccount
from onex_platform.snapshots.publish.republish import rebuild_topic
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform_tests.support.events import RULES, Kind, at, number_id, record
from onex_platform_tests.support.snapshot_registry import Registry

pytestmark = pytest.mark.servers

FIRST = str(number_id(1))


def _capabilities(size: int) -> dict[str, Any]:
    """So many bytes of text that compression makes little smaller."""
    return {"text": random.Random(1).randbytes(size // 2).hex()}


def _faults(relay: OutboxRelay) -> dict[str, str]:
    return {str(fault.entity_id): fault.kind.value for fault in look(relay).faults}


def test_the_largest_event_that_is_admitted_becomes_a_snapshot_that_the_cache_reads(
    registry: Registry,
) -> None:
    largest = RULES.max_event_bytes
    numbers = [1] * (largest // 2 - 500)  # the rest is for the envelope
    event = record(Kind.NODE_INTROSPECTION, capabilities={"numbers": numbers})
    shortest = json.dumps(json.loads(event.value or b""), separators=(",", ":")).encode()
    assert largest - 1000 < len(shortest) <= largest
    admitted = admit(replace(event, value=shortest), RULES, at(0))
    assert isinstance(admitted, LogEvent)
    assert isinstance(admitted.payload, IntrospectionPayload)
    announced = admitted.payload.capabilities
    registry.change(1, capabilities=announced)
    with registry.relay() as relay:
        assert relay.publish_pending() == RelayAccount(snapshots=1)
    [message] = registry.messages()
    assert len(message.value() or b"") > 1.4 * largest
    with closing(SnapshotCache(registry.settings, topic=registry.config.topic)) as cache:
        cache.refresh()
        shown = cache.get(number_id(1))
    assert shown is not None
    assert shown.capabilities == announced


def test_one_that_is_too_large_is_set_aside_and_its_next_smaller_version_published(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.change(1, capabilities=_capabilities(5_000_000))
    registry.change(2, 3)
    with registry.relay() as relay:
        assert relay.publish_pending() == RelayAccount(snapshots=2, too_large=[FIRST])
        assert FIRST in capsys.readouterr().out
        assert registry.waiting() == (0, 0)
        assert set(registry.latest()) == {number_id(2), number_id(3)}
        assert _faults(relay) == {FIRST: "missing"}
        sweep(relay)  # it comes again, as long as nothing has changed
        assert relay.publish_pending() == RelayAccount(too_large=[FIRST])
        registry.change(1)
        assert relay.publish_pending() == RelayAccount(snapshots=1)
        registry.change(1, capabilities=_capabilities(5_000_000))
        relay.publish_pending()
        assert _faults(relay) == {FIRST: "older"}
        registry.close(1)
        assert relay.publish_pending() == RelayAccount(tombstones=1)
    registry.require_topic_equals_rows()


def test_a_topic_with_a_lower_limit_gets_what_fits_and_the_rest_when_it_is_raised(
    registry: Registry,
) -> None:
    topic = registry.config.topic
    with open_admin(registry.settings) as admin:
        alter(admin, topic, {"max.message.bytes": "1048588"})
        registry.change(1, capabilities=_capabilities(1_500_000))
        registry.change(2)
        with registry.relay() as relay:
            assert relay.publish_pending() == RelayAccount(snapshots=1, too_large=[FIRST])
        alter(admin, topic, {"max.message.bytes": "4194304"})
    with registry.relay() as relay:
        sweep(relay)
        assert relay.publish_pending() == RelayAccount(snapshots=1)
    registry.require_topic_equals_rows()


def test_rebuilding_goes_on_behind_it(registry: Registry) -> None:
    registry.change(1, capabilities=_capabilities(5_000_000))
    registry.change(2, 3)
    with registry.relay(batch_records=1) as relay:
        assert rebuild_topic(relay.settings, relay.writer) == Sent(2, (FIRST,))


def test_a_publisher_counts_the_others_and_refuses_it_alone(registry: Registry) -> None:
    rows = registry.change(1, capabilities=_capabilities(5_000_000))
    rows += registry.change(2)
    publisher = SnapshotPublisherRegistration(
        registry.settings, registry.store.database, registry.catalogue, registry.config
    )
    with publisher:
        assert publisher.publish_batch(rows) == 1
        with pytest.raises(SnapshotTooLargeError, match=FIRST):
            publisher.publish_from_projection(rows[0])
    assert set(registry.latest()) == {number_id(2)}

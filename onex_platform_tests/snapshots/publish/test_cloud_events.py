"""Published events as CloudEvents: readable by their library, and by our own door as before."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat

from onex_platform.domain.events import LogEvent
from onex_platform.domain.intake import RawRecord, admit
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import RULES, Kind, at, event, number_id
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events

pytestmark = pytest.mark.servers

TOPIC = load_catalogue().for_kind(Kind.NODE_ACCEPTED).topic


def test_an_event_carries_the_binding_and_our_intake_takes_it(registry: Registry) -> None:
    fact = event(Kind.NODE_ACCEPTED, 1, 5, event_id=number_id(77))
    start = end_positions(registry.settings, [TOPIC])
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, [fact])
    with registry.relay(cloud_events=True) as relay:
        assert relay.publish_pending().events == 1
    [message] = read_to_end(registry.settings, [TOPIC], start)
    headers, key, value = dict(message.headers() or ()), message.key(), message.value()
    assert value is not None
    assert key is not None

    read = from_binary(KafkaMessage(headers=headers, key=key, value=value), JSONFormat())
    assert read.get_specversion() == "1.0"
    assert read.get_id() == str(fact.event_id)
    assert read.get_type() == fact.kind.event_type
    assert read.get_source() == "/onex-platform/omnibase"
    assert read.get_subject() == fact.node_id
    assert read.get_time() == at(5)
    assert read.get_data() == json.loads(value)

    record = RawRecord(
        topic=TOPIC,
        partition=0,
        offset=0,
        timestamp=at(6),
        append_time=True,
        key=key,
        value=value,
        headers=list(headers.items()),
        kind=fact.kind,
    )
    admitted = admit(record, RULES, datetime.now(UTC))
    assert isinstance(admitted, LogEvent)
    assert (admitted.event_id, admitted.payload) == (fact.event_id, fact.payload)

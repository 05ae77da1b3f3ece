"""Whatever the platform publishes carries the headers of specification 004 and a trace."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Message

from onex_platform.domain import headers as h
from onex_platform.domain.intake import RawRecord, judge
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.topics.alarms import Alarm, raise_alarms
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import RULES, Kind, at, event, number_id
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events

pytestmark = pytest.mark.servers

CATALOGUE = load_catalogue()
ALL = {*h.MINIMUM, h.REGION, h.TRACEPARENT}


def headers_of(message: Message) -> dict[str, str]:
    """The message's headers, each once and readable."""
    found = message.headers() or []
    assert len(found) == len(dict(found))
    return {name: value.decode() for name, value in found}


def test_snapshots_and_tombstones_name_tenant_and_trace(registry: Registry) -> None:
    [row] = registry.change(1)
    with registry.relay() as relay:
        relay.publish_pending()
        registry.close(1)
        relay.publish_pending()
    snapshot, tombstone = map(headers_of, registry.messages())
    for headers in (snapshot, tombstone):
        assert headers.keys() >= ALL
        assert headers[h.TENANT] == row.tenant
        assert headers[h.CORRELATION_ID] == str(row.entity_id)
    first, second = (h.parse_traceparent(one[h.TRACEPARENT]) for one in (snapshot, tombstone))
    assert first is not None
    assert second is not None
    assert first.trace_id == second.trace_id == row.entity_id.hex
    assert first.span_id < second.span_id


def test_events_say_what_their_envelope_says_and_pass_a_strict_contract(registry: Registry) -> None:
    contract = CATALOGUE.for_kind(Kind.NODE_ACCEPTED)
    fact = event(Kind.NODE_ACCEPTED, 1, 5, event_id=number_id(78))
    start = end_positions(registry.settings, [contract.topic])
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, [fact])
    with registry.relay() as relay:
        assert relay.publish_pending().events == 1
    [message] = read_to_end(registry.settings, [contract.topic], start)
    assert headers_of(message).keys() == ALL
    strict = h.HeaderRules(h.EnumOnRead.PARK, h.MINIMUM, contract.key)
    record = RawRecord(
        topic=contract.topic,
        partition=0,
        offset=0,
        timestamp=at(6),
        append_time=True,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
        kind=fact.kind,
        asked=strict,
    )
    judged = judge(record, RULES, at(7))
    assert judged.findings == ()
    assert not hasattr(judged.outcome, "reason")


def test_alarms_carry_them_too(registry: Registry) -> None:
    topic = CATALOGUE.for_kind(Kind.ERROR_DETECTED).topic
    start = end_positions(registry.settings, [topic])
    alarm = Alarm(
        correlation_id=uuid4(),
        error="SomeError",
        message="It broke.",
        operation="test",
        occurred_at=at(1),
        context={},
    )
    assert raise_alarms(registry.settings, CATALOGUE, [alarm]) == 1
    [message] = [
        found
        for found in read_to_end(registry.settings, [topic], start)
        if found.key() == str(alarm.correlation_id).encode()
    ]
    headers = headers_of(message)
    assert headers.keys() == ALL
    assert headers[h.CORRELATION_ID] == str(alarm.correlation_id)

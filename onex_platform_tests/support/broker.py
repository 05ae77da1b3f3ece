"""The shared broker's input topics, for tests that run the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

from onex_platform.base.settings import Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import (
    KafkaRecord,
    open_consumer,
    open_producer,
    produce_all,
)
from onex_platform.ingest.cuts.consistent_cut import ends_of, places_of
from onex_platform.ingest.inputs import input_topics
from onex_platform.ingest.offsets import CursorMove, move_consumer_cursors
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.events import payload_fields


def skip_what_others_left(settings: Settings) -> None:
    """Let the test's log begin at the topics' present ends."""
    with open_archive(settings) as archive, open_consumer(settings) as consumer:
        places = places_of(consumer, input_topics(load_catalogue()))
        moves = [CursorMove(*place, None, ends_of(consumer, place).end) for place in places]
        with archive.database.transaction() as cursor:
            assert move_consumer_cursors(cursor, archive.domain, moves)


def sent(
    kind: EnumEventKind,
    node_id: str,
    *,
    event_id: UUID | None = None,
    legacy: bool = False,
    value: bytes | None = None,
    **payload: Any,
) -> KafkaRecord:
    """A record as a node sends it."""
    catalogue = load_catalogue()
    topic = catalogue.for_kind(kind).topic
    if legacy:
        [topic] = [c.topic for c in catalogue.legacy() if c.legacy_of == topic]
    envelope = {
        "event_id": str(event_id or uuid4()),
        "event_type": kind.event_type,
        "source": "tests",
        "correlation_id": str(uuid4()),
        "timestamp": "2026-03-01T12:00:00Z",
        "payload": payload_fields(kind, node_id, **payload),
    }
    return KafkaRecord(topic, json.dumps(envelope).encode() if value is None else value, node_id)


def send(settings: Settings, records: Iterable[KafkaRecord]) -> int:
    with open_producer(settings) as producer:
        return produce_all(producer, records)

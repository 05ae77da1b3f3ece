"""What tests of the pipeline send, and how they let it run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.archive import PageArchive
from onex_platform.pipeline import DrainAccount, drain
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform_tests.support.broker import sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def drained(spark: SparkSession, archive: PageArchive) -> DrainAccount:
    return drain(spark, archive, linger_seconds=0.2)


def published(archive: PageArchive) -> int:
    """Publish what the registry decided; how many events those were."""
    with open_relay(archive.settings, archive.platform.catalogue) as relay:
        return relay.publish_pending().events


def a_mixed_morning(nodes: int) -> Iterator[KafkaRecord]:
    """Joins, beats, repeats, a twin on a legacy topic, and what nobody can read."""
    for number in range(nodes):
        node = f"node-{number}"
        joining = uuid4()
        yield sent(EnumEventKind.NODE_INTROSPECTION, node, event_id=joining, node_version="1.0.0")
        yield sent(EnumEventKind.NODE_INTROSPECTION, node, event_id=joining, legacy=number % 2 == 0)
        for _ in range(3):
            yield sent(EnumEventKind.NODE_HEARTBEAT, node, uptime_seconds=1.5)
        if number % 3 == 0:
            yield sent(EnumEventKind.NODE_HEARTBEAT, node, value=b"not json")

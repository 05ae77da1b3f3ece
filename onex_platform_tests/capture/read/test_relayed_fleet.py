"""A fleet that publishes only to the snapshotter ends in the same states as over Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import InfraConnectionError
from onex_platform.base.settings import Settings
from onex_platform.capture.api.requests import Publication
from onex_platform.capture.instance import Instance
from onex_platform.capture.read.kafka_relay import KEY, TOPIC, open_relay
from onex_platform.domain.events import EnumEventKind as Kind
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.archive import PageArchive
from onex_platform.ingest.inputs import input_topics
from onex_platform.pipeline import drain
from onex_platform.projections.reader import ProjectionReaderRegistration
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.archives import open_archive
from onex_platform_tests.support.broker import sent
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage
from onex_platform_tests.support.snapshotters import config_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers
_NODES = 20


def _joining() -> list[KafkaRecord]:
    records = []
    for number in range(_NODES):
        node, event_id = f"node-{number}", uuid4()
        records += [sent(Kind.NODE_INTROSPECTION, node, event_id=event_id)] * 2
        records += [sent(Kind.NODE_HEARTBEAT, node, uptime_seconds=1.5) for _ in range(3)]
    return records


def _fail() -> None:
    raise InfraConnectionError("The connection broke.")


def _captured_and_relayed(
    settings: Settings, folder: Path, records: Iterable[KafkaRecord], point: str
) -> None:
    """Publish to a snapshotter whose relay fails once at the point; it ends when all are sent."""

    async def story() -> None:
        with open_relay(settings, "test", tuple(input_topics(load_catalogue()))) as relay:
            storage, index = FolderStorage(folder / "pages"), FolderIndex(folder / "index")
            instance = Instance(config_for(folder), storage, index, relay)
            await instance.start()
            faults.arm(point, _fail)
            for record in records:
                attributes = {TOPIC: record.topic, KEY: str(record.key)}
                asked = Publication("default", str(record.key), _bytes(record), attributes)
                now_us = time.time_ns() // 1000
                instance.intake.publish(asked, now=time.monotonic(), now_us=now_us, done=None)
            async with asyncio.timeout(60):
                await asyncio.sleep(0.1)
                while relay.waiting or instance.log.outstanding:
                    await asyncio.sleep(0.05)
            assert await instance.stop(10.0)

    asyncio.run(story())


def _bytes(record: KafkaRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value


def _states(spark: SparkSession, archive: PageArchive) -> dict[str, int]:
    drain(spark, archive, linger_seconds=0.2)
    reader = ProjectionReaderRegistration(archive.database)
    return {state.value: count for state, count in reader.count_by_state().items() if count}


def test_every_node_becomes_active_though_the_relay_fails_at_each_effect(
    spark: SparkSession, pipeline_settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "snapshotter"
    acks = [sent(Kind.NODE_ACK, f"node-{number}") for number in range(_NODES)]
    beats = [sent(Kind.NODE_HEARTBEAT, f"node-{number}") for number in range(_NODES)]
    leaving = [sent(Kind.NODE_SHUTDOWN, f"node-{number}") for number in range(5)]
    with open_archive(pipeline_settings) as archive:
        for records, point, expected in (
            (_joining(), "before:relay.send", {"awaiting_ack": _NODES}),
            (acks, "after:relay.send", {"active": _NODES}),
            (beats, "before:relay.advance", {"active": _NODES}),
            (leaving, "after:relay.advance", {"active": _NODES - 5}),
        ):
            _captured_and_relayed(pipeline_settings, folder, records, point)
            assert _states(spark, archive) == expected, point

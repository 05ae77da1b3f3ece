"""A fleet that publishes only to the snapshotter ends in the same states as over Kafka."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from onex_platform.base import faults
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
from onex_platform_tests.support.broker import send, sent
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage
from onex_platform_tests.support.snapshotters import config_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.servers
_NODES = 20
_CAPTURED, _DIRECT = "captured", "direct"
_LEAVING, _LATE = 5, 3  # how many leave, and how many don't acknowledge
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__, "onex_platform_tests.support.snapshotter_process"])


def _stages(fleet: str) -> list[list[KafkaRecord]]:
    """What the nodes of a fleet send, step by step; a step is sent when the one before it was
    folded."""
    nodes = [f"{fleet}-{number}" for number in range(_NODES)]
    joining = []
    for node in nodes:
        joining += [sent(Kind.NODE_INTROSPECTION, node, event_id=uuid4())] * 2
        joining += [sent(Kind.NODE_HEARTBEAT, node, uptime_seconds=1.5) for _ in range(3)]
    return [
        joining,
        [sent(Kind.NODE_ACK, node) for node in nodes[:-_LATE]],
        [sent(Kind.NODE_HEARTBEAT, node) for node in nodes],
        [sent(Kind.NODE_SHUTDOWN, node) for node in nodes[:_LEAVING]],
    ]


def _publish_and_relay(
    settings: Settings, folder: Path, stage: str, records: Sequence[KafkaRecord], point: str | None
) -> None:
    """Publish to a snapshotter in this process, until all is relayed or the process is dead."""
    if point is not None:
        faults.arm(point)

    async def story() -> None:
        with open_relay(settings, "test", tuple(input_topics(load_catalogue()))) as relay:
            storage, index = FolderStorage(folder / "pages"), FolderIndex(folder / "index")
            instance = Instance(config_for(folder), storage, index, relay)
            await instance.start()
            for number, record in enumerate(records):
                attributes = {TOPIC: record.topic, KEY: str(record.key)}
                asked = Publication(
                    "default", str(record.key), _bytes(record), attributes, f"{stage}-{number}"
                )
                now_us = time.time_ns() // 1000
                instance.intake.publish(asked, now=time.monotonic(), now_us=now_us, done=None)
            async with asyncio.timeout(60):
                while relay.waiting or instance.log.outstanding:
                    await asyncio.sleep(0.05)
            assert await instance.stop(10.0)

    asyncio.run(story())


def _killed_and_restarted(
    settings: Settings, folder: Path, records: Sequence[KafkaRecord], point: str
) -> None:
    """A snapshotter that is killed at the point, and one to which the nodes send all of it again:
    they were told of nothing."""
    process = _processes.Process(
        target=_publish_and_relay, args=(settings, folder, point, records, point)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, point
    _publish_and_relay(settings, folder, point, records, None)


def _bytes(record: KafkaRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value


def _states(archive: PageArchive, fleet: str) -> dict[str, str]:
    """The state of each node of a fleet, by the rest of its name."""
    return {
        row.node_name.removeprefix(fleet): f"{row.current_state.value}, v{row.row_version}"
        for row in ProjectionReaderRegistration(archive.database).iter_all()
        if row.node_name is not None and row.node_name.startswith(fleet)
    }


def test_a_fleet_whose_relay_is_killed_at_each_effect_is_as_it_would_be_over_kafka(
    spark: SparkSession, pipeline_settings: Settings, tmp_path: Path
) -> None:
    points = [
        f"{when}:relay.{what}" for what in ("send", "advance") for when in ("before", "after")
    ]
    with open_archive(pipeline_settings) as archive:
        for captured, direct, point in zip(
            _stages(_CAPTURED), _stages(_DIRECT), points, strict=True
        ):
            _killed_and_restarted(pipeline_settings, tmp_path / "snapshotter", captured, point)
            send(pipeline_settings, direct)
            drain(spark, archive, linger_seconds=0.2)
            assert _states(archive, _CAPTURED) == _states(archive, _DIRECT), point
            assert len(_states(archive, _DIRECT)) in (_NODES, _NODES - _LEAVING)
        states = Counter(_states(archive, _DIRECT).values())
        assert states == {"active, v2": _NODES - _LEAVING - _LATE, "awaiting_ack, v1": _LATE}

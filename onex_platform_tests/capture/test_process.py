"""The service as a process: how it ends, and what ten thousand quiet writers cost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from onex_platform.capture.api.client import CaptureClient
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage, stored_events
from onex_platform_tests.support.snapshotter_process import ServerProcess

pytestmark = pytest.mark.servers
_MIB = 1024 * 1024


async def _publish(port: int, writers: int, batch: int = 500) -> None:
    async with CaptureClient(f"127.0.0.1:{port}") as client:
        events = [client.event(f"writer-{number}", b"one event") for number in range(writers)]
        for start in range(0, writers, batch):
            await client.publish_batch(events[start : start + batch])


def test_sigterm_with_an_hours_age_limit_ends_soon_and_keeps_everything(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path, {"buffer": {"max_age_seconds": 3600}})
    asyncio.run(_publish(process.ports()[0], 100))
    assert process.terminate() == 0
    events = stored_events(FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index"))
    assert len(events) == 100


def test_ten_thousand_quiet_writers_make_few_objects_few_series_and_little_memory(
    tmp_path: Path,
) -> None:
    budget = 64 * _MIB
    sections = {
        "buffer": {"max_age_seconds": 2, "max_events": 10_000},
        "limits": {"memory_bytes": budget},
    }
    process = ServerProcess(tmp_path, sections)
    port, http_port = process.ports()
    asyncio.run(_publish(port, 10_000))
    with urlopen(f"http://127.0.0.1:{http_port}/metrics") as response:
        lines = response.read().decode().splitlines()
    memory = psutil.Process(process.pid).memory_info().rss
    assert process.terminate() == 0
    storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
    assert len(stored_events(storage, index)) == 10_000
    assert len(list(storage.list())) <= 20
    names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    assert max(names.count(name) for name in names) <= 100
    assert memory <= budget + 300 * _MIB

"""001's health routes: every field, and 503 when something is red."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from onex_platform.capture.api.http import HttpServer
from onex_platform.capture.captured_events import CutReason
from onex_platform_tests.support.snapshotters import Snapshotter, config_for, snapshotter

_NINE = (
    "buffer_size_bytes",
    "buffer_event_count",
    "buffer_age_seconds",
    "page_writes_total",
    "page_write_duration_seconds_count",
    "page_size_bytes_count",
    "index_publish_errors_total",
    "storage_errors_total",
    "session_disconnects_total",
)
_BUFFERS = {
    "active_writers": 1,
    "total_buffered_events": 1,
    "writers_exceeding_age_limit": 0,
    "log": "open",
}


class _Answer(NamedTuple):
    status_code: int
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


async def _get(running: Snapshotter, route: str) -> _Answer:
    """Ask a server of its own, over HTTP."""
    server = HttpServer(running.instance)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    answer = await asyncio.to_thread(_ask, server.port, route)
    server.should_exit = True
    await serving
    return answer


def _ask(port: int, route: str) -> _Answer:
    try:
        with urlopen(f"http://127.0.0.1:{port}{route}") as response:
            return _Answer(response.status, response.read().decode())
    except HTTPError as error:
        return _Answer(error.code, error.read().decode())


async def _publish(running: Snapshotter) -> None:
    async with running.client() as client:
        await client.publish(client.event("writer", b"event"))


def test_buffers_tell_what_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            await _publish(running)
            answer = await _get(running, "/health/buffers")
            assert answer.status_code == 200
            assert _BUFFERS.items() <= answer.json().items()
            assert answer.json()["total_buffer_size_bytes"] > 0
            assert answer.json()["oldest_buffer_age_seconds"] >= 0
            running.instance.intake.draining = True
            assert (await _get(running, "/health/buffers")).status_code == 503

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("/health/storage", {"last_write_success", "write_success_rate", "avg_write_latency_ms"}),
        ("/health/index", {"last_publish_success", "publish_success_rate", "index_entry_count"}),
    ],
)
def test_a_slot_that_fails_is_red_until_it_works_again(
    tmp_path: Path, route: str, fields: set[str]
) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            slot = running.storage if route.endswith("storage") else running.index
            slot.down = True
            await _publish(running)
            running.instance.intake.cut_all(CutReason.FLUSH)
            async with asyncio.timeout(20):
                while (answer := await _get(running, route)).status_code != 503:
                    await asyncio.sleep(0.02)
                assert answer.json()["status"] == "unhealthy"
                assert _age(running, "unindexed") > 0
                assert (_age(running, "unflushed") > 0) == (slot is running.storage)
                slot.down = False
                while (answer := await _get(running, route)).json()["status"] != "healthy":
                    await asyncio.sleep(0.02)
            assert fields | {"backend"} <= answer.json().keys()

    asyncio.run(scenario())


def _age(running: Snapshotter, what: str) -> float:
    name = f"snapshotter_oldest_{what}_seconds"
    return running.instance.metrics.registry.get_sample_value(name) or 0.0


def test_the_metrics_have_001s_names_and_few_series(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            async with running.client() as client:
                events = [client.event(f"writer-{number}", b"x") for number in range(50)]
                await client.publish_batch(events)
                await client.flush("writer-0")
            text = (await _get(running, "/metrics")).text
        for name in _NINE:
            assert f"snapshotter_{name}" in text
        ages = [line for line in text.splitlines() if line.startswith("snapshotter_buffer_age")]
        assert len(ages) == 21
        assert any('writer_id="other"' in line for line in ages)

    asyncio.run(scenario())

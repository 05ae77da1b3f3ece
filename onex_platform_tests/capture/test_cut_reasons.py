"""Every way in which a page comes to be cut: the reason stands in page, index and metric."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from onex_platform.capture.api.client import CaptureClient
from onex_platform.capture.captured_events import CutReason, Durability, PageEntry
from onex_platform.capture.codecs import read_page
from onex_platform.capture.slots import PageQuery
from onex_platform_tests.support.snapshotters import Snapshotter, config_for, snapshotter

Act = Callable[[CaptureClient], Awaitable[None]]
_AT_ONCE = {"linger_seconds": 0}


def _publish(count: int, size: int = 10) -> Act:
    async def act(client: CaptureClient) -> None:
        for _ in range(count):
            await client.publish(client.event("w", bytes(size)))

    return act


async def _flush(client: CaptureClient) -> None:
    await _publish(1)(client)
    assert await client.flush("w") == 1


async def _ask_for_storage(client: CaptureClient) -> None:
    await client.publish(client.event("w", b"x", durability=Durability.STORED))


async def _stream(client: CaptureClient) -> None:
    async def events() -> AsyncIterator[Any]:
        yield client.event("w", b"x")

    assert [result.code async for result in client.session(events())] == [0]


async def _die_in_mid_stream(client: CaptureClient) -> None:
    """A client that is killed: its channel ends while its stream is open."""

    async def events() -> AsyncIterator[Any]:
        yield client.event("w", b"x")
        await asyncio.Event().wait()

    async for result in client.session(events()):
        assert result.code == 0
        break
    await client.close()


@pytest.mark.parametrize(
    ("sections", "act", "reason"),
    [
        ({"buffer": {"max_events": 3}}, _publish(3), CutReason.COUNT),
        ({"buffer": {"max_size_bytes": 4096}}, _publish(3, size=2000), CutReason.SIZE),
        ({"buffer": {"max_age_seconds": 0.3}}, _publish(1), CutReason.AGE),
        ({"buffer": {"idle_seconds": 0.3, **_AT_ONCE}}, _publish(1), CutReason.SESSION_END),
        ({"buffer": _AT_ONCE}, _stream, CutReason.SESSION_END),
        ({"buffer": _AT_ONCE}, _die_in_mid_stream, CutReason.SESSION_END),
        ({}, _flush, CutReason.FLUSH),
        ({}, _ask_for_storage, CutReason.REQUESTED),
        (
            {"buffer": {"max_size_bytes": 60_000}, "limits": {"memory_bytes": 60_000}},
            _publish(125),  # what can't be spilled of small events is most of them
            CutReason.BUDGET,
        ),
    ],
    ids=["count", "size", "age", "idle", "stream", "killed", "flush", "requested", "budget"],
)
def test_a_page_says_why_it_was_cut(
    tmp_path: Path, sections: dict[str, Any], act: Act, reason: CutReason
) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path, **sections), tmp_path) as running:
            async with running.client() as client:
                await act(client)
            async with asyncio.timeout(20):
                while not _entries(running):
                    await asyncio.sleep(0.01)
            _require_reason(running, _entries(running)[0], reason)

    asyncio.run(scenario())


def test_what_is_left_at_the_end_is_cut_by_the_shutdown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            snapshotter(config_for(tmp_path), tmp_path) as running,
            running.client() as client,
        ):
            await _publish(1)(client)
        _require_reason(running, _entries(running)[0], CutReason.SHUTDOWN)

    asyncio.run(scenario())


def test_the_end_of_a_stream_cuts_nothing_if_that_is_not_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(
            tmp_path, buffer={"flush_on_disconnect": False, "idle_seconds": 0.1, **_AT_ONCE}
        )
        async with snapshotter(config, tmp_path) as running:
            async with running.client() as client:
                await _stream(client)
            running.instance.intake.tick(monotonic() + 60, flush_idle=False)
        assert [entry.info.reason for entry in _entries(running)] == [CutReason.SHUTDOWN]

    asyncio.run(scenario())


def _entries(running: Snapshotter) -> list[PageEntry]:
    return list(running.index.query(PageQuery("default")))


def _require_reason(running: Snapshotter, entry: PageEntry, reason: CutReason) -> None:
    assert entry.info.reason == reason
    assert read_page(running.storage.get(entry.key)).info.reason == reason
    written = running.instance.metrics.registry.get_sample_value(
        "snapshotter_page_writes_total", {"reason": reason.value}
    )
    assert written

"""What goes wrong on the local disk: it fills, fails, flips; no promise is broken by it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from onex_platform.base.errors import InfraConnectionError
from onex_platform.capture.api.messages import pubsub
from onex_platform.capture.api.requests import Publication
from onex_platform.capture.captured_events import Durability, PageEntry
from onex_platform.capture.flush.retrying import IndexQueue
from onex_platform.capture.instance import Instance
from onex_platform.capture.slots import ObjectHead
from onex_platform.capture.wal.disk import FolderDisk
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage, stored_events
from onex_platform_tests.support.snapshotters import Snapshotter, config_for, snapshotter


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def _payloads(running: Snapshotter, writer: str = "w") -> list[bytes]:
    events = stored_events(running.storage, running.index)
    return [event.payload for event in events.get(writer, [])]


def test_a_full_disk_refuses_with_a_delay_and_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path, wal={"segment_bytes": 64 * 1024}, limits={
            "max_event_bytes": 4096})  # fmt: skip
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            create, room = FolderDisk.create, asyncio.Event()

            def full(disk: FolderDisk, name: str, size: int) -> Any:
                if size and not room.is_set():
                    raise OSError(errno.ENOSPC, "disk full")
                return create(disk, name, size)

            await client.publish(client.event("w", b"first"))
            monkeypatch.setattr(FolderDisk, "create", full)
            waiting = asyncio.gather(
                *(client.publish(client.event("w", bytes(4000))) for _ in range(40))
            )
            await _until(lambda: running.instance.log_state == "full")
            room.set()
            receipts = await waiting
            assert sorted(receipt.sequence for receipt in receipts) == list(range(2, 42))
        assert len(_payloads(running)) == 41

    asyncio.run(scenario())


def test_a_disk_that_fails_is_unavailable_and_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "the device is gone")

    async def scenario() -> None:
        config = config_for(tmp_path)
        messages, services = pubsub()
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            await client.publish(client.event("w", b"promised"))
            with monkeypatch.context() as failing:
                failing.setattr("onex_platform.capture.wal.disk.os.fdatasync", fail)
                async with grpc.aio.insecure_channel(running.target) as channel:
                    stub = services.PubSubBasicInterfaceStub(channel)
                    for _ in range(2):
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await stub.Publish(messages.PublishRequest(topic="w", payload=b"-"))
                        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert running.instance.log_state == "broken"
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            receipt = await client.publish(client.event("w", b"afterwards"))
        payloads = _payloads(running)
        assert receipt.sequence == len(payloads)
        # Nobody was told of the one in between: it is there once or not at all.
        assert payloads in ([b"promised", b"afterwards"], [b"promised", b"-", b"afterwards"])

    asyncio.run(scenario())


def test_a_full_disk_delays_the_queue_of_the_index_and_nothing_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, removed = IndexQueue.add, IndexQueue.remove
    accidents = iter([True] * 3)

    def add(queue: IndexQueue, entry: PageEntry) -> None:
        if next(accidents, False):
            raise OSError(errno.ENOSPC, "disk full")
        written(queue, entry)

    def remove(queue: IndexQueue, page_id: str) -> None:
        if next(accidents, False):
            raise OSError(errno.EIO, "the device is slow to answer")
        removed(queue, page_id)

    async def scenario() -> None:
        nonlocal accidents
        monkeypatch.setattr(IndexQueue, "add", add)
        monkeypatch.setattr(IndexQueue, "remove", remove)
        async with (
            snapshotter(config_for(tmp_path), tmp_path) as running,
            running.client() as client,
        ):
            await client.publish(client.event("w", b"x", durability=Durability.STORED))
            accidents = iter([True] * 2)
            await client.publish(client.event("w", b"y", durability=Durability.INDEXED))
            assert not running.instance.intake.pages
        assert _payloads(running) == [b"x", b"y"]

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["", '{"instance": "te', "\0" * 100])
def test_an_owners_file_that_was_cut_short_does_not_keep_the_log_from_being_recovered(
    tmp_path: Path, text: str
) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            await client.publish(client.event("w", b"x"))
        (config.wal.folder / "owner").write_text(text)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            assert (await client.publish(client.event("w", b"y"))).sequence == 2

    asyncio.run(scenario())


def test_a_flipped_byte_of_the_log_costs_one_event_and_is_kept_for_inspection(
    tmp_path: Path,
) -> None:
    async def write() -> None:
        storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        storage.down = True
        instance = Instance(config_for(tmp_path), storage, index)
        await instance.start()
        for number in range(10):
            asked = Publication("default", "w", b"payload-%d" % number, {})
            instance.intake.publish(asked, now=0.0, now_us=1, done=None)
        await instance.stop(0.2)

    asyncio.run(write())
    [segment] = (tmp_path / "wal" / "wal").glob("*.wal")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"payload-4", b"paYload-4", 1))

    async def recover() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            metrics = running.instance.metrics.registry
            assert metrics.get_sample_value("snapshotter_wal_damaged_records_total") == 1
        assert _payloads(running) == [b"payload-%d" % number for number in range(10) if number != 4]

    asyncio.run(recover())
    [damaged] = (tmp_path / "wal" / "wal").glob("*.damaged")
    assert b"paYload-4" in damaged.read_bytes()


class _LosingReplies(FolderStorage):
    def put(self, key: str, data: bytes, **rest: Any) -> ObjectHead:
        super().put(key, data, **rest)
        raise InfraConnectionError("The reply was lost.")


def test_a_stored_page_wins_over_a_log_that_was_damaged_since(tmp_path: Path) -> None:
    async def write() -> None:
        storage, index = _LosingReplies(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        instance = Instance(config_for(tmp_path), storage, index)
        await instance.start()
        for number in range(10):
            asked = Publication("default", "w", b"payload-%d" % number, {})
            instance.intake.publish(asked, now=0.0, now_us=1, done=None)
        assert not await instance.stop(0.5)

    asyncio.run(write())
    [segment] = (tmp_path / "wal" / "wal").glob("*.wal")
    segment.write_bytes(segment.read_bytes().replace(b"payload-4", b"paYload-4", 1))

    async def recover() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            await _until(lambda: running.index.count() == 1)
        assert _payloads(running) == [b"payload-%d" % number for number in range(10)]

    asyncio.run(recover())
    assert len(list(FolderStorage(tmp_path / "pages").list())) == 1

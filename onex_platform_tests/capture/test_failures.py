"""What goes wrong outside: each failure has a defined answer, and none of them loses an event."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import grpc
import pytest

from onex_platform.base.errors import ConfigurationError, InfraConnectionError, OnexError
from onex_platform.capture.api.messages import pubsub
from onex_platform.capture.api.requests import Publication
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.instance import Instance
from onex_platform.capture.slots import ObjectHead, PageQuery
from onex_platform.capture.wal.disk import FolderDisk
from onex_platform.capture.wal.ownership import Ownership
from onex_platform_tests.support.plain_slots import FolderIndex, FolderStorage, stored_events
from onex_platform_tests.support.snapshotters import Snapshotter, config_for, snapshotter


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def _payloads(running: Snapshotter, writer: str = "w") -> list[bytes]:
    events = stored_events(running.storage, running.index)
    return [event.payload for event in events.get(writer, [])]


def test_storage_down_beyond_every_budget_pushes_back_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(
            tmp_path,
            buffer={"max_events": 50, "max_size_bytes": 64 * 1024},
            limits={"max_event_bytes": 4096, "memory_bytes": 128 * 1024},
            wal={"segment_bytes": 64 * 1024, "max_bytes": 256 * 1024, "min_free_bytes": 0},
        )
        async with snapshotter(config, tmp_path) as running:
            running.storage.down = True
            messages, services = pubsub()
            taken = []
            async with grpc.aio.insecure_channel(running.target) as channel:
                stub = services.PubSubBasicInterfaceStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    for number in range(1000):
                        payload = b"%d:" % number + bytes(3000)
                        await stub.Publish(messages.PublishRequest(topic="w", payload=payload))
                        taken.append(payload)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert (
                    b"RetryInfo"
                    in dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
                )
                assert running.instance.intake.memory.resident_bytes <= config.limits.memory_bytes
                running.storage.down = False
            async with running.client() as client:
                last = await client.publish(client.event("w", b"after"))
                assert last.sequence == len(taken) + 1
        assert _payloads(running) == [*taken, b"after"]

    asyncio.run(scenario())


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
            await _until(lambda: running.instance.log_state == "full" or waiting.done())
            room.set()
            receipts = await waiting
            assert sorted(receipt.sequence for receipt in receipts) == list(range(2, 42))
        assert len(_payloads(running)) == 41

    asyncio.run(scenario())


def test_a_down_index_never_blocks_pages_and_is_caught_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with snapshotter(config_for(tmp_path), tmp_path) as running:
            running.index.down = True
            async with running.client() as client:
                receipt = await client.publish(
                    client.event("w", b"x", durability=Durability.STORED)
                )
                assert receipt.durability is Durability.STORED
                assert (await client.watermark("w")).indexed_sequence == 0
                running.index.down = False
                await client.flush("w", Durability.INDEXED)
            assert _payloads(running) == [b"x"]

    asyncio.run(scenario())


def test_an_entry_that_was_not_indexed_is_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        index.down = True
        instance = Instance(config, storage, index)
        await instance.start()
        instance.intake.publish(_publication(), now=0.0, now_us=1, done=None)
        assert not await instance.stop(0.5)
        assert index.folder.exists() and not list(index.query(PageQuery("default")))
        async with snapshotter(config, tmp_path) as running:
            await _until(lambda: running.index.count() == 1)
        assert _payloads(running) == [b"payload"]

    asyncio.run(scenario())


def _publication() -> Publication:
    return Publication("default", "w", b"payload", {})


class _Refusing(FolderStorage):
    def put(self, key: str, data: bytes, **rest: Any) -> ObjectHead:
        raise OnexError("The bucket does not exist.")


def test_a_page_that_no_retry_can_save_is_a_dead_letter_and_can_be_redriven(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        index = FolderIndex(tmp_path / "index")
        instance = Instance(config, _Refusing(tmp_path / "pages"), index)
        await instance.start()
        instance.intake.publish(_publication(), now=0.0, now_us=1, done=None)
        await instance.stop(5.0)

    asyncio.run(scenario())
    letters = DeadLetters(tmp_path / "wal" / "dead_letters")
    [letter] = letters.letters()
    assert "bucket does not exist" in letter.error
    storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
    letters.redrive(letter.entry.info.page_id, storage, index)
    assert len(letters) == 0
    assert [event.payload for event in stored_events(storage, index)["w"]] == [b"payload"]


def test_a_clock_that_jumps_both_ways_changes_neither_age_nor_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            for jump in (0, 400 * 86_400, -400 * 86_400):
                moment = time.time_ns() + jump * 1_000_000_000
                monkeypatch.setattr(
                    "onex_platform.capture.api.capture_service.time.time_ns", lambda m=moment: m
                )
                again = [await client.publish(client.event("w", b"x", event_id=f"{jump}"))
                         for _ in range(2)]  # fmt: skip
                assert [receipt.duplicate for receipt in again] == [False, True]
            assert not running.instance.intake.pages
        [entry] = running.index.query(PageQuery("default"))
        assert entry.info.start_time_us < entry.info.end_time_us
        assert entry.info.writers[0].last_sequence == 3

    asyncio.run(scenario())


def test_a_second_process_is_refused_by_the_owners_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running:
            with pytest.raises(ConfigurationError, match="in use by instance 'test', process"):
                Instance(config, running.storage, running.index)

    asyncio.run(scenario())


def test_a_sealed_log_can_be_taken_over_and_an_open_one_not(tmp_path: Path) -> None:
    storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
    storage.down = True

    async def first() -> None:
        instance = Instance(config_for(tmp_path, instance="one"), storage, index)
        await instance.start()
        instance.intake.publish(_publication(), now=0.0, now_us=1, done=None)
        assert not await instance.stop(0.3)

    asyncio.run(first())

    async def second() -> None:
        async with snapshotter(config_for(tmp_path, instance="two"), tmp_path) as running:
            await _until(lambda: running.index.count() == 1)

    asyncio.run(second())
    Ownership(config_for(tmp_path).wal.folder, "two").release()
    with pytest.raises(ConfigurationError, match="log of instance 'two'"):
        Instance(config_for(tmp_path, instance="three"), storage, index)
    assert [event.payload for event in stored_events(
        FolderStorage(tmp_path / "pages"), index)["w"]] == [b"payload"]  # fmt: skip


def test_a_log_of_another_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "wal" / "wal"

    async def write() -> None:
        storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        storage.down = True
        instance = Instance(config_for(tmp_path), storage, index)
        await instance.start()
        instance.intake.publish(_publication(), now=0.0, now_us=1, done=None)
        await instance.stop(0.2)

    asyncio.run(write())
    [segment] = folder.glob("*.wal")
    _raise_version(segment)
    before = segment.read_bytes()

    async def start() -> None:
        storage, index = FolderStorage(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        await Instance(config_for(tmp_path), storage, index).start()

    with pytest.raises(ConfigurationError, match=f"{segment.name} has version 2"):
        asyncio.run(start())
    assert segment.read_bytes() == before


def _raise_version(segment: Path) -> None:
    """Both copies of the header say version 2, with checksums that fit."""
    data = bytearray(segment.read_bytes())
    for start in (0, 512):
        data[start + 8] = 2
        data[start + 40 : start + 44] = crc32(data[start : start + 40]).to_bytes(4, "little")
    segment.write_bytes(data)


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


class _Taken(FolderStorage):
    """Somebody else's object lies under the first key that is asked for."""

    def put(self, key: str, data: bytes, **rest: Any) -> ObjectHead:
        if not list(self.list()):
            super().put(key, b"somebody else's", **rest)
        return super().put(key, data, **rest)


def test_a_key_that_is_taken_is_left_alone_and_the_page_gets_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage, index = _Taken(tmp_path / "pages"), FolderIndex(tmp_path / "index")
        instance = Instance(config_for(tmp_path), storage, index)
        await instance.start()
        instance.intake.publish(_publication(), now=0.0, now_us=1, done=None)
        assert await instance.stop(5.0)
        [event] = stored_events(storage, index)["w"]
        assert event.payload == b"payload"
        assert b"somebody else's" in {storage.get(head.key) for head in storage.list()}

    asyncio.run(scenario())

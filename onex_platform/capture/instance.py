"""One running snapshotter: owner of its folder, its log recovered, its pages on their way.

`start` takes up whatever an earlier process left. `stop` takes no further events, cuts every
buffer, waits a bounded time for the pages, then seals the log: what could not be stored stays in
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from zlib import crc32

from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.capture.acceptance import Intake
from onex_platform.capture.api.metrics import Metrics
from onex_platform.capture.captured_events import CutReason
from onex_platform.capture.codecs import page_codec
from onex_platform.capture.config import CaptureConfig
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.flushing import Flusher
from onex_platform.capture.flush.page_making import Page, PageStyle
from onex_platform.capture.flush.retrying import Backoff, IndexQueue
from onex_platform.capture.read.kafka_relay import Relay
from onex_platform.capture.slots import ObjectStorage, PageCodec, PageIndex
from onex_platform.capture.wal.commit import Outcome, WriteAheadLog
from onex_platform.capture.wal.disk import FolderDisk, read_file, write_file
from onex_platform.capture.wal.ownership import Ownership
from onex_platform.capture.wal.recovery import recover
from onex_platform.capture.writers import IdMemory

CHECKPOINT = "checkpoint"
TICK_SECONDS = 0.2
DRAIN_SECONDS = 15.0


class Instance:
    """Everything of a snapshotter but its network side."""

    def __init__(
        self,
        config: CaptureConfig,
        storage: ObjectStorage,
        index: PageIndex,
        relay: Relay | None = None,
    ) -> None:
        self.config = config
        self.storage = storage
        self.index = index
        self.relay = relay
        self.metrics = Metrics()
        codec = config.codec()
        folder = config.wal.folder
        self.dead_letters = DeadLetters(folder / "dead_letters")
        self.intake = Intake(
            style=PageStyle(
                codec.format, codec.compression, dict(config.page.tags), config.keys().key
            ),
            limits=config.cut_limits(),
            budget=config.budget(),
            request_limits=config.request_limits(),
            ids=IdMemory(config.ids.max_age_seconds, config.ids.max_count),
            flush=self._submit,
            relay=relay,
        )
        retry = config.retry
        self.flusher = Flusher(
            self.intake,
            storage,
            index,
            self._codec,
            queue=IndexQueue(folder / "index_queue"),
            dead_letters=self.dead_letters,
            backoff=Backoff(retry.first_seconds, retry.max_seconds, retry.max_attempts),
            metrics=self.metrics,
            index_synchronously=config.index.mode == "sync",
        )
        self._disk = FolderDisk(folder / "wal")
        self._ownership = Ownership(folder, config.instance)
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._health_listeners: list[Callable[[bool], Awaitable[None]]] = []

    @property
    def is_well(self) -> bool:
        """Whether this instance takes events."""
        return self.log_state == "open"

    @property
    def log_state(self) -> str:
        if self.intake.draining:
            return "draining"
        if self.log.is_broken:
            return "broken"
        return "full" if self.log.is_refusing else "open"

    def on_health(self, listener: Callable[[bool], Awaitable[None]]) -> None:
        """Hear whenever the instance becomes well or unwell."""
        self._health_listeners.append(listener)

    def _codec(self, page_format: str, compression: str) -> PageCodec:
        include = self.config.page.include_metadata
        return page_codec(page_format, compression, include_metadata=include)

    def _submit(self, page: Page) -> None:
        self.flusher.submit(page)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.relay is not None:
            await self.relay.open()
        found, records = recover(self._disk)
        pages = self.intake.recover(self._checkpoint(), records, monotonic())
        self.metrics.damaged.inc(found.damaged)
        self.log = WriteAheadLog(
            self._disk,
            self.config.log_limits(),
            self._deliver,
            segments=found.segments,
            next_lsn=found.next_lsn,
        )
        self.intake.attach(self.log)
        self.log.start()
        self.metrics.watch(self.intake)
        await self.flusher.start()
        for page in pages:
            self.flusher.submit(page)
        self._releasing = asyncio.create_task(self._release())
        work = [self._tick()]
        if self.relay is not None:
            work.append(self.relay.run(self.intake.event_at, self.intake.relayed))
        self._tasks = [asyncio.create_task(one) for one in work]
        get_logger(__name__).info(
            "capture.started",
            recovered=found.records,
            damaged=found.damaged,
            torn_bytes=found.torn_bytes,
            pages=len(pages),
        )

    def _checkpoint(self) -> bytes | None:
        """The newest checkpoint that is whole."""
        for name in (CHECKPOINT, f"{CHECKPOINT}.previous"):
            if name not in self._disk.names():
                continue
            data = read_file(self._disk, name)
            if crc32(data[4:]) == int.from_bytes(data[:4], "little"):
                return data[4:]
            self.metrics.damaged.inc()
            get_logger(__name__).error("capture.checkpoint_damaged", file=name)
        return None

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        """From the commit thread to the loop."""
        self._loop.call_soon_threadsafe(self._committed, outcomes)

    def _committed(self, outcomes: Sequence[Outcome]) -> None:
        self.intake.committed(outcomes, monotonic())

    async def _tick(self) -> None:
        was_well = None
        while True:
            if was_well != self.is_well:
                was_well = self.is_well
                await self._tell_health(was_well)
            await asyncio.sleep(TICK_SECONDS)
            self.intake.tick(monotonic(), self.config.buffer.flush_on_disconnect)

    async def _tell_health(self, is_well: bool) -> None:
        for listener in self._health_listeners:
            await listener(is_well)

    async def _release(self) -> None:
        """Never cancelled: what it does in a thread would go on beside the last release."""
        while not self._stopping.is_set():
            await self._release_now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)

    async def _release_now(self) -> None:
        if not (free := self.intake.releasable()):
            return
        data = self.intake.checkpoint(monotonic())
        try:
            await asyncio.to_thread(self._write_checkpoint, data)
            await asyncio.to_thread(self.log.release, free)
        except OSError as error:  # a full disk: the segments stay until there is room
            get_logger(__name__).warning("capture.checkpoint_failed", error=str(error))

    def _write_checkpoint(self, data: bytes) -> None:
        with effect("checkpoint.write"):
            if CHECKPOINT in self._disk.names():
                self._disk.rename(CHECKPOINT, f"{CHECKPOINT}.previous")
            write_file(self._disk, CHECKPOINT, crc32(data).to_bytes(4, "little") + data)

    async def stop(self, drain_seconds: float = DRAIN_SECONDS) -> bool:
        """End in order; whether everything is stored and indexed."""
        self.intake.draining = True
        await self._tell_health(False)
        until = monotonic() + drain_seconds
        while self.log.outstanding and monotonic() < until:
            await asyncio.sleep(0.01)
        self.intake.cut_all(CutReason.SHUTDOWN)
        drained = await self.flusher.drain(max(0.0, until - monotonic()))
        while self.relay is not None and self.relay.waiting and monotonic() < until:
            await asyncio.sleep(0.02)
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._releasing, *self._tasks, return_exceptions=True)
        await self.flusher.stop()
        await asyncio.to_thread(self.log.stop)
        await asyncio.sleep(0)  # the last outcomes
        await self._release_now()
        if self.relay is not None:
            await asyncio.to_thread(self.relay.retire_if_done)
        self._ownership.seal()
        get_logger(__name__).info("capture.stopped", drained=drained)
        return drained

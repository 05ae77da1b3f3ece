"""Pages on their way out: encoded, stored and confirmed, indexed; tried again until they are.

Storage and index are apart: a page that is stored leaves the log even if the index is down, because
its entry waits in a queue on the local disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from onex_platform.base.errors import OnexError
from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.capture.acceptance import Intake
from onex_platform.capture.api.metrics import Metrics, SlotHealth
from onex_platform.capture.captured_events import EncodedPage, PageEntry
from onex_platform.capture.codecs import read_page
from onex_platform.capture.errors import ObjectExistsError, PageFormatError
from onex_platform.capture.flush.dead_letters import DeadLetters
from onex_platform.capture.flush.page_json import info_to_attributes
from onex_platform.capture.flush.page_making import Page
from onex_platform.capture.flush.retrying import RETRIED, Backoff, IndexQueue
from onex_platform.capture.slots import ObjectStorage, PageCodec, PageIndex
from onex_platform.log.page_format import checksum_of

_Result = TypeVar("_Result")

_WORKERS = 4
_INDEX_BATCH = 100
_DRAINING_DELAY = 0.5  # while the service stops, nobody waits five minutes for the next attempt


class Flusher:
    """Takes pages from the intake and tells it how far they got. Blocking calls run in threads."""

    def __init__(
        self,
        intake: Intake,
        storage: ObjectStorage,
        index: PageIndex,
        codec: Callable[[str, str], PageCodec],
        *,
        queue: IndexQueue,
        dead_letters: DeadLetters,
        backoff: Backoff,
        metrics: Metrics,
        index_synchronously: bool = False,
    ) -> None:
        self._intake = intake
        self._storage = storage
        self._index = index
        self._codec = codec
        self._queue = queue
        self._dead_letters = dead_letters
        self._backoff = backoff
        self._metrics = metrics
        self._sync_index = index_synchronously
        self._pages: asyncio.Queue[Page] = asyncio.Queue()
        self._entries: dict[str, tuple[PageEntry, Page | None]] = {}
        self._entries_wait = asyncio.Event()
        self._draining = asyncio.Event()
        self._threads = ThreadPoolExecutor(_WORKERS + 1, thread_name_prefix="capture")
        self._tasks: list[asyncio.Task[None]] = []
        self.storage_health = SlotHealth(storage.backend)
        self.index_health = SlotHealth(index.backend)

    def submit(self, page: Page) -> None:
        self._pages.put_nowait(page)

    async def start(self) -> None:
        """Begin with what an earlier process stored and did not index."""
        for entry in await self._in_thread(lambda: list(self._queue.entries())):
            self._entries[entry.info.page_id] = (entry, None)
        self._entries_wait.set()
        work = [self._store_pages() for _ in range(_WORKERS)]
        self._tasks = [asyncio.create_task(one) for one in [*work, self._index_pages()]]

    async def drain(self, seconds: float) -> bool:
        """Wait until every page is stored and indexed, at most so long; whether that was so."""
        self._draining.set()
        until = monotonic() + seconds
        while (self._intake.pages or self._entries) and monotonic() < until:
            await asyncio.sleep(0.02)
        return not self._intake.pages and not self._entries

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=True)

    async def _store_pages(self) -> None:
        while True:
            page = await self._pages.get()
            try:
                await self._store_once_the_disk_has_room(page)
            except Exception as error:
                # Whatever it is, the page is in the log, and the next start finds it there.
                get_logger(__name__).exception("capture.page_failed", error=str(error))
                self.storage_health.failed(error)

    async def _store_once_the_disk_has_room(self, page: Page) -> None:
        """The local disk holds what waits for the index, and dead letters. If it takes neither, the
        page is stored again, as itself: it is what makes room in the log."""
        failures = 0
        while True:
            try:
                await self._store(page)
            except OSError as error:
                failures += 1
                get_logger(__name__).warning("capture.disk_failed", error=str(error))
                await self._pause(failures)
            else:
                return

    async def _store(self, page: Page) -> None:
        encoded = await self._in_thread(self._encoded, page)
        entry = _entry(page, encoded)
        while True:
            started = monotonic()
            try:
                entry = await self._in_thread(self._put, entry, encoded)
            except RETRIED as error:
                page.attempts += 1
                self._storage_failed(error)
                if self._backoff.is_spent(page.attempts) and not self._draining.is_set():
                    await self._give_up(page, entry, encoded, error)
                    return
                await self._pause(page.attempts)
            except OnexError as error:
                self._storage_failed(error)
                await self._give_up(page, entry, encoded, error)
                return
            else:
                self._stored(page, entry, monotonic() - started)
                await self._hand_to_index(page, entry)
                return

    def _encoded(self, page: Page) -> EncodedPage:
        info = page.info
        return self._codec(info.format, info.compression).encode(info, self._intake.events_of(page))

    def _put(self, entry: PageEntry, encoded: EncodedPage) -> PageEntry:
        """Store the page, confirmed; the entry that is true of what lies there now."""
        codec = self._codec(entry.info.format, entry.info.compression)
        attributes = info_to_attributes(entry.info, entry.checksum)
        try:
            with effect("page.put"):
                self._storage.put(
                    entry.key, encoded.data, content_type=codec.content_type, attributes=attributes
                )
        except ObjectExistsError:
            return self._beside_another(entry, encoded)
        return entry

    def _beside_another(self, entry: PageEntry, encoded: EncodedPage) -> PageEntry:
        """The key holds other bytes. If they are this page with more events, from before a record
        of the log was damaged, they win; anything else keeps its key, and ours gets another."""
        data = self._storage.get(entry.key)
        try:
            there = read_page(data)
        except PageFormatError:
            there = None
        wanted = {
            (span.writer_id, number)
            for span in entry.info.writers
            for number in range(span.first_sequence, span.last_sequence + 1)
        }
        if there is not None and there.info.page_id == entry.info.page_id:
            held = {(event.writer_id, event.sequence) for event in there.events}
            if wanted <= held:
                return PageEntry(there.info, entry.key, len(data), checksum_of(data))
        stem, dot, extension = entry.key.rpartition("/")[2].partition(".")
        folder = entry.key[: len(entry.key) - len(stem + dot + extension)]
        moved = replace(entry, key=f"{folder}{stem}-{entry.checksum[:8]}{dot}{extension}")
        return self._put(moved, encoded)

    def _storage_failed(self, error: Exception) -> None:
        self.storage_health.failed(error)
        self._metrics.storage_errors.inc()
        get_logger(__name__).warning("capture.storage_failed", error=str(error))

    def _stored(self, page: Page, entry: PageEntry, seconds: float) -> None:
        self.storage_health.succeeded(seconds)
        self._metrics.page_writes.labels(page.info.reason).inc()
        self._metrics.write_seconds.observe(seconds)
        self._metrics.page_bytes.observe(entry.storage_size_bytes)

    async def _give_up(
        self, page: Page, entry: PageEntry, encoded: EncodedPage, error: Exception
    ) -> None:
        content_type = self._codec(page.info.format, page.info.compression).content_type
        await self._in_thread(self._dead_letters.add, entry, encoded.data, content_type, str(error))
        self._metrics.dead_letters.inc()
        get_logger(__name__).error("capture.dead_letter", page=entry.key, error=str(error))
        self._intake.page_safe(page)

    async def _hand_to_index(self, page: Page, entry: PageEntry) -> None:
        """Let the log forget the page once its entry is safe too."""
        if self._sync_index:
            try:
                await self._publish([entry])
            except OnexError:
                pass  # a down index never blocks pages: the queue takes it from here
            else:
                self._intake.page_stored(page)
                self._intake.page_indexed(page)
                return
        await self._in_thread(self._queue.add, entry)
        self._entries[entry.info.page_id] = (entry, page)
        self._entries_wait.set()
        self._intake.page_stored(page)

    async def _index_pages(self) -> None:
        failures = 0
        while True:
            await self._entries_wait.wait()
            batch = list(self._entries.values())[:_INDEX_BATCH]
            if not batch:
                self._entries_wait.clear()
                continue
            try:
                await self._publish([entry for entry, _ in batch])
                for entry, page in batch:
                    await self._in_thread(self._queue.remove, entry.info.page_id)
                    del self._entries[entry.info.page_id]
                    if page is not None:
                        self._intake.page_indexed(page)
            except Exception as error:
                failures += 1
                get_logger(__name__).warning("capture.index_failed", error=str(error))
                await self._pause(failures)
            else:
                failures = 0

    async def _publish(self, entries: list[PageEntry]) -> None:
        started = monotonic()
        try:
            await self._in_thread(self._publish_now, entries)
        except Exception as error:
            self.index_health.failed(error)
            self._metrics.index_errors.inc()
            raise
        self.index_health.succeeded(monotonic() - started)

    def _publish_now(self, entries: list[PageEntry]) -> None:
        with effect("index.publish"):
            self._index.publish(entries)

    async def _pause(self, failures: int) -> None:
        delay = self._backoff.delay(failures)
        if self._draining.is_set():
            await asyncio.sleep(min(delay, _DRAINING_DELAY))
            return
        try:
            await asyncio.wait_for(self._draining.wait(), delay)
        except TimeoutError:
            return

    async def _in_thread(self, work: Callable[..., _Result], *values: Any) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *values)


def _entry(page: Page, encoded: EncodedPage) -> PageEntry:
    return PageEntry(encoded.info, page.key, len(encoded.data), checksum_of(encoded.data))

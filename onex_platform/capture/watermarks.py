"""How far each writer's events got, and who waits for them to get further."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from onex_platform.base.errors import OnexError
from onex_platform.capture.buffers import Buffers
from onex_platform.capture.captured_events import Durability
from onex_platform.capture.flush.page_making import Page
from onex_platform.capture.writers import WriterKey, Writers

Done = Callable[[OnexError | None], None]
_Spans = dict[WriterKey, deque[tuple[str, int]]]


class Watermarks:
    """A watermark moves over a writer's pages in the order of its events: it stands before the
    first one that did not get that far, whatever later ones did."""

    def __init__(self, writers: Writers, buffers: Buffers) -> None:
        self._writers = writers
        self._buffers = buffers
        # Page ids with their first sequence, per writer, oldest first.
        self._open: dict[Durability, _Spans] = {Durability.STORED: {}, Durability.INDEXED: {}}
        self._waiting: dict[WriterKey, list[tuple[int, int, Durability, Done]]] = {}
        self._order = count()

    def cut(self, page: Page) -> None:
        """A page holds its writers' events now; they are neither stored nor indexed."""
        for span in page.info.writers:
            key = (page.info.tenant, span.writer_id)
            for spans in self._open.values():
                spans.setdefault(key, deque()).append((page.info.page_id, span.first_sequence))

    def reached(self, page: Page, level: Durability) -> None:
        """A page is stored, or indexed."""
        spans = self._open[level]
        for span in page.info.writers:
            key = (page.info.tenant, span.writer_id)
            pages = spans.get(key, deque())
            entry = (page.info.page_id, span.first_sequence)
            if entry in pages:
                pages.remove(entry)
            if not pages:
                spans.pop(key, None)
            self._move(key, level)

    def _move(self, key: WriterKey, level: Durability) -> None:
        pages = self._open[level].get(key)
        mark = pages[0][1] - 1 if pages else self.cut_up_to(key)
        writer = self._writers[key]
        if level is Durability.STORED:
            writer.stored = max(writer.stored, mark)
        else:
            writer.indexed = max(writer.indexed, mark)
        self.wake(key, level, mark)

    def cut_up_to(self, key: WriterKey) -> int:
        """The last sequence of a writer that is in a page."""
        buffer = self._buffers.get(key)
        return buffer.held[0].sequence - 1 if buffer else self._writers[key].durable

    def restart(self) -> None:
        """Set all marks by what a recovery found: what is in no open page was stored before."""
        for key, writer in self._writers.items():
            writer.stored = writer.indexed = 0
            for level in self._open:
                self._move(key, level)

    def wait_for(self, key: WriterKey, sequence: int, level: Durability, done: Done) -> None:
        """Call `done` once the writer's watermark of that level has reached the sequence."""
        writer = self._writers[key]
        marks = {Durability.STORED: writer.stored, Durability.INDEXED: writer.indexed}
        if marks.get(level, writer.durable) >= sequence:
            done(None)
        else:
            entry = (sequence, next(self._order), level, done)
            heappush(self._waiting.setdefault(key, []), entry)

    def wake(self, key: WriterKey, level: Durability, mark: int) -> None:
        """Answer those who waited for this level, or a lower one, up to the mark."""
        if (waiting := self._waiting.get(key)) is None:
            return
        kept = []
        while waiting and waiting[0][0] <= mark:
            entry = heappop(waiting)
            if entry[2] <= level:
                entry[3](None)
            else:
                kept.append(entry)
        for entry in kept:
            heappush(waiting, entry)
        if not waiting:
            del self._waiting[key]

    def fail(self, key: WriterKey, sequence: int, error: OnexError | None) -> None:
        """Answer those who waited for an event that was withdrawn."""
        waiting = self._waiting.pop(key, [])
        kept = [entry for entry in waiting if entry[0] < sequence]
        for entry in waiting:
            if entry[0] >= sequence:
                entry[3](error)
        if kept:
            heapify(kept)
            self._waiting[key] = kept

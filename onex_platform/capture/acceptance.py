"""What happens to an event between its arrival and its page, and to a page until it is known.

Everything here runs in one thread, the service's loop, and waits for nothing: the log reports what
it committed through `committed`, the flusher what it stored and indexed through `page_stored` and
`page_indexed`. Tests drive the same object without any thread.

An event is admitted (sequence, ids), appended to the log, and buffered once the log has it. A cut
turns buffers into a page; the cut is a record as well, so that a page which is written again after
a crash is the same page under the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from onex_platform.base.errors import OnexError
from onex_platform.capture.api.requests import Publication, RequestLimits, check_publication
from onex_platform.capture.budget import Budget
from onex_platform.capture.buffers import OVERHEAD_BYTES, Buffer, Buffers, Held
from onex_platform.capture.captured_events import CapturedEvent, CutReason, Durability
from onex_platform.capture.flush.cutting import CutLimits, Part, full_runs, limit_reached, plan
from onex_platform.capture.flush.page_making import (
    Cut,
    Page,
    PageStyle,
    decode_event,
    encode,
    encode_event,
    new_cut,
)
from onex_platform.capture.memory_use import Memory
from onex_platform.capture.read.kafka_relay import Captured, Relay
from onex_platform.capture.read.retention import Retention
from onex_platform.capture.recovering import LeftOver, read_left_over, write_checkpoint
from onex_platform.capture.wal.commit import Kind, Outcome, WriteAheadLog
from onex_platform.capture.wal.segments import Location
from onex_platform.capture.wal.wal_records import Record
from onex_platform.capture.watermarks import Done, Watermarks
from onex_platform.capture.writers import Admission, IdMemory, WriterKey, Writers


class DrainingError(OnexError):
    """This instance is about to stop and takes no further events."""


class _Appended(NamedTuple):
    """What the log hands back with an event."""

    asked: Publication
    event: CapturedEvent
    done: Done | None


class Intake:
    """The state of an instance. `flush` is called with each page once its cut is logged."""

    def __init__(
        self,
        *,
        style: PageStyle,
        limits: CutLimits,
        budget: Budget,
        request_limits: RequestLimits,
        ids: IdMemory,
        flush: Callable[[Page], None],
        relay: Relay | None = None,
    ) -> None:
        self.writers = Writers(ids)
        self.buffers = Buffers()
        self.watermarks = Watermarks(self.writers, self.buffers)
        self.pages: dict[str, Page] = {}  # cut and not stored
        self.memory = Memory(budget)
        self.draining = False
        self._style = style
        self._limits = limits
        self._request_limits = request_limits
        self._flush = flush
        self._relay = relay
        self._log: WriteAheadLog
        self._retention = Retention()
        self._unindexed_since: dict[str, float] = {}
        self._asked_to_flush: dict[WriterKey, tuple[int, CutReason]] = {}
        self._ended: dict[WriterKey, float] = {}  # ended sessions with a small rest, and since when

    def attach(self, log: WriteAheadLog) -> None:
        """Give the intake the log whose outcomes it hears."""
        self._log = log

    # Arrival

    def publish(
        self, asked: Publication, *, now: float, now_us: int, done: Done | None
    ) -> Admission:
        """Admit an event and append it to the log; `done` is called when the log has it.

        Raises if the event is refused; then nothing was kept.
        """
        if self.draining:
            raise DrainingError(
                "This instance is stopping and takes no further events.",
                hint="Send it to another instance, or again when it is back.",
            )
        check_publication(asked, self._request_limits)
        weight = len(asked.payload) + OVERHEAD_BYTES
        self.memory.require_room(weight)
        admission = self.writers.admit(asked, now)
        if admission.duplicate:
            if done is not None:
                key = (asked.tenant, asked.writer_id)
                self.watermarks.wait_for(key, admission.sequence, Durability.WAL, done)
            return admission
        event = CapturedEvent(
            tenant=asked.tenant,
            writer_id=asked.writer_id,
            sequence=admission.sequence,
            event_id=admission.event_id,
            timestamp_us=asked.timestamp_us or now_us,
            payload=asked.payload,
            attributes=asked.attributes,
            producer_id=asked.producer_id,
            producer_sequence=asked.producer_sequence,
        )
        try:
            self._log.append(
                Kind.EVENT, encode_event(event, bool(asked.event_id)), _Appended(asked, event, done)
            )
        except OnexError:
            self.writers.withdraw(asked, admission.sequence)
            raise
        self.memory.resident_bytes += weight
        return admission

    def committed(self, outcomes: Sequence[Outcome], now: float) -> None:
        """Hear from the log, in its order."""
        full: dict[WriterKey, CutReason] = {}
        for outcome in outcomes:
            token = outcome.waiting.token
            if isinstance(token, _Appended):
                self._event_committed(outcome, token, now, full)
            elif isinstance(token, Page):
                # If the cut could not be logged for lack of room, the page must go all the same:
                # it is what makes room. Written twice after a crash, its events are read once.
                token.cut_segment = outcome.location.segment if outcome.location else None
                self._flush(token)
            elif token is not None:
                self._retention.release(token)
        self._log.delivered(len(outcomes))
        for key, reason in full.items():
            self._cut_full(key, reason)

    def _event_committed(
        self, outcome: Outcome, token: _Appended, now: float, full: dict[WriterKey, CutReason]
    ) -> None:
        asked, event, done = token
        key = (event.tenant, event.writer_id)
        weight = len(asked.payload) + OVERHEAD_BYTES
        self.memory.resident_bytes -= weight
        if outcome.location is None:
            self.writers.withdraw(asked, event.sequence)
            if done is not None:
                done(outcome.error)
            self.watermarks.fail(key, event.sequence, outcome.error)
            return
        self.writers[key].durable = event.sequence
        held = self._hold(event, len(outcome.waiting.payload), outcome.location, now)
        buffer = self.buffers.add(key, held)
        if done is not None:
            done(None)
        self.watermarks.wake(key, Durability.WAL, event.sequence)
        if reason := limit_reached(len(buffer.held), buffer.size, self._limits):
            full[key] = reason
        elif (asked_for := self._asked_to_flush.get(key)) and asked_for[0] <= event.sequence:
            full[key] = asked_for[1]

    def _hold(
        self,
        event: CapturedEvent,
        size: int,
        location: Location,
        now: float,
        *,
        recovered: bool = False,
    ) -> Held:
        """Count an event as one that is in no stored page, and perhaps still to be relayed."""
        held = Held(event.sequence, event.timestamp_us, size, now, location, event)
        self._retention.need(location.segment)
        if self._relay is not None and self._relay.wants(event):
            self._retention.need(location.segment)
            self._relay.add(event, location, recovered=recovered)
        self.memory.resident_bytes += held.resident_bytes
        return held

    # Cuts

    def tick(self, now: float, flush_idle: bool = True) -> None:
        """What time alone brings about: age, the end of idle sessions, pressure on memory."""
        if due := self.buffers.older_than(now - self._limits.max_age_seconds):
            self._cut(self._with_small_ones(due), CutReason.AGE)
        ended = {buffer.key: buffer for buffer in self._ended_buffers(now)}
        if flush_idle:
            idle = self.buffers.idle_since(now - self._limits.idle_seconds)
            ended |= {buffer.key: buffer for buffer in idle}
        if ended:
            self._cut(self._with_small_ones(list(ended.values())), CutReason.SESSION_END)
        self.memory.ease(
            self.pages.values(),
            self.buffers,
            lambda buffer: self._cut([buffer], CutReason.BUDGET),
        )
        self.writers.ids.prune(now)

    def _with_small_ones(self, due: list[Buffer]) -> list[Buffer]:
        """If a small buffer is due, all small ones of its tenant go along in shared pages."""
        tenants = {buffer.key[0] for buffer in due if buffer.size < self._limits.share_below_bytes}
        chosen = {buffer.key for buffer in due}
        return due + [
            buffer
            for buffer in self.buffers
            if buffer.key not in chosen
            and buffer.key[0] in tenants
            and buffer.size < self._limits.share_below_bytes
        ]

    def _ended_buffers(self, now: float) -> list[Buffer]:
        """The buffers of ended sessions, once the first of them has waited for others."""
        if not self._ended or now - next(iter(self._ended.values())) < self._limits.linger_seconds:
            return []
        ended = [buffer for key in self._ended if (buffer := self.buffers.get(key))]
        self._ended.clear()
        return ended

    def end_session(self, key: WriterKey, now: float) -> None:
        """A writer's stream ended: what is left of it becomes a page, or a part of a shared one."""
        writer = self.writers.known(key)
        if writer is None or self.watermarks.cut_up_to(key) == writer.last_sequence:
            return
        buffer = self.buffers.get(key)
        if buffer is None or buffer.size < self._limits.share_below_bytes:
            self._ended.setdefault(key, now)
        else:
            self.request_flush(key, writer.last_sequence, CutReason.SESSION_END)

    def cut_all(self, reason: CutReason) -> None:
        self._cut(list(self.buffers), reason)

    def _cut_full(self, key: WriterKey, reason: CutReason) -> None:
        buffer = self.buffers.get(key)
        if buffer is None:
            return
        if self._asked_to_flush.pop(key, None):
            self._cut([buffer], reason)
            return
        for events in full_runs([held.size for held in buffer.held], self._limits):
            self._cut_page([Part(key, events)], reason)

    def _cut(self, buffers: Iterable[Buffer], reason: CutReason) -> None:
        sizes = [(buffer.key, [held.size for held in buffer.held]) for buffer in buffers]
        for parts in plan(sizes, self._limits):
            self._cut_page(parts, reason)

    def _cut_page(self, parts: Sequence[Part], reason: CutReason) -> None:
        parts = sorted(parts)
        taken = [(part.key, self.buffers.take(part.key, part.events)) for part in parts]
        key = parts[0].key
        writer = self.writers[key if len(parts) == 1 else (key[0], "")]
        writer.pages += 1
        cut = new_cut(uuid4().hex, writer.pages, reason, taken, self._style)
        page = cut.page(taken)
        self._open(page)
        try:
            self._log.append(Kind.CUT, encode(cut), page)
        except OnexError:
            self._flush(page)

    def _open(self, page: Page) -> None:
        self.pages[page.info.page_id] = page
        self._unindexed_since[page.info.page_id] = min(one.arrived_at for one in page.held)
        self.watermarks.cut(page)

    def events_of(self, page: Page) -> list[CapturedEvent]:
        """A page's events; those that were spilled are read from the log. Any thread may ask."""
        return [held.event or self.event_at(held.location) for held in page.held]

    # After the page

    def event_at(self, location: Location) -> CapturedEvent:
        """An event that the log has. Any thread may ask."""
        return decode_event(self._log.read(location))[0]

    def relayed(self, events: Sequence[Captured]) -> None:
        """The broker has these: as far as the relay is concerned, the log may forget them."""
        self._retention.release(captured.location.segment for captured in events)

    def page_stored(self, page: Page) -> None:
        """The page is confirmed in the store."""
        self.watermarks.reached(page, Durability.STORED)
        self.page_safe(page)

    def page_safe(self, page: Page) -> None:
        """The page is stored, or kept as a dead letter: the log may forget its events."""
        if self.pages.pop(page.info.page_id, None) is None:
            return
        self.memory.resident_bytes -= page.resident_bytes
        self._retention.page_stored(page)
        try:
            self._log.append(Kind.STORED, page.info.page_id.encode(), page.segments)
        except OnexError:
            self._retention.release(page.segments)

    def page_indexed(self, page: Page) -> None:
        """Readers find the page."""
        self._unindexed_since.pop(page.info.page_id, None)
        self.watermarks.reached(page, Durability.INDEXED)

    def oldest_unflushed(self, now: float) -> float:
        """The age of the oldest event that is in no stored page."""
        waiting = [page.held[0].arrived_at for page in self.pages.values()]
        return now - min([buffer.oldest_at for buffer in self.buffers] + waiting, default=now)

    def oldest_unindexed(self, now: float) -> float:
        """The age of the oldest event that readers can't find."""
        waiting = list(self._unindexed_since.values())
        return now - min([buffer.oldest_at for buffer in self.buffers] + waiting, default=now)

    def releasable(self) -> list[int]:
        """The segments that the log may remove once a checkpoint is written."""
        return self._retention.releasable(self._log)

    def request_flush(self, key: WriterKey, sequence: int, reason: CutReason) -> None:
        """Cut a writer's buffer as soon as the log has everything up to the sequence."""
        if self.writers[key].durable < sequence:
            self._asked_to_flush[key] = (sequence, reason)
        elif (buffer := self.buffers.get(key)) and buffer.held[0].sequence <= sequence:
            self._cut([buffer], reason)

    # Restart

    def checkpoint(self, now: float) -> bytes:
        """What must be kept before segments are released."""
        return write_checkpoint(self.writers, self._retention.stored_pages(self._log), now)

    def recover(
        self,
        checkpoint: bytes | None,
        records: Iterable[tuple[Record, Location]],
        now: float,
    ) -> list[Page]:
        """Take up what an earlier process left; the pages that it cut and did not finish."""

        def hold(event: CapturedEvent, size: int, location: Location) -> Held:
            held = self._hold(event, size, location, now, recovered=True)
            self.memory.spill_under_pressure(held)
            return held

        left = read_left_over(checkpoint, records, self.writers, hold, now)
        pages = [
            page
            for cut, segment in left.cuts
            if (page := self._recover_cut(cut, segment, left)) is not None
        ]
        for key, some in left.events.items():
            for held in some.values():
                self.buffers.add(key, held)
        self.watermarks.restart()
        return pages

    def _recover_cut(self, cut: Cut, segment: int, left: LeftOver) -> Page | None:
        """The page of a logged cut; none if it was stored, or all of its events are gone."""
        taken = left.take(cut)
        owner = self.writers[cut.owner]
        owner.pages = max(owner.pages, cut.page_sequence)
        if not taken:
            return None
        page = cut.page(taken)
        page.cut_segment = segment
        if cut.page_id in left.stored:
            self.memory.resident_bytes -= page.resident_bytes
            self._retention.release(page.segments)
            self._retention.page_stored(page)
            return None
        self._open(page)
        return page

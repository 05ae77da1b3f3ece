"""Generated histories of the whole intake on a disk that forgets: cuts, releases, restarts."""

from __future__ import annotations

from random import Random

import pytest

from onex_platform.base.errors import OnexError
from onex_platform.capture.acceptance import Intake
from onex_platform.capture.api.requests import Publication, RequestLimits
from onex_platform.capture.budget import Budget
from onex_platform.capture.buffers import Held, spill
from onex_platform.capture.captured_events import CapturedEvent, CutReason, Durability
from onex_platform.capture.flush.cutting import CutLimits
from onex_platform.capture.flush.page_making import Page, PageStyle
from onex_platform.capture.wal.commit import LogLimits, Outcome, WriteAheadLog
from onex_platform.capture.wal.disk import read_file, write_file
from onex_platform.capture.wal.recovery import recover
from onex_platform.capture.writers import IdMemory
from onex_platform_tests.support.forgetful_disk import ForgetfulDisk

_LOG = LogLimits(segment_bytes=16 * 1024, min_free_bytes=0)
_CAPACITY = 40 * _LOG.segment_bytes
_CUTS = CutLimits(
    max_events=8,
    max_bytes=8000,
    max_age_seconds=30,
    idle_seconds=10,
    linger_seconds=1,
    share_below_bytes=1500,
)


class _House:
    """An intake with its log; what was stored outside survives every power cut."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = ForgetfulDisk(seed, _CAPACITY)
        self.stored: dict[str, list[CapturedEvent]] = {}
        self.acknowledged: dict[str, tuple[str, int]] = {}
        self.sent: dict[str, bytes] = {}
        self.unsure: list[Publication] = []
        self.now = 0.0
        self.log_was_full = False
        self.start()

    def start(self) -> None:
        self.ready: list[Page] = []
        self.intake = Intake(
            style=PageStyle("protobuf", "none", {}, lambda info: info.page_id),
            limits=_CUTS,
            budget=Budget(60_000),
            request_limits=RequestLimits(),
            ids=IdMemory(10_000, 100_000),
            flush=lambda page: self.ready.append(page),
        )
        found, records = recover(self.disk)
        known = read_file(self.disk, "checkpoint") if "checkpoint" in self.disk.names() else None
        pages = self.intake.recover(known, records, self.now)
        self.log = WriteAheadLog(
            self.disk, _LOG, self._heard, segments=found.segments, next_lsn=found.next_lsn
        )
        self.intake.attach(self.log)
        self.ready += pages

    def _heard(self, outcomes: list[Outcome]) -> None:
        self.log_was_full |= any(outcome.error for outcome in outcomes)
        self.intake.committed(outcomes, self.now)

    def publish(self, asked: Publication | None = None) -> None:
        if asked is None:
            number = len(self.sent)
            payload = b"%d:" % number + self.random.randbytes(self.random.choice([5, 200, 2500]))
            writer = f"w{self.random.randrange(4)}"
            asked = Publication("t", writer, payload, {}, event_id=f"e{number}")
            self.sent[asked.event_id] = payload
        event_id, writer_id = asked.event_id, asked.writer_id

        def done(error: OnexError | None) -> None:
            if error is None:
                self.acknowledged[event_id] = (writer_id, ticket.sequence)

        self.unsure.append(asked)
        try:
            ticket = self.intake.publish(asked, now=self.now, now_us=1, done=lambda error: None)
        except OnexError:
            return
        if ticket.duplicate:
            key = ("t", writer_id)
            if self.intake.writers[key].durable >= ticket.sequence:
                done(None)
        else:
            self.intake.watermarks.wait_for(("t", writer_id), ticket.sequence, Durability.WAL, done)

    def store(self, most: int) -> None:
        for page in self.ready[:most]:
            events = self.intake.events_of(page)
            known = self.stored.setdefault(page.info.page_id, events)
            assert known == events, "a page was written again with other events"
            self.intake.page_stored(page)
            self.intake.page_indexed(page)
        del self.ready[:most]

    def release(self) -> None:
        if free := self.intake.releasable():
            write_file(self.disk, "checkpoint", self.intake.checkpoint(self.now))
            self.log.release(free)

    def act(self) -> None:
        self.now += self.random.random() * 5
        for _ in range(self.random.randint(0, 6)):
            self.publish()
        if self.unsure and self.random.random() < 0.2:
            self.publish(self.random.choice(self.unsure))
        choice = self.random.random()
        if choice < 0.04:
            self.disk.failing_syncs = 1
        elif choice < 0.06:
            self.disk.resize(self.disk.used())
        elif choice < 0.1:
            self.intake.end_session(("t", "w1"), self.now)
        if self.random.random() < 0.8:
            self.log.commit_waiting()
        self.log_was_full |= self.log.is_refusing or self.log.is_broken
        self.disk.resize(_CAPACITY)
        self.intake.tick(self.now)
        if self.random.random() < 0.5:
            self.store(self.random.randint(0, 3))
        if self.random.random() < 0.3:
            self.disk.failing_syncs = 0
            self.release()

    def crash(self) -> None:
        self.disk.cut_power()
        self.start()

    def finish(self) -> None:
        """Send what is unsure again, then end in order."""
        for asked in [one for one in self.unsure if one.event_id not in self.acknowledged]:
            self.publish(asked)
        for _ in range(3):
            self.log.commit_waiting()
            self.intake.cut_all(CutReason.SHUTDOWN)
            self.log.commit_waiting()
            self.store(len(self.ready))


@pytest.mark.parametrize("block", range(5))
def test_every_history_ends_with_each_acknowledged_event_in_exactly_one_page(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        house = _House(seed)
        for _ in range(house.random.randint(1, 3)):
            for _ in range(house.random.randint(5, 40)):
                house.act()
            house.crash()
        house.finish()
        _judge(house, seed)


def _judge(house: _House, seed: int) -> None:
    everything = [event for events in house.stored.values() for event in events]
    # Readers take an event once. It lies in two pages only if a cut could not be logged.
    there = list({(event.writer_id, event.sequence): event for event in everything}.values())
    assert all(event in there for event in everything), f"seed {seed}: one place, two events"
    assert house.log_was_full or len(there) == len(everything), f"seed {seed}: in two pages"
    for event in there:
        assert event.payload == house.sent[event.event_id], f"seed {seed}: other bytes"
    places = {event.event_id: (event.writer_id, event.sequence) for event in there}
    lost = house.acknowledged.keys() - places.keys()
    assert not lost, f"seed {seed}: {sorted(lost)} are gone"
    for event_id, place in house.acknowledged.items():
        assert places[event_id] == place, f"seed {seed}: {event_id} changed its place"
    for writer in {event.writer_id for event in there}:
        numbers = sorted(event.sequence for event in there if event.writer_id == writer)
        assert numbers == list(range(1, len(numbers) + 1)), f"seed {seed}: {writer} has a gap"


def test_memory_is_spilled_and_read_back_from_the_log() -> None:
    house = _House(1)
    for _ in range(20):
        house.publish()
    house.log.commit_waiting()
    held: list[Held] = [one for buffer in house.intake.buffers for one in buffer.held]
    before = {one.sequence: one.event for one in held if one.event}
    house.intake.memory.resident_bytes -= spill(held)
    assert not any(one.event for one in held)
    house.intake.cut_all(CutReason.FLUSH)
    house.log.commit_waiting()
    assert before
    house.store(len(house.ready))
    assert {e.event_id for events in house.stored.values() for e in events} == set(house.sent)

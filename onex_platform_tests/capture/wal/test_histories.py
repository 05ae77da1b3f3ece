"""A thousand generated histories of the log: its disk forgets, tears, fills, fails and flips."""

from __future__ import annotations

from random import Random

import pytest

from onex_platform.capture.wal.commit import (
    Kind,
    LogBrokenError,
    LogFullError,
    LogLimits,
    Outcome,
    WriteAheadLog,
)
from onex_platform.capture.wal.recovery import Recovery, recover
from onex_platform.capture.wal.segments import Location, segment_name
from onex_platform_tests.support.forgetful_disk import ForgetfulDisk

_LIMITS = LogLimits(segment_bytes=16 * 1024, min_free_bytes=0)


class _Writer:
    """Appends numbered records and remembers what it was promised, over crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = ForgetfulDisk(seed, capacity=64 * _LIMITS.segment_bytes)
        self.sent: dict[bytes, int] = {}
        self.promised: dict[bytes, Location] = {}
        self.refused: set[bytes] = set()
        self.has_power = True
        self.restart()

    def restart(self) -> tuple[Recovery, list[bytes]]:
        self.has_power = True
        found, records = recover(self.disk)
        payloads = [record.payload for record, _ in records]
        self.log = WriteAheadLog(
            self.disk,
            _LIMITS,
            self._heard,
            segments=found.segments,
            next_lsn=found.next_lsn,
        )
        return found, payloads

    def _heard(self, outcomes: list[Outcome]) -> None:
        if not self.has_power:
            return
        for outcome in outcomes:
            if outcome.location is None:
                self.refused.add(outcome.waiting.payload)
            else:
                self.promised[outcome.waiting.payload] = outcome.location
        self.log.delivered(len(outcomes))

    def append(self) -> None:
        number = len(self.sent)
        payload = b"%d:" % number + self.random.randbytes(self.random.choice([5, 40, 300, 3000]))
        try:
            self.log.append(Kind.EVENT, payload)
        except (LogBrokenError, LogFullError):
            return
        self.sent[payload] = number

    def act(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.append()
        accident = self.random.random()
        if accident < 0.05:
            self.disk.failing_syncs = 1
        elif accident < 0.08:
            self.disk.resize(self.disk.used())
        if self.random.random() < 0.9:
            self.log.commit_waiting()
        self.disk.resize(64 * _LIMITS.segment_bytes)

    def in_flight(self) -> None:
        """A group that was written and not synced when the power went."""
        self.append()
        self.append()
        original, self.disk.sync = self.disk.sync, _no_sync  # type: ignore[method-assign]
        self.has_power = False
        self.log.commit_waiting()
        self.disk.sync = original  # type: ignore[method-assign]


def _no_sync(content: object) -> None:
    return


@pytest.mark.parametrize("block", range(10))
def test_what_was_promised_survives_every_history_and_nothing_else_appears(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        writer = _Writer(seed)
        flipped: set[bytes] = set()
        for _ in range(writer.random.randint(1, 3)):
            for _ in range(writer.random.randint(1, 15)):
                writer.act()
            writer.in_flight()
            writer.disk.cut_power()
            if writer.random.random() < 0.3:
                flipped |= _flip_some(writer, flipped)
            _, payloads = writer.restart()
            _judge(writer, payloads, flipped, seed)


def _flip_some(writer: _Writer, flipped: set[bytes]) -> set[bytes]:
    candidates = [payload for payload in writer.promised if payload not in flipped]
    chosen = writer.random.sample(candidates, min(len(candidates), 3))
    for payload in chosen:
        place = writer.promised[payload]
        # In the mark, the checksum or the length; or in the payload.
        offset, length = writer.random.choice([(0, 12), (32, len(payload))])
        writer.disk.flip(segment_name(place.segment), place.offset + offset, length)
    return set(chosen)


def _judge(writer: _Writer, payloads: list[bytes], flipped: set[bytes], seed: int) -> None:
    assert len(payloads) == len(set(payloads)), f"seed {seed}: a record came twice"
    lost = writer.promised.keys() - set(payloads) - flipped
    assert not lost, f"seed {seed}: {len(lost)} promised records are gone"
    assert set(payloads) <= writer.sent.keys(), f"seed {seed}: a record that nobody sent"
    assert not flipped & set(payloads), f"seed {seed}: a flipped record passed its checksum"
    numbers = [writer.sent[payload] for payload in payloads]
    assert numbers == sorted(numbers), f"seed {seed}: the order changed"


def test_a_log_that_syncs_now_and_then_still_syncs_before_a_page_is_written() -> None:
    disk = ForgetfulDisk(1, 1 << 30)
    limits = LogLimits(segment_bytes=16 * 1024, min_free_bytes=0, sync_seconds=3600)
    log = WriteAheadLog(disk, limits, lambda outcomes: None)
    for kind, payload in ((Kind.EVENT, b"event"), (Kind.CUT, b"cut"), (Kind.EVENT, b"later")):
        log.append(kind, payload)
        log.commit_waiting()
    disk.cut_power()
    _, records = recover(disk)
    assert [record.payload for record, _ in records][:2] == [b"event", b"cut"]

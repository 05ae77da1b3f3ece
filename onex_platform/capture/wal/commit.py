"""Group commit: one thread takes whatever waits, writes it with one call and syncs it with one."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

from onex_platform.base.errors import InfraError
from onex_platform.base.faults import effect
from onex_platform.base.telemetry import get_logger
from onex_platform.capture.wal.disk import Disk, DiskFile, is_full
from onex_platform.capture.wal.segments import (
    Location,
    Segment,
    create_segment,
    segment_name,
)
from onex_platform.capture.wal.wal_records import (
    SEGMENT_HEADER_BYTES,
    framed_size,
    record_at,
    segment_header,
)


class Kind(IntEnum):
    """What a record holds."""

    EVENT = 1
    CUT = 2
    STORED = 3


class LogFullError(InfraError):
    """There is no room for more records now; there will be when pages have been stored."""


class LogBrokenError(InfraError):
    """The disk failed; this process can't promise anything any more."""


class Waiting(NamedTuple):
    """A record that nobody may rely on yet. The token is the caller's: it comes back as it was."""

    kind: Kind
    payload: bytes
    token: Any


class Outcome(NamedTuple):
    """What became of a record: it lies at a place, or it failed."""

    waiting: Waiting
    location: Location | None
    error: InfraError | None


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much disk the log may use. `sync_seconds` above zero is 001's cheaper option: groups are
    synced that far apart, and a commit then only says that the record was written."""

    segment_bytes: int = 64 * 1024 * 1024
    max_bytes: int = 16 * 1024 * 1024 * 1024
    min_free_bytes: int = 256 * 1024 * 1024
    sync_seconds: float = 0.0

    @property
    def largest_payload(self) -> int:
        return self.segment_bytes - SEGMENT_HEADER_BYTES - framed_size(0)


class _State(Enum):
    OPEN = "open"
    REFUSING = "refusing"  # a group found no room; until the caller has taken note, all others fail
    BROKEN = "broken"


class WriteAheadLog:
    """Appends records. `append`, `resume` and `forget` belong to one thread, the caller's; outcomes
    are handed to `deliver` in the order of the appends, from the commit thread."""

    def __init__(
        self,
        disk: Disk,
        limits: LogLimits,
        deliver: Callable[[Sequence[Outcome]], None],
        *,
        segments: Sequence[int] = (),
        next_lsn: int = 1,
    ) -> None:
        self._disk = disk
        self._limits = limits
        self._deliver = deliver
        self._segments = list(segments)  # those that lie on the disk, oldest first
        self._number = max(segments, default=0)
        self._next_lsn = next_lsn
        self._synced_lsn = next_lsn - 1
        self._synced_at = monotonic()
        self._current: Segment | None = None
        self._state = _State.OPEN
        self._outstanding = 0
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._readers: dict[int, tuple[DiskFile, bytes]] = {}
        self._reading = Lock()

    @property
    def segments(self) -> list[int]:
        return list(self._segments)

    @property
    def is_broken(self) -> bool:
        return self._state is _State.BROKEN

    @property
    def outstanding(self) -> int:
        """How many records were appended and not yet reported on."""
        return self._outstanding

    @property
    def is_refusing(self) -> bool:
        return self._state is _State.REFUSING

    @property
    def current_segment(self) -> int | None:
        """The segment that is still being written, if there is one."""
        return self._current.number if self._current else None

    def append(self, kind: Kind, payload: bytes, token: Any = None) -> None:
        """Let a record wait for the next group; raises if the log takes none."""
        if self._state is _State.BROKEN:
            raise LogBrokenError(
                "The write-ahead log's disk failed; this instance takes no events."
            )
        if self._state is _State.REFUSING:
            raise LogFullError("The write-ahead log is full.")
        self._outstanding += 1
        self._queue.put(Waiting(kind, payload, token))

    def delivered(self, count: int) -> None:
        """Take note of outcomes; once all failures are noted, a log that was full tries again."""
        self._outstanding -= count
        if self._state is _State.REFUSING and self._outstanding == 0:
            self._state = _State.OPEN

    def start(self) -> None:
        self._thread = Thread(target=self._run, name="wal-commit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Commit what waits, then end the thread and close the files."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._sync_written(0.0)
        self._close_current()
        for file, _ in self._readers.values():
            file.close()
        self._readers.clear()

    def _run(self) -> None:
        timeout = self._limits.sync_seconds or None
        while True:
            try:
                first = self._queue.get(timeout=timeout)
            except Empty:
                self._sync_written(self._limits.sync_seconds)
                continue
            if first is None or not self._commit(self._drain(first)):
                return

    def commit_waiting(self) -> None:
        """One round of the commit thread, for callers that have none."""
        with contextlib.suppress(Empty):
            if (first := self._queue.get_nowait()) is not None:
                self._commit(self._drain(first))

    def _drain(self, first: Waiting) -> list[Waiting | None]:
        batch: list[Waiting | None] = [first]
        with contextlib.suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, batch: list[Waiting | None]) -> bool:
        """Commit a batch, segment by segment; False if the thread was told to end."""
        group = [waiting for waiting in batch if waiting is not None]
        place = 0
        while place < len(group):
            if self._state is not _State.OPEN:
                self._fail(group[place:], LogFullError("The write-ahead log is full."))
                break
            try:
                segment = self._segment_for(len(group[place].payload))
                part = _fitting(segment, group[place:])
                locations = self._write(segment, part)
            except OSError as error:
                self._fail(group[place:], self._refusal(error))
                break
            place += len(part)
            self._deliver([Outcome(one, at, None) for one, at in zip(part, locations, strict=True)])
        return None not in batch

    def _fail(self, group: list[Waiting], error: InfraError) -> None:
        self._deliver([Outcome(waiting, None, error) for waiting in group])

    def _refusal(self, error: OSError) -> InfraError:
        if is_full(error):
            self._state = _State.REFUSING
            return LogFullError(f"The write-ahead log is full: {error.strerror}.")
        self._state = _State.BROKEN
        get_logger(__name__).error("wal.broken", error=str(error))
        return LogBrokenError(f"The write-ahead log's disk failed: {error}.")

    def _segment_for(self, payload_bytes: int) -> Segment:
        if self._current is not None and self._current.has_room_for(payload_bytes):
            return self._current
        return self._roll()

    def _write(self, segment: Segment, part: list[Waiting]) -> list[Location]:
        try:
            locations = self._write_once(segment, part)
        except OSError as error:
            # What the file holds now is unknown, and a second sync may lie: go to another file.
            self._abandon(error)
            locations = self._write_once(self._roll(), part)
        self._next_lsn += len(part)
        return locations

    def _write_once(self, segment: Segment, part: list[Waiting]) -> list[Location]:
        frames = [
            segment.frame(waiting.kind, lsn, self._synced_lsn, waiting.payload)
            for lsn, waiting in enumerate(part, self._next_lsn)
        ]
        with effect("wal.write"):
            locations = segment.write(frames)
        # A page must not outlive the events that the log has for it: their numbers would be given
        # again. So a cut is always synced before its page is written.
        has_cut = any(waiting.kind is Kind.CUT for waiting in part)
        interval = 0.0 if has_cut else self._limits.sync_seconds
        self._sync_if_due(interval, self._next_lsn + len(part) - 1)
        return locations

    def _sync_if_due(self, interval: float, last_lsn: int) -> None:
        if self._current is None or last_lsn == self._synced_lsn:
            return
        if interval and monotonic() - self._synced_at < interval:
            return
        with effect("wal.sync"):
            self._current.sync()
        self._synced_lsn = last_lsn
        self._synced_at = monotonic()

    def _sync_written(self, interval: float) -> None:
        """Sync what was written without a promise (`sync_seconds`)."""
        try:
            self._sync_if_due(interval, self._next_lsn - 1)
        except OSError as error:
            self._abandon(error)

    def _abandon(self, error: OSError) -> None:
        get_logger(__name__).warning("wal.segment_abandoned", error=str(error))
        self._close_current()

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _roll(self) -> Segment:
        self._sync_written(0.0)
        self._close_current()
        room = self._limits.max_bytes - len(self._segments) * self._limits.segment_bytes
        free = self._disk.free_bytes() - self._limits.min_free_bytes
        if min(room, free) < self._limits.segment_bytes:
            raise OSError(errno.ENOSPC, "no room for a further segment")
        with effect("wal.roll"):
            self._number += 1
            self._current = create_segment(
                self._disk, self._number, self._next_lsn, self._limits.segment_bytes
            )
        self._segments.append(self._number)
        return self._current

    def read(self, location: Location) -> bytes:
        """The payload of a committed record, read back from the disk. Any thread may ask."""
        with self._reading:
            file, uid = self._reader(location.segment)
        record = record_at(file.read(location.offset, location.length), 0, uid)
        if record is None:
            raise LogBrokenError(
                f"The record at {location.offset} of {segment_name(location.segment)} is damaged."
            )
        return record.payload

    def _reader(self, number: int) -> tuple[DiskFile, bytes]:
        if number not in self._readers:
            file = self._disk.open(segment_name(number))
            header = segment_header(file.read(0, SEGMENT_HEADER_BYTES))
            if header is None:
                file.close()
                raise LogBrokenError(f"The header of {segment_name(number)} is damaged.")
            self._readers[number] = (file, header.uid)
        return self._readers[number]

    def release(self, numbers: Sequence[int]) -> None:
        """Remove segments, oldest first; what they proved must be in a synced checkpoint."""
        for number in sorted(numbers):
            with effect("wal.release"):
                self._disk.remove(segment_name(number))
            self._segments.remove(number)
            with self._reading:
                reader = self._readers.pop(number, None)
            if reader is not None:
                reader[0].close()
        self._disk.sync_names()


def _fitting(segment: Segment, group: list[Waiting]) -> list[Waiting]:
    """As many of the first records as the segment has room for."""
    used = 0
    for count, waiting in enumerate(group):
        if not segment.has_room_for(len(waiting.payload), used):
            return group[:count]
        used += framed_size(len(waiting.payload))
    return group

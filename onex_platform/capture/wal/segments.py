"""Segments: preallocated files of records, made in order and removed in order."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.wal.disk import Disk, DiskFile
from onex_platform.capture.wal.wal_records import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    frame,
    framed_size,
    segment_header,
)

_NAME = re.compile(r"([0-9a-f]{12})\.wal")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record lies."""

    segment: int
    offset: int
    length: int


class Segment:
    """The segment that is being written. Nothing in it counts before `sync`."""

    def __init__(self, number: int, uid: bytes, file: DiskFile) -> None:
        self.number = number
        self._uid = uid
        self._file = file
        self._size = file.size
        self._end = SEGMENT_HEADER_BYTES

    def has_room_for(self, payload_bytes: int, pending_bytes: int = 0) -> bool:
        return self._end + pending_bytes + framed_size(payload_bytes) <= self._size

    def frame(self, kind: int, lsn: int, synced_lsn: int, payload: bytes) -> bytes:
        return frame(self._uid, kind, lsn, synced_lsn, payload)

    def write(self, frames: list[bytes]) -> list[Location]:
        """Write all frames with one call; where each of them lies."""
        places, offset = [], self._end
        for one in frames:
            places.append(Location(self.number, offset, len(one)))
            offset += len(one)
        self._file.write(self._end, b"".join(frames))
        self._end = offset
        return places

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def segment_name(number: int) -> str:
    return f"{number:012x}.wal"


def segment_numbers(disk: Disk) -> list[int]:
    """The segments of a folder, oldest first."""
    return sorted(int(match[1], 16) for name in disk.names() if (match := _NAME.fullmatch(name)))


def create_segment(disk: Disk, number: int, first_lsn: int, size: int) -> Segment:
    """A new segment, durable by name and header before it is used."""
    header = SegmentHeader(os.urandom(8), number, first_lsn)
    file = disk.create(segment_name(number), size)
    file.write(0, header.encoded())
    file.sync()
    disk.sync_names()
    return Segment(number, header.uid, file)


def read_segment(disk: Disk, number: int) -> tuple[SegmentHeader | None, bytes]:
    """A segment's header and all of its bytes; a log of another version is refused."""
    file = disk.open(segment_name(number))
    try:
        data = file.read(0, file.size)
    finally:
        file.close()
    try:
        return segment_header(data), data
    except ValueError as version:
        raise ConfigurationError(
            f"The write-ahead log's file {segment_name(number)} has version {version}, "
            "which this release can't read; nothing was touched.",
            hint="Start the release that wrote it, let it drain, then start this one.",
        ) from None

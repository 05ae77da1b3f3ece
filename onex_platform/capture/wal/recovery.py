"""What a log still knows after its process ended, however it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from onex_platform.capture.wal.disk import Disk, write_file
from onex_platform.capture.wal.segments import (
    Location,
    read_segment,
    segment_name,
    segment_numbers,
)
from onex_platform.capture.wal.wal_records import Hole, Record, SegmentHeader, scan


@dataclass
class Recovery:
    """What a recovery found besides the records; complete once they have all been taken."""

    segments: list[int] = field(default_factory=list)
    next_lsn: int = 1
    records: int = 0
    damaged: int = 0  # places with records that can't be read any more; their bytes are quarantined
    torn_bytes: int = 0  # of groups that were never reported as committed


def recover(disk: Disk) -> tuple[Recovery, Iterator[tuple[Record, Location]]]:
    """All records that can be read, in their order. Nothing is touched before every segment's
    version is known to be ours."""
    found = Recovery()
    headers = [(number, read_segment(disk, number)[0]) for number in segment_numbers(disk)]
    return found, _records(disk, headers, found)


def _records(
    disk: Disk, headers: list[tuple[int, SegmentHeader | None]], found: Recovery
) -> Iterator[tuple[Record, Location]]:
    readable = [(number, header) for number, header in headers if header is not None]
    for number, header in headers:
        if header is None:
            _set_aside(disk, number, found)
    for place, (number, header) in enumerate(readable):
        found.segments.append(number)
        found.next_lsn = max(found.next_lsn, header.first_lsn)
        later = [following.first_lsn for _, following in readable[place + 1 :]]
        next_segment_lsn = min(later, default=None)
        for record in _valid(disk, header, next_segment_lsn, found):
            found.records += 1
            found.next_lsn = max(found.next_lsn, record.lsn + 1)
            yield record, Location(number, record.offset, record.length)


def _set_aside(disk: Disk, number: int, found: Recovery) -> None:
    """A segment without a header: its creation was cut short, or both copies are damaged."""
    _, data = read_segment(disk, number)
    if any(data):
        disk.rename(segment_name(number), f"{number:012x}.damaged")
        found.damaged += 1
    else:
        disk.remove(segment_name(number))
    disk.sync_names()


def _valid(
    disk: Disk, header: SegmentHeader, next_segment_lsn: int | None, found: Recovery
) -> Iterator[Record]:
    """The records of one segment that count."""
    _, data = read_segment(disk, header.number)
    parts = list(scan(data, header.uid))
    before = header.first_lsn - 1
    synced = max((part.synced_lsn for part in parts if isinstance(part, Record)), default=before)
    synced = max(synced, (next_segment_lsn or header.first_lsn) - 1)
    last = before
    for part in parts:
        lsn = part.lsn if isinstance(part, Record) else last + 1
        if next_segment_lsn is not None and lsn >= next_segment_lsn:
            return  # the rest failed here and was written anew there
        if isinstance(part, Record):
            last = part.lsn
            yield part
        elif part.torn and last >= synced:
            found.torn_bytes += len(data[part.offset :].rstrip(b"\0"))
            return  # the group was cut short, so nobody relied on any of it
        else:
            _quarantine(disk, header.number, part, found)


def _quarantine(disk: Disk, number: int, hole: Hole, found: Recovery) -> None:
    write_file(disk, f"{number:012x}-{hole.offset:08x}.damaged", hole.data)
    found.damaged += 1

"""Records as bytes, and how they are found again among bytes that tore or flipped."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

VERSION = 1
SECTOR = 512
_ALIGNMENT = 8

_MAGIC = b"ONEXWAL\0"
_SEGMENT_HEADER = struct.Struct("<8sH6x8sQQI")  # magic, version, id, number, first LSN, checksum
SEGMENT_HEADER_BYTES = 2 * SECTOR  # two copies: a flipped bit must not cost a whole segment

_HEADER = struct.Struct("<4sIIB3xQQ")  # mark, checksum, length, kind, LSN, synced LSN
_CHECKED = struct.Struct("<IBQQ")


class SegmentHeader(NamedTuple):
    """What a segment says of itself: its random id, its place among the others, its first LSN."""

    uid: bytes
    number: int
    first_lsn: int

    def encoded(self) -> bytes:
        fields = _SEGMENT_HEADER.pack(_MAGIC, VERSION, *self, 0)[:-4]
        return 2 * (fields + struct.pack("<I", crc32(fields))).ljust(SECTOR, b"\0")


class Record(NamedTuple):
    """One record, and where its frame lies in its segment."""

    kind: int
    lsn: int
    synced_lsn: int
    payload: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes between records that are no record: damaged, or never wholly written."""

    offset: int
    data: bytes
    torn: bool


def segment_header(data: bytes) -> SegmentHeader | None:
    """The header at the start of a segment; None if neither copy is whole.

    Raises `ValueError` with the version if another version of the log wrote it.
    """
    for copy in (data[:SECTOR], data[SECTOR:SEGMENT_HEADER_BYTES]):
        if len(copy) < SECTOR or copy[:8] != _MAGIC:
            continue
        _, version, uid, number, first_lsn, checksum = _SEGMENT_HEADER.unpack_from(copy)
        if checksum != crc32(copy[: _SEGMENT_HEADER.size - 4]):
            continue
        if version != VERSION:
            raise ValueError(str(version))
        return SegmentHeader(uid, number, first_lsn)
    return None


def framed_size(payload_bytes: int) -> int:
    """The bytes that a record takes in its segment."""
    return -(-(_HEADER.size + payload_bytes) // _ALIGNMENT) * _ALIGNMENT


def frame(uid: bytes, kind: int, lsn: int, synced_lsn: int, payload: bytes) -> bytes:
    """A record's bytes, bound to the segment with that id."""
    checksum = _checksum(uid, kind, lsn, synced_lsn, payload)
    header = _HEADER.pack(uid[:4], checksum, len(payload), kind, lsn, synced_lsn)
    return (header + payload).ljust(framed_size(len(payload)), b"\0")


def _checksum(uid: bytes, kind: int, lsn: int, synced_lsn: int, payload: bytes) -> int:
    fields = _CHECKED.pack(len(payload), kind, lsn, synced_lsn)
    return crc32(payload, crc32(fields, crc32(uid)))


def record_at(data: bytes, offset: int, uid: bytes) -> Record | None:
    """The record whose frame begins at `offset`, if its bytes are whole."""
    if offset + _HEADER.size > len(data):
        return None
    mark, checksum, length, kind, lsn, synced_lsn = _HEADER.unpack_from(data, offset)
    start = offset + _HEADER.size
    if mark != uid[:4] or start + length > len(data):
        return None
    payload = data[start : start + length]
    if checksum != _checksum(uid, kind, lsn, synced_lsn, payload):
        return None
    return Record(kind, lsn, synced_lsn, payload, offset, framed_size(length))


def scan(data: bytes, uid: bytes) -> Iterator[Record | Hole]:
    """Everything in a segment, in the order of its bytes; trailing zeros are its unused rest."""
    end = len(data.rstrip(b"\0"))
    place = SEGMENT_HEADER_BYTES
    while place < end:
        if (record := record_at(data, place, uid)) is not None:
            yield record
            place += record.length
            continue
        following = _next_record(data, place + _ALIGNMENT, uid)
        until = following if following is not None else _tail_end(data, place, end, uid)
        yield Hole(place, data[place:until], torn=_has_unwritten_sector(data, place, until))
        if following is None:
            return
        place = following


def _next_record(data: bytes, place: int, uid: bytes) -> int | None:
    while (place := data.find(uid[:4], place)) >= 0:
        if place % _ALIGNMENT == 0 and record_at(data, place, uid) is not None:
            return place
        place += 1
    return None


def _tail_end(data: bytes, place: int, end: int, uid: bytes) -> int:
    """Where the last, unreadable bytes end: where their header says, if it can be believed."""
    if data[place : place + 4] != uid[:4] or place + _HEADER.size > len(data):
        return end
    length: int = _HEADER.unpack_from(data, place)[2]
    return max(end, min(place + _HEADER.size + length, len(data)))


def _has_unwritten_sector(data: bytes, place: int, until: int) -> bool:
    """Whether a sector of the hole is still as it was preallocated: the write was cut short.

    Disks write whole sectors. A damaged record has all of its sectors; a torn one lacks some.
    """
    while place < until:
        border = min((place // SECTOR + 1) * SECTOR, until)
        if not any(data[place:border]):
            return True
        place = border
    return False

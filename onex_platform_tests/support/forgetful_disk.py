"""A disk that keeps only what was synced: at a power cut it forgets, tears and may flip bits.

SIGKILL can't show this, because the kernel keeps what a killed process wrote. Names behave like
data: a new, renamed or removed file survives for certain only after `sync_names`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from onex_platform.capture.wal.disk import DiskFile
from onex_platform.capture.wal.wal_records import SECTOR


@dataclass
class _Content:
    """One file's bytes: as programs see them, and as they stand on the platters."""

    seen: bytearray
    kept: bytearray
    unsynced: set[int] = field(default_factory=set)  # sectors that were written and not synced
    lost: set[int] = field(
        default_factory=set
    )  # sectors whose sync failed: never written after all


class ForgetfulDisk:
    """A folder in memory. `capacity` bounds the bytes of all files together."""

    def __init__(self, seed: int = 0, capacity: int = 1 << 40) -> None:
        self._random = Random(seed)
        self._capacity = capacity
        self._names: dict[str, _Content] = {}
        self._kept_names: dict[str, _Content] = {}
        self.failing_syncs = 0

    def resize(self, capacity: int) -> None:
        self._capacity = capacity

    def used(self) -> int:
        return sum(len(content.seen) for content in self._names.values())

    def names(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str, size: int) -> DiskFile:
        if name in self._names:
            raise FileExistsError(name)
        if self.used() + size > self._capacity:
            raise OSError(errno.ENOSPC, "disk full")
        content = _Content(bytearray(size), bytearray(size))
        self._names[name] = content
        return _SeenFile(self, content)

    def open(self, name: str) -> DiskFile:
        return _SeenFile(self, self._names[name])

    def rename(self, old: str, new: str) -> None:
        self._names[new] = self._names.pop(old)

    def remove(self, name: str) -> None:
        self._names.pop(name, None)

    def sync_names(self) -> None:
        self._kept_names = dict(self._names)

    def free_bytes(self) -> int:
        return self._capacity - self.used()

    def sync(self, content: _Content) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            content.lost |= content.unsynced
            content.unsynced.clear()  # the next sync reports success, as Linux does
            raise OSError(errno.EIO, "sync failed")
        _grow(content)
        for sector in content.unsynced - content.lost:
            _keep(content, sector)
        content.unsynced.clear()

    def cut_power(self) -> None:
        """Forget what was not synced; of what was being written, any sector may have made it."""
        self.failing_syncs = 0
        survivors = dict(self._kept_names)
        for name in self._names.keys() ^ self._kept_names.keys():
            if self._random.random() < 0.5:
                if name in self._names:
                    survivors[name] = self._names[name]
                else:
                    survivors.pop(name)
        for content in survivors.values():
            _grow(content)
            for sector in content.unsynced | content.lost:
                if self._random.random() < 0.5:
                    _keep(content, sector)
            content.seen = bytearray(content.kept)
            content.unsynced.clear()
            content.lost.clear()
        self._names, self._kept_names = survivors, dict(survivors)

    def flip(self, name: str, offset: int, length: int) -> None:
        """Flip one bit among some bytes, behind everybody's back."""
        content = self._names[name]
        place = offset + self._random.randrange(length)
        mask = 1 << self._random.randrange(8)
        content.seen[place] ^= mask
        content.kept[place] ^= mask


class _SeenFile:
    def __init__(self, disk: ForgetfulDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content.seen)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._content.seen[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        seen = self._content.seen
        seen.extend(bytes(max(0, offset + len(data) - len(seen))))
        seen[offset : offset + len(data)] = data
        last = (offset + len(data) - 1) // SECTOR
        self._content.unsynced.update(range(offset // SECTOR, last + 1))

    def sync(self) -> None:
        self._disk.sync(self._content)

    def close(self) -> None:
        return


def _grow(content: _Content) -> None:
    content.kept.extend(bytes(len(content.seen) - len(content.kept)))


def _keep(content: _Content, sector: int) -> None:
    place = slice(sector * SECTOR, (sector + 1) * SECTOR)
    content.kept[place] = content.seen[place]

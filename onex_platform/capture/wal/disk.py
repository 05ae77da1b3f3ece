"""The few things that the log asks of a disk, so that a test can run it on one that forgets."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol


class DiskFile(Protocol):
    """One open file, written at places that the log chooses."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None: ...

    def sync(self) -> None:
        """Return only when everything written to this file would survive a power cut."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One folder. A new, renamed or removed name is durable after `sync_names`."""

    def names(self) -> list[str]: ...

    def create(self, name: str, size: int) -> DiskFile:
        """A new file of `size` zero bytes; `OSError(ENOSPC)` if there is no room for it."""
        ...

    def open(self, name: str) -> DiskFile: ...

    def rename(self, old: str, new: str) -> None:
        """Put a file in another's place, at once."""
        ...

    def remove(self, name: str) -> None: ...

    def sync_names(self) -> None: ...

    def free_bytes(self) -> int: ...


def is_full(error: OSError) -> bool:
    """Whether the disk, or what we may use of it, is full: room may come back."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


class FolderDisk:
    """A folder of the file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    def create(self, name: str, size: int) -> DiskFile:
        path = self.folder / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return _OpenFile(descriptor)

    def open(self, name: str) -> DiskFile:
        return _OpenFile(os.open(self.folder / name, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        (self.folder / old).replace(self.folder / new)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def sync_names(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize


class _OpenFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def write_file(disk: Disk, name: str, data: bytes) -> None:
    """Put a small file in place, whole or not at all, and let it survive a power cut."""
    draft = f"{name}.draft"
    if draft in disk.names():
        disk.remove(draft)
    file = disk.create(draft, 0)
    try:
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(draft, name)
    disk.sync_names()


def read_file(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read(0, file.size)
    finally:
        file.close()

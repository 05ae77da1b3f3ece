"""One owner per folder: a lock that ends with its process, and a note that says who it is.

A log that was closed in order is *sealed*: another instance may take it over, with what it still
holds. One that was not belongs to the instance that wrote it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from onex_platform.base.errors import ConfigurationError


class Ownership:
    """The right to write in a folder, held until `seal` or the end of the process."""

    def __init__(self, folder: Path, instance: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._instance = instance
        self._file = (folder / "owner").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = self._read()
            self._file.close()
            raise ConfigurationError(
                f"The folder {folder} is in use by instance {owner.get('instance')!r}, process "
                f"{owner.get('pid')} on {owner.get('host')}, since {owner.get('since')}.",
                hint="Stop that process, or give this instance a folder of its own (wal.folder).",
            ) from None
        owner = self._read()
        if owner and owner["instance"] != instance and not owner["sealed"]:
            self._file.close()
            raise ConfigurationError(
                f"The folder {folder} holds the log of instance {owner['instance']!r}, which was "
                f"not closed in order; this is instance {instance!r}.",
                hint=f"Start it once as instance {owner['instance']!r} and stop it, or choose "
                "another folder (wal.folder).",
            )
        self._write(sealed=False)

    def seal(self) -> None:
        """Say that the log was closed in order, and give the folder up."""
        self._write(sealed=True)
        self._file.close()

    def release(self) -> None:
        """Give the folder up without sealing it: the log is for this instance to recover."""
        self._file.close()

    def _read(self) -> dict[str, object]:
        """What the file says; nothing if it was cut short when the machine stopped. That must not
        keep a log from being recovered."""
        self._file.seek(0)
        try:
            return dict(json.loads(self._file.read()))
        except ValueError:
            return {}

    def _write(self, *, sealed: bool) -> None:
        self._file.seek(0)
        self._file.truncate()
        json.dump(
            {
                "instance": self._instance,
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
                "sealed": sealed,
            },
            self._file,
        )
        self._file.flush()
        os.fsync(self._file.fileno())

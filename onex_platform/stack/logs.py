"""Reading the servers' logs while they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onex_platform.stack.folders import ServerFolder

_POLL_SECONDS = 0.2


@dataclass
class _Reader:
    """Gives each line of one log once, also when a restart began a new file."""

    folder: ServerFolder
    file: int = 0
    position: int = 0

    def new_lines(self) -> list[str]:
        try:
            with self.folder.log.open("rb") as log:
                if (current := self.folder.log.stat().st_ino) != self.file:
                    self.file, self.position = current, 0
                log.seek(self.position)
                # The rest of an unfinished line is read next time, as a whole.
                complete, _, _ = log.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        if not complete:
            return []
        self.position += len(complete) + 1
        return complete.decode(errors="replace").splitlines()


def read(folders: Sequence[ServerFolder], *, lines: int, follow: bool) -> Iterator[tuple[str, str]]:
    """The last `lines` of each log as (server, line), and what is added to them from then on."""
    readers = [_Reader(folder) for folder in folders]
    for reader in readers:
        end = reader.new_lines()
        yield from ((reader.folder.name, line) for line in end[max(0, len(end) - lines) :])
    while follow:
        for reader in readers:
            yield from ((reader.folder.name, line) for line in reader.new_lines())
        time.sleep(_POLL_SECONDS)

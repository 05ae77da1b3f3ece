"""One stack on disk: where each server keeps its things, and what the state file remembers.

<stack.folder>/
  state.json      which process serves on which ports
  lock            held by whoever starts or stops servers
  <server>/       password, configuration
  <server>/data   kept over restarts
  <server>/log    what the server said since its last start; log.1 is the time before
  dagster/        DAGSTER_HOME of `onex stack dev`
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from filelock import FileLock
from pydantic import BaseModel, ValidationError

from onex_platform.base.settings import Settings
from onex_platform.stack import processes
from onex_platform.stack.atomic_files import take_lock, write_atomically


class ProcessIdentity(BaseModel):
    """A process that can't be mistaken for a later one with the same id."""

    pid: int
    started: float

    @classmethod
    def of(cls, process: psutil.Process) -> Self:
        return cls(pid=process.pid, started=process.create_time())

    def find(self) -> psutil.Process | None:
        return processes.recorded(self.pid, self.started)


class ServerRecord(BaseModel):
    """One started server, as the state file remembers it."""

    process: ProcessIdentity
    ports: tuple[int, ...]
    # Who takes the server along at its end; none for a server that is meant to stay.
    starter: ProcessIdentity | None

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.ports[0]

    def runs(self) -> bool:
        return self.process.find() is not None

    def is_abandoned(self) -> bool:
        """Whether the server is about to be stopped, because its starter was killed."""
        return self.starter is not None and self.starter.find() is None


class _State(BaseModel):
    servers: dict[str, ServerRecord] = {}


@dataclass(frozen=True)
class StackFolder:
    """The stack that belongs to `settings.stack.folder`."""

    settings: Settings

    @property
    def path(self) -> Path:
        return self.settings.stack.folder.expanduser().resolve()

    @property
    def dagster_home(self) -> Path:
        return self.path / "dagster"

    def server(self, name: str) -> ServerFolder:
        return ServerFolder(self, name)

    def records(self) -> dict[str, ServerRecord]:
        """The servers last started here, running or not; an unreadable file counts as empty."""
        try:
            return _State.model_validate_json(self._state_file.read_bytes()).servers
        except (FileNotFoundError, ValidationError):
            return {}

    def remember(self, name: str, record: ServerRecord) -> None:
        state = _State(servers={**self.records(), name: record})
        write_atomically(self._state_file, state.model_dump_json(indent=2))

    def locked(self) -> FileLock:
        """Held by every command that changes this stack; one at a time."""
        return take_lock(
            self.path / "lock",
            patience_seconds=2 * self.settings.stack.start_timeout_seconds,
            doing=f"changing the stack in {self.path}",
        )

    @property
    def _state_file(self) -> Path:
        return self.path / "state.json"


@dataclass(frozen=True)
class ServerFolder:
    """One server's part of the stack."""

    stack: StackFolder
    name: str

    @property
    def settings(self) -> Settings:
        return self.stack.settings

    @property
    def path(self) -> Path:
        return self.stack.path / self.name

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def marker(self) -> str:
        """The word that stands in the command line of every process of this server."""
        return f"onex-{self.name}-{hashlib.sha256(bytes(self.path)).hexdigest()[:16]}"

    def record(self) -> ServerRecord | None:
        return self.stack.records().get(self.name)

    def log_hint(self) -> str:
        """For an error's way out: where the log is, and its end."""
        return f"Its log, {self.log}, ends with:\n{self.log_tail(20)}"

    def log_tail(self, lines: int) -> str:
        """The end of the log; nothing if there is none yet."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

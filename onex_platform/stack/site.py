"""One stack's place on disk: folders, state file, lock.

<stack.folder>/
  state.json         which process serves on which ports
  lock               held by whoever starts or stops servers
  <server>/          password, configuration
  <server>/data/     kept over restarts
  <server>/log       what the server printed since it was last started; log.1 is the time before
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from onex_platform.errors import InfraTimeoutError, PrerequisiteError
from onex_platform.settings import Settings
from onex_platform.stack import processes


class ServerRecord(BaseModel):
    """One started server, as the state file remembers it."""

    pid: int
    started: float
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.ports[0]

    def runs(self) -> bool:
        return processes.recorded(self.pid, self.started) is not None


class _State(BaseModel):
    servers: dict[str, ServerRecord] = {}


@dataclass(frozen=True)
class Site:
    """The stack of one folder."""

    settings: Settings

    @property
    def folder(self) -> Path:
        return self.settings.stack.folder.expanduser().resolve()

    def place(self, server: str) -> Place:
        return Place(self, server)

    def records(self) -> dict[str, ServerRecord]:
        """The servers last started here, running or not; an unreadable file counts as empty."""
        try:
            return _State.model_validate_json(self._state_file.read_bytes()).servers
        except (FileNotFoundError, ValidationError):
            return {}

    def remember(self, server: str, record: ServerRecord) -> None:
        state = _State(servers={**self.records(), server: record})
        write_atomically(self._state_file, state.model_dump_json(indent=2))

    def locked(self) -> FileLock:
        """Taken by every command that changes this stack; one at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return take_lock(
            self.folder / "lock",
            patience_seconds=2 * self.settings.stack.start_timeout_seconds,
            doing=f"changing the stack in {self.folder}",
        )

    @property
    def _state_file(self) -> Path:
        return self.folder / "state.json"


@dataclass(frozen=True)
class Place:
    """One server's folder in the stack."""

    site: Site
    server: str

    @property
    def settings(self) -> Settings:
        return self.site.settings

    @property
    def folder(self) -> Path:
        return self.site.folder / self.server

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def marker(self) -> str:
        """The word that stands in the command line of every process of this server."""
        return f"onex-{self.server}-{hashlib.sha256(bytes(self.folder)).hexdigest()[:16]}"

    def log_tail(self, lines: int) -> str:
        """The end of the log, or nothing if there is none yet."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def take_lock(path: Path, *, patience_seconds: float, doing: str) -> FileLock:
    """A lock between processes, already held; leave the `with` block of it to let it go."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience_seconds)
    except Timeout:
        raise InfraTimeoutError(
            f"Another process has been {doing} for over {patience_seconds:g} s.",
            hint="Wait for it or stop it, then try again.",
        ) from None
    return lock


def require_space(folder: Path, settings: Settings) -> None:
    """Refuse to begin what the disk has no room for; a server that runs out of it ends badly."""
    free = shutil.disk_usage(folder).free // 2**20
    if free < settings.stack.min_free_mb:
        raise PrerequisiteError(
            f"The disk of {folder} has only {free} MB free; "
            f"{settings.stack.min_free_mb} MB are asked for.",
            hint="Free some space, point ONEX_STACK_FOLDER and ONEX_STACK_CACHE to another disk, "
            "or lower ONEX_STACK_MIN_FREE_MB.",
        )


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace the file in one step, so that nobody ever reads half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=mode)
    draft.write_text(text)
    draft.replace(path)

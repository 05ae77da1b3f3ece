"""Small file operations that hold when processes race, are killed, or the disk is full."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from onex_platform.base.errors import ConfigurationError, InfraTimeoutError, PrerequisiteError
from onex_platform.base.settings import StackSettings


def take_lock(path: Path, *, patience_seconds: float, doing: str) -> FileLock:
    """A lock between processes, already held; it is let go at the end of its `with` block."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=patience_seconds)
    except PermissionError as error:
        raise ConfigurationError(
            f"{error.filename} can't be written by this user.",
            hint="Run the command as its owner, or point ONEX_STACK_FOLDER and ONEX_STACK_CACHE "
            "to folders of yours.",
        ) from error
    except Timeout:
        raise InfraTimeoutError(
            f"Another process has been {doing} for over {patience_seconds:g} s.",
            hint="Wait for it or stop it, then try again.",
        ) from None
    return lock


def write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step, readable by its owner only; nobody ever sees half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


def build_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    """Fill a folder that does not exist yet, entirely or, also when we are killed, not at all."""
    if folder.exists():
        return
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    build(draft)
    draft.replace(folder)


def require_space(folder: Path, settings: StackSettings) -> None:
    """Refuse to begin what the disk has no room for; a server that runs out of it ends badly."""
    free = shutil.disk_usage(folder).free // 2**20
    if free < settings.min_free_mb:
        raise PrerequisiteError(
            f"The disk of {folder} has only {free} MB free; {settings.min_free_mb} MB are needed.",
            hint="Free some space, point ONEX_STACK_FOLDER and ONEX_STACK_CACHE to another disk, "
            "or lower ONEX_STACK_MIN_FREE_MB.",
        )

"""Backoff, and the durable queue of pages that are stored and not indexed yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import random

from onex_platform.base.errors import InfraConnectionError, InfraTimeoutError
from onex_platform.base.faults import effect
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import decode_entry, encode_entry

RETRIED = (InfraConnectionError, InfraTimeoutError)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the n-th failure: doubling, bounded, and not in step with others."""

    first_seconds: float = 0.2
    max_seconds: float = 300.0
    max_attempts: int = 20

    def delay(self, failures: int) -> float:
        longest: float = min(self.max_seconds, self.first_seconds * 2 ** min(failures - 1, 30))
        return longest * (0.5 + random() / 2)  # noqa: S311 - spreads load, hides nothing

    def is_spent(self, failures: int) -> bool:
        return failures >= self.max_attempts


class IndexQueue:
    """One small file per page that the index does not know yet. A page's events may leave the log
    once it is here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return sum(1 for _ in self._folder.glob("*.json"))

    def add(self, entry: PageEntry) -> None:
        with effect("index.queue"):
            write_durably(self._path(entry.info.page_id), encode_entry(entry))

    def remove(self, page_id: str) -> None:
        with effect("index.unqueue"):
            self._path(page_id).unlink(missing_ok=True)

    def entries(self) -> Iterator[PageEntry]:
        for path in sorted(self._folder.glob("*.json")):
            yield decode_entry(path.read_bytes())

    def _path(self, page_id: str) -> Path:
        return self._folder / f"{page_id}.json"


def write_durably(path: Path, data: bytes) -> None:
    """Put a file in place, whole or not at all, and let it survive a power cut."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

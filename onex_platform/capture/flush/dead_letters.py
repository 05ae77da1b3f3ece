"""Pages that the store would not take: kept whole on the local disk until an operator decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.faults import effect
from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.flush.page_json import entry_from_json, entry_to_json, info_to_attributes
from onex_platform.capture.flush.retrying import write_durably
from onex_platform.capture.slots import ObjectStorage, PageIndex


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A page that was given up, and why."""

    entry: PageEntry
    content_type: str
    error: str
    since: datetime


class DeadLetters:
    """A folder with two files per page: its bytes, then what is known of it. A page is there once
    the second file is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return sum(1 for _ in self._folder.glob("*.json"))

    def add(self, entry: PageEntry, data: bytes, content_type: str, error: str) -> None:
        about = {
            "entry": entry_to_json(entry),
            "content_type": content_type,
            "error": error,
            "since": datetime.now(UTC),
        }
        with effect("dead_letter.add"):
            write_durably(self._folder / f"{entry.info.page_id}.page", data)
            write_durably(self._path(entry.info.page_id), msgspec.json.encode(about))

    def letters(self) -> Iterator[DeadLetter]:
        for path in sorted(self._folder.glob("*.json")):
            yield self._read(path)

    def find(self, page_id: str) -> DeadLetter:
        path = self._path(page_id)
        if not path.is_file():
            raise ConfigurationError(
                f"There is no dead letter {page_id!r}.", hint="`onex pages dlq list` shows them."
            )
        return self._read(path)

    def data(self, page_id: str) -> bytes:
        return (self._folder / f"{page_id}.page").read_bytes()

    def redrive(self, page_id: str, storage: ObjectStorage, index: PageIndex) -> PageEntry:
        """Store and index a page after all; it is a dead letter until both have succeeded."""
        letter = self.find(page_id)
        entry = letter.entry
        storage.put(
            entry.key,
            self.data(page_id),
            content_type=letter.content_type,
            attributes=info_to_attributes(entry.info, entry.checksum),
        )
        index.publish([entry])
        self.purge(page_id)
        return entry

    def purge(self, page_id: str) -> None:
        """Remove a page for good."""
        self.find(page_id)
        self._path(page_id).unlink()
        (self._folder / f"{page_id}.page").unlink(missing_ok=True)

    def _path(self, page_id: str) -> Path:
        return self._folder / f"{page_id}.json"

    def _read(self, path: Path) -> DeadLetter:
        about = msgspec.json.decode(path.read_bytes())
        since = datetime.fromisoformat(about["since"])
        return DeadLetter(
            entry_from_json(about["entry"]), about["content_type"], about["error"], since
        )

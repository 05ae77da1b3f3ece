"""A store and an index that need no server: plain files, and switches for what can go wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from onex_platform.base.errors import InfraConnectionError, OnexError
from onex_platform.capture.captured_events import CapturedEvent, PageEntry
from onex_platform.capture.codecs import read_page
from onex_platform.capture.errors import ObjectExistsError, ObjectMissingError
from onex_platform.capture.flush.page_json import decode_entry, encode_entry
from onex_platform.capture.flush.retrying import write_durably
from onex_platform.capture.slots import ObjectHead, PageQuery
from onex_platform.capture.writers import WriterKey


class FolderStorage:
    """Objects as files. `down` lets every call fail as if the server were gone."""

    backend = "filesystem"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.down = False
        folder.mkdir(parents=True, exist_ok=True)

    def probe(self) -> Mapping[str, bool]:
        return {"conditional_create": True, "versioning": False}

    def put(
        self, key: str, data: bytes, *, content_type: str, attributes: Mapping[str, str]
    ) -> ObjectHead:
        self._require_up()
        path = self.folder / key
        if path.exists():
            if path.read_bytes() != data:
                raise ObjectExistsError(f"{key} exists.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, data)
        return self.head(key)

    def get(self, key: str, offset: int = 0, limit: int = 0) -> bytes:
        self._require_up()
        path = self.folder / key
        if not path.exists():
            raise ObjectMissingError(f"{key} is not there.")
        data = path.read_bytes()[offset:]
        return data[:limit] if limit else data

    def delete(self, key: str) -> bool:
        existed = (self.folder / key).exists()
        (self.folder / key).unlink(missing_ok=True)
        return existed

    def list(self, prefix: str = "") -> Iterator[ObjectHead]:
        for path in sorted(self.folder.rglob("*")):
            key = path.relative_to(self.folder).as_posix()
            if path.is_file() and key.startswith(prefix) and not key.endswith(".draft"):
                yield self.head(key)

    def head(self, key: str) -> ObjectHead:
        about = (self.folder / key).stat()
        return ObjectHead(key, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC), {})

    def close(self) -> None:
        return

    def _require_up(self) -> None:
        if self.down:
            raise InfraConnectionError("The store is down.")


class RefusingStorage(FolderStorage):
    """Refuses every third page for good, as a store does whose bucket is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._puts = 0

    def put(
        self, key: str, data: bytes, *, content_type: str, attributes: Mapping[str, str]
    ) -> ObjectHead:
        self._puts += 1
        if self._puts % 3 == 0:
            raise OnexError("The bucket is gone.")
        return super().put(key, data, content_type=content_type, attributes=attributes)


class FileBroker:
    """A topic in a file, and the relay's cursors and marks in another."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._topic = folder / "topic"
        self._cursors = folder / "cursors"

    def send(self, events: Sequence[CapturedEvent]) -> None:
        with self._topic.open("ab") as topic:
            for event in events:
                topic.write(event.writer_id.encode() + b" " + event.payload.hex().encode() + b"\n")

    def sent(self) -> dict[str, list[bytes]]:
        """What was sent by writer, each once, in the order of the first time."""
        sent: dict[str, list[bytes]] = {}
        for line in self._topic.read_text().splitlines():
            writer, payload = line.split(" ")
            some = sent.setdefault(writer, [])
            if bytes.fromhex(payload) not in some:
                some.append(bytes.fromhex(payload))
        return sent

    def _read(self) -> tuple[dict[WriterKey, int], float | None]:
        if not self._cursors.exists():
            return {}, None
        cursors, mark = json.loads(self._cursors.read_text())
        return {(tenant, writer): sequence for tenant, writer, sequence in cursors}, mark

    def cursors(self) -> dict[WriterKey, int]:
        return self._read()[0]

    def relayed_until(self) -> float | None:
        return self._read()[1]

    def advance(self, cursors: dict[WriterKey, int], relayed_until: float) -> None:
        rows = [(*key, sequence) for key, sequence in (self.cursors() | cursors).items()]
        write_durably(self._cursors, json.dumps([rows, relayed_until]).encode())

    def retire(self) -> None:
        return


class FolderIndex:
    """Entries as files."""

    backend = "memstore"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.down = False
        folder.mkdir(parents=True, exist_ok=True)

    def publish(self, entries: Sequence[PageEntry]) -> None:
        self.check()
        for entry in entries:
            write_durably(self.folder / f"{entry.info.page_id}.json", encode_entry(entry))

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        entries = [decode_entry(path.read_bytes()) for path in self.folder.glob("*.json")]
        ours = [entry for entry in entries if entry.info.tenant == query.tenant]
        yield from sorted(ours, key=lambda entry: (entry.info.start_time_us, entry.info.page_id))

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])
        self.forget(entry.info.replaces)

    def forget(self, page_ids: Sequence[str]) -> int:
        known = [path for name in page_ids if (path := self.folder / f"{name}.json").exists()]
        for path in known:
            path.unlink()
        return len(known)

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        return iter(())

    def count(self) -> int:
        self.check()
        return sum(1 for _ in self.folder.glob("*.json"))

    def check(self) -> None:
        if self.down:
            raise InfraConnectionError("The index is down.")

    def close(self) -> None:
        return


def stored_events(
    storage: FolderStorage, index: FolderIndex, tenant: str = "default"
) -> dict[str, list[CapturedEvent]]:
    """Every indexed event by writer and sequence; one that lies in two pages comes twice."""
    events: dict[str, list[CapturedEvent]] = {}
    for entry in index.query(PageQuery(tenant)):
        for event in read_page(storage.get(entry.key)).events:
            events.setdefault(event.writer_id, []).append(event)
    for some in events.values():
        some.sort(key=lambda event: event.sequence)
    return events

"""001's memstore: an index for development, gone with its process. Reconciliation rebuilds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from onex_platform.capture.captured_events import PageEntry
from onex_platform.capture.index.matching import found, in_order
from onex_platform.capture.slots import PageQuery


class MemoryIndex:
    """Entries in a dictionary; a lock makes every call one change."""

    backend = "memstore"

    def __init__(
        self, ttl_seconds: float | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._entries: dict[str, tuple[PageEntry, float | None]] = {}
        self._replaced: set[str] = set()
        self._ttl = ttl_seconds
        self._clock = clock
        self._lock = Lock()

    def publish(self, entries: Sequence[PageEntry]) -> None:
        expiry = None if self._ttl is None else self._clock() + self._ttl
        with self._lock:
            self._drop_expired()
            for entry in entries:
                self._entries.setdefault(entry.info.page_id, (entry, expiry))
                self._replaced.update(entry.info.replaces)

    def replace(self, entry: PageEntry) -> None:
        self.publish([entry])

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        with self._lock:
            return found(query, self._living(), self._replaced)

    def forget(self, page_ids: Sequence[str]) -> int:
        with self._lock:
            return sum(self._entries.pop(page_id, None) is not None for page_id in page_ids)

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        with self._lock:
            return iter(
                in_order(
                    entry
                    for entry in self._living()
                    if entry.info.tenant == tenant and entry.info.page_id in self._replaced
                )
            )

    def count(self) -> int:
        with self._lock:
            return sum(entry.info.page_id not in self._replaced for entry in self._living())

    def check(self) -> None:
        """It is always there."""

    def close(self) -> None:
        """Nothing is held open."""

    def _living(self) -> list[PageEntry]:
        now = self._clock()
        return [entry for entry, expiry in self._entries.values() if expiry is None or expiry > now]

    def _drop_expired(self) -> None:
        living = {entry.info.page_id for entry in self._living()}
        for page_id in self._entries.keys() - living:
            del self._entries[page_id]

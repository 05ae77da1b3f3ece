"""Entries that a lane has written and not yet read back from `rty`. Pure.

While an entry is among them, the source is committed no further than where it stood then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from onex_platform.delivery.entries import Entry, EnumEntry, Key
from onex_platform.delivery.waiting import Kept


class Pending(NamedTuple):
    """An entry on its way: the source may be committed up to `source`, None: not at all."""

    entry: Entry
    source: int | None
    kept: Kept | None


class Journal:
    """The lane's own entries, by their numbers; they are sent in batches, one after the other."""

    def __init__(self) -> None:
        self._numbers = count()
        self._pending: dict[int, Pending] = {}
        self._outbox: list[int] = []
        self._sent: set[int] = set()
        self._resting: set[int] = set()  # refused, and to be written again
        self._refused: set[int] = set()
        self._done: dict[Key, Entry] = {}  # of each key, the last one on its way

    @property
    def is_refused(self) -> bool:
        """Whether `rty` did not take an entry, and has not taken it since."""
        return bool(self._refused)

    @property
    def is_sending(self) -> bool:
        return bool(self._sent)

    def append(self, entry: Entry, source: int | None, kept: Kept | None = None) -> int:
        number = next(self._numbers)
        self._pending[number] = Pending(entry, source, kept)
        self._outbox.append(number)
        if entry.kind is EnumEntry.DONE:
            self._done[entry.key] = entry
        return number

    def read_back(self, number: int) -> Pending | None:
        """The entry counts from now on."""
        self._refused.discard(number)
        self._resting.discard(number)
        self._sent.discard(number)
        found = self._pending.pop(number, None)
        if found is not None and self._done.get(found.entry.key) is found.entry:
            del self._done[found.entry.key]
        return found

    def has_done(self, key: Key, offset: int) -> bool:
        """Whether an entry on its way says that the record is handled.

        If it were handled once more and the entry got lost, a successor would go on with what still
        waits, and jump over the records between.
        """
        done = self._done.get(key)
        return done is not None and offset <= done.offset

    def committable(self, source: int | None) -> int | None:
        """How far the source may be committed."""
        held = [source, *(found.source for found in self._pending.values())]
        return None if None in held else min(place for place in held if place is not None)

    def places(self) -> Iterator[int]:
        """Where `rty` has what the entries on their way replace."""
        for found in self._pending.values():
            if found.kept is not None and found.kept.place is not None:
                yield found.kept.place

    def on_the_way(self) -> set[int]:
        """The entries that are being written, by their identity."""
        return {id(found.kept) for found in self._pending.values()}

    def take(self, epoch: int | None) -> list[Entry]:
        """The next batch to write, in this order; none before the last one is read back.

        So a reader may begin with the first entry of a batch, and misses none that was refused.
        """
        if self._sent or self._resting:
            return []
        batch = sorted(set(self._outbox) & self._pending.keys())
        self._sent, self._outbox = set(batch), []
        stamp = -1 if epoch is None else epoch
        return [
            replace(self._pending[number].entry, epoch=stamp, number=number, leads=not place)
            for place, number in enumerate(batch)
        ]

    def refuse(self, number: int) -> bool:
        """`rty` did not take the entry; False if it is known to have it.

        Whatever was written behind it is void, and has to be written again as well.
        """
        if number not in self._sent:
            return False
        self._refused.add(number)
        void = {other for other in self._sent if other >= number}
        self._sent -= void
        self._resting |= void
        return True

    def write_again(self) -> None:
        """Try what was refused once more."""
        self._outbox += self._resting
        self._resting.clear()

"""Entries that a lane has written and not yet read back from `rty`. Pure.

While an entry is among them, the source is committed no further than where it stood then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from onex_platform.delivery.entries import Entry, EnumEntry
from onex_platform.delivery.waiting import Kept


class Pending(NamedTuple):
    """An entry on its way: the source may be committed up to `source`, None: not at all."""

    entry: Entry
    source: int | None
    kept: Kept | None


class Journal:
    """The lane's own entries, by their numbers."""

    def __init__(self) -> None:
        self._numbers = count()
        self._pending: dict[int, Pending] = {}
        self._outbox: list[int] = []
        self._refused: set[int] = set()
        self._resting: list[int] = []

    @property
    def is_refused(self) -> bool:
        """Whether `rty` did not take an entry, and has not taken it since."""
        return bool(self._refused)

    def append(self, entry: Entry, source: int | None, kept: Kept | None = None) -> int:
        number = next(self._numbers)
        self._pending[number] = Pending(entry, source, kept)
        self._outbox.append(number)
        return number

    def read_back(self, number: int) -> Pending | None:
        """The entry counts from now on; None if it did already."""
        self._refused.discard(number)
        return self._pending.pop(number, None)

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
        """Entries to write now, in this order; without an epoch only the claim to one."""
        ready, later = [], []
        for number in self._outbox:
            if (found := self._pending.get(number)) is None:
                continue
            if epoch is None and found.entry.kind is not EnumEntry.CLAIM:
                later.append(number)
            else:
                ready.append(found.entry.stamped(-1 if epoch is None else epoch, number))
        self._outbox = later
        return ready

    def refuse(self, number: int) -> bool:
        """`rty` did not take the entry; False if it is known to have it."""
        if number not in self._pending:
            return False
        self._refused.add(number)
        self._resting.append(number)
        return True

    def write_again(self) -> None:
        """Try what was refused once more."""
        self._outbox += sorted(self._resting)
        self._resting.clear()

    def begin_again(self) -> None:
        """Nothing that was written is there: all of it rests until it is written anew."""
        self._refused.clear()
        self._outbox.clear()
        self._resting = [*self._pending]

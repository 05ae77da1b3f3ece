"""What a lane knows of one key: the records that wait, in order, and whether it is dead. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from onex_platform.delivery.entries import Entry, EnumEntry


@dataclass(slots=True, eq=False)
class Kept:
    """An entry that counts; not yet in `rty` until it is read back."""

    entry: Entry
    place: int | None = None  # from where a reader finds it
    written: int = 0  # by the broker's clock, Unix ms

    @property
    def size(self) -> int:
        return 0 if self.entry.record is None else self.entry.record.size


@dataclass(slots=True)
class KeyState:
    """A key that waits or is dead."""

    queue: list[Kept] = field(default_factory=list)
    dead: Kept | None = None
    request: Entry | None = None
    request_place: int = -1
    busy: bool = False  # its letters are being written or read
    awaited: int | None = None  # number of the entry that ends this, when it is read back
    due: int | None = None
    not_before: int = 0
    reviving: set[int] = field(default_factory=set)  # numbers of letters that are not read back

    @property
    def is_over(self) -> bool:
        return not self.queue and self.dead is None and self.request is None

    def next_due(self, now: int) -> int | None:
        """When there is something to do for the key; None while there is nothing."""
        if self.busy or not (self.queue or self.request):
            return None
        is_now = self.request is not None or self.dead is not None
        return max(now if is_now else self.queue[0].entry.attempts.due, self.not_before)

    def concerns(self, request: Entry) -> bool:
        """Whether a request is about the death of this key, and not about an earlier one."""
        return self.dead is not None and self.dead.entry.letter == request.letter

    def forget_replay(self) -> None:
        """Drop a request for a replay; a release that came meanwhile stays."""
        if self.request is not None and self.request.kind is EnumEntry.REPLAY:
            self.request = None

    @property
    def last(self) -> int:
        """The last record of the source that waits or is a letter: none before it is missing."""
        if self.queue:
            return self.queue[-1].entry.offset
        return -1 if self.dead is None else self.dead.entry.offset

    def find(self, offset: int) -> Kept | None:
        place = self._place(offset)
        if place < len(self.queue) and self.queue[place].entry.offset == offset:
            return self.queue[place]
        return None

    def insert(self, kept: Kept) -> None:
        if not self.queue or self.queue[-1].entry.offset < kept.entry.offset:
            self.queue.append(kept)
        else:
            self.queue.insert(self._place(kept.entry.offset), kept)

    def drop(self, through: int) -> list[Kept]:
        """Take out the records up to an offset."""
        end = self._place(through + 1)
        dropped, self.queue = self.queue[:end], self.queue[end:]
        return dropped

    def counting(self) -> Iterator[Kept]:
        """Every entry that still counts."""
        if self.dead is not None:
            yield self.dead
        yield from self.queue

    def _place(self, offset: int) -> int:
        return bisect_left(self.queue, offset, key=lambda kept: kept.entry.offset)

"""Reading captured events back: each event once, in order, and from where on.

What holds, beside what `page_selection` says of the order of pages:
- What pages have in common comes once.
- A cursor remembers the sequences that are done, writer by writer, not pages: so a replay goes on
  where it was, although pages were merged in the meantime, and takes up pages that came late.
- A page that was replaced and removed while we were busy is no loss: the pages are looked up again.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.capture.captured_events import (
    CapturedEvent,
    EventColumns,
    PageEntry,
    WriterRange,
)
from onex_platform.capture.codecs import read_columns
from onex_platform.capture.errors import ObjectMissingError
from onex_platform.capture.read.page_selection import Selection, in_reading_order
from onex_platform.capture.slots import ObjectStorage, PageIndex
from onex_platform.log.page_format import checksum_of

_BATCH = 1000


class DamagedPageError(OnexError):
    """A page's bytes are not those that the index knows."""


class Done:
    """The sequences that are done, writer by writer, as ranges: first and last included."""

    def __init__(self, ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {
            writer: [(first, last) for first, last in some]
            for writer, some in (ranges or {}).items()
        }

    @property
    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        return self._ranges

    def covers(self, span: WriterRange) -> bool:
        """Whether all of a stretch is done."""
        found = self._before(span.writer_id, span.first_sequence)
        return found is not None and span.last_sequence <= found[1]

    def touches(self, span: WriterRange) -> bool:
        """Whether some of a stretch is done."""
        found = self._before(span.writer_id, span.last_sequence)
        return found is not None and found[1] >= span.first_sequence

    def holds(self, writer_id: str, sequence: int) -> bool:
        found = self._before(writer_id, sequence)
        return found is not None and sequence <= found[1]

    def add(self, writer_id: str, first: int, last: int) -> None:
        """Note a stretch; it grows together with its neighbours."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted([*self._ranges.get(writer_id, ()), (first, last)]):
            if merged and start <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        self._ranges[writer_id] = merged

    def _before(self, writer_id: str, sequence: int) -> tuple[int, int] | None:
        """The last range that begins at or before a sequence."""
        some = self._ranges.get(writer_id, [])
        place = bisect_right(some, sequence, key=lambda span: span[0])
        return some[place - 1] if place else None


class Progress(NamedTuple):
    """How far a replay is."""

    pages: int
    of_pages: int
    events: int


class Sink(Protocol):
    """Where replayed events go."""

    def write(self, events: Sequence[CapturedEvent]) -> None:
        """Take events; they are safe there when it returns."""
        ...

    def position(self) -> int:
        """What a cursor has to remember of the sink."""
        ...

    def resume(self, position: int) -> None:
        """Undo what was written after the cursor was saved, where that is possible."""
        ...


class CursorFile:
    """A replay's progress in a file, saved after the sink has what it says."""

    def __init__(self, path: Path | None, selection: Selection) -> None:
        self._path = path
        self._about = msgspec.to_builtins(asdict(selection))
        saved = self._read()
        self.done = Done(saved.get("done"))
        self.position: int | None = saved.get("position")

    def save(self, position: int) -> None:
        """Replace the file in one step."""
        if self._path is None:
            return
        content = {"replay": self._about, "position": position, "done": self.done.ranges}
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_bytes(msgspec.json.encode(content))
        fresh.replace(self._path)

    def _read(self) -> dict[str, Any]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            saved: dict[str, Any] = msgspec.json.decode(self._path.read_bytes())
            about = saved["replay"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise ConfigurationError(
                f"The cursor {self._path} is damaged or no cursor.",
                hint="Name another file, or remove it to begin anew.",
            ) from None
        if about != self._about:
            raise ConfigurationError(
                f"The cursor {self._path} belongs to another replay: {about}.",
                hint="Give the same writer, times and attributes, or name another file.",
            )
        return saved


def replay(
    index: PageIndex,
    storage: ObjectStorage,
    selection: Selection,
    sink: Sink,
    *,
    cursor: CursorFile | None = None,
    unflushed: Sequence[CapturedEvent] = (),
    events_per_second: float | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Send the selected events to the sink, go on from the cursor if it is one; how many came.

    `unflushed` are events that are in no page yet, sorted by writer and sequence.
    """
    cursor = cursor or CursorFile(None, selection)
    if cursor.position is not None:
        sink.resume(cursor.position)
    pace = _Pace(events_per_second)
    events = 0
    for group, place, total in _groups(index, storage, selection, cursor.done):
        for batch in _batches(group.events, pace):
            sink.write(batch)
            events += len(batch)
        _note(cursor, selection, group)
        cursor.save(sink.position())
        report(Progress(place, total, events))
    rest = [
        event
        for event in unflushed
        if event.tenant == selection.tenant
        and selection.wants(event)
        and not cursor.done.holds(event.writer_id, event.sequence)
    ]
    for batch in _batches(rest, pace):
        sink.write(batch)
        for event in batch:
            cursor.done.add(event.writer_id, event.sequence, event.sequence)
        cursor.save(sink.position())
    return events + len(rest)


class _Group(NamedTuple):
    """Pages that are read together, and what is wanted of them."""

    pages: Sequence[PageEntry]
    events: Sequence[CapturedEvent]


def _groups(
    index: PageIndex, storage: ObjectStorage, selection: Selection, done: Done
) -> Iterator[tuple[_Group, int, int]]:
    """What is left to do, group by group, with its place and the number of pages."""

    def left(pages: Iterable[PageEntry]) -> list[PageEntry]:
        return [page for page in pages if not all(map(done.covers, selection.spans(page.info)))]

    pages = left(index.query(selection.pages))
    while True:
        place = 0
        try:
            for together in in_reading_order(pages, selection):
                place += len(together)
                yield _Group(together, _read(storage, together, selection, done)), place, len(pages)
            return
        except ObjectMissingError:
            before, pages = left(pages), left(index.query(selection.pages))
            if pages == before:
                raise


def _note(cursor: CursorFile, selection: Selection, group: _Group) -> None:
    for page in group.pages:
        for span in selection.spans(page.info):
            cursor.done.add(span.writer_id, span.first_sequence, span.last_sequence)


def _read(
    storage: ObjectStorage, pages: Sequence[PageEntry], selection: Selection, done: Done
) -> Sequence[CapturedEvent]:
    """The wanted events of pages that belong together, each once."""
    if len(pages) == 1:  # it is in order already
        return _wanted(storage, pages[0], selection, done)
    events = {
        (event.writer_id, event.sequence, event.event_id): event
        for page in pages
        for event in _wanted(storage, page, selection, done)
    }
    return [events[identity] for identity in sorted(events)]


def _wanted(
    storage: ObjectStorage, page: PageEntry, selection: Selection, done: Done
) -> Sequence[CapturedEvent]:
    """A page's events; they are looked at one by one only if not all of them are wanted."""
    events = read_entry(storage, page).events(page.info.tenant)
    if selection.takes_all_of(page.info) and not any(map(done.touches, page.info.writers)):
        return events
    return [
        event
        for event in events
        if selection.wants(event) and not done.holds(event.writer_id, event.sequence)
    ]


def read_entry(storage: ObjectStorage, entry: PageEntry) -> EventColumns:
    """A page's events; raises if its bytes are not those that were written."""
    data = storage.get(entry.key)
    if checksum_of(data) != entry.checksum:
        raise DamagedPageError(
            f"{entry.key} is damaged: its checksum is not {entry.checksum}.",
            hint="`onex pages verify` lists every page that is missing or damaged.",
        )
    return read_columns(data)[1]


def _batches(events: Sequence[CapturedEvent], pace: _Pace) -> Iterator[Sequence[CapturedEvent]]:
    for start in range(0, len(events), pace.batch):
        batch = events[start : start + pace.batch]
        pace.wait_for(len(batch))
        yield batch


class _Pace:
    """Lets so many events pass per second."""

    def __init__(self, events_per_second: float | None) -> None:
        self._rate = events_per_second
        self._due = time.monotonic()
        # A tenth of a second's worth at once: slow replays stay even.
        tenth = int((events_per_second or 10 * _BATCH) / 10)
        self.batch = max(1, min(_BATCH, tenth))

    def wait_for(self, events: int) -> None:
        if not self._rate:
            return
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = max(self._due, time.monotonic()) + events / self._rate

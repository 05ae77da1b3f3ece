"""Reading captured events back: which pages, in which order, each event once, and from where on.

What holds:
- The events of a writer come in the order of their sequences. Pages that hold the same stretch of a
  writer are read together, and what they have in common comes once. Apart from that, pages come by
  their start.
- Times and attributes select events, not pages: a page is read if it may hold one.
- A cursor remembers the sequences that are done, writer by writer, not pages: so a replay goes on
  where it was, although pages were merged in the meantime, and takes up pages that came late.
- A page that was replaced and removed while we were busy is no loss: the pages are looked up again.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from onex_platform.base.errors import ConfigurationError, OnexError
from onex_platform.capture.captured_events import CapturedEvent, PageEntry, PageInfo, WriterRange
from onex_platform.capture.codecs import read_page
from onex_platform.capture.errors import ObjectMissingError
from onex_platform.capture.slots import ObjectStorage, PageIndex, PageQuery
from onex_platform.log.page_format import checksum_of

_BATCH = 1000


class DamagedPageError(OnexError):
    """A page's bytes are not those that the index knows."""


@dataclass(frozen=True)
class Selection:
    """Which events are wanted; what is left empty does not restrict."""

    tenant: str
    writer_id: str | None = None
    from_us: int | None = None
    until_us: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def pages(self) -> PageQuery:
        return PageQuery(self.tenant, self.writer_id, self.from_us, self.until_us)

    def wants(self, event: CapturedEvent) -> bool:
        return (
            self.writer_id in (None, event.writer_id)
            and (self.from_us is None or event.timestamp_us >= self.from_us)
            and (self.until_us is None or event.timestamp_us < self.until_us)
            and self.attributes.items() <= event.attributes.items()
        )

    def takes_all_of(self, info: PageInfo) -> bool:
        """Whether every event of a page is wanted, as far as its metadata tells."""
        return (
            self.writer_id in (None, info.writer_id)
            and (self.from_us is None or info.start_time_us >= self.from_us)
            and (self.until_us is None or info.end_time_us < self.until_us)
            and not self.attributes
        )

    def spans(self, info: PageInfo) -> list[WriterRange]:
        """What a page holds of the wanted writers."""
        return [span for span in info.writers if self.writer_id in (None, span.writer_id)]


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
    events = read_entry(storage, page)
    if selection.takes_all_of(page.info) and not any(map(done.touches, page.info.writers)):
        return events
    return [
        event
        for event in events
        if selection.wants(event) and not done.holds(event.writer_id, event.sequence)
    ]


def read_entry(storage: ObjectStorage, entry: PageEntry) -> tuple[CapturedEvent, ...]:
    """A page's events; raises if its bytes are not those that were written."""
    data = storage.get(entry.key)
    if checksum_of(data) != entry.checksum:
        raise DamagedPageError(
            f"{entry.key} is damaged: its checksum is not {entry.checksum}.",
            hint="`onex pages verify` lists every page that is missing or damaged.",
        )
    return read_page(data).events


def in_reading_order(pages: Sequence[PageEntry], selection: Selection) -> Iterator[list[PageEntry]]:
    """Pages by start, as far as the order of each writer's sequences leaves a choice.

    Those that share a stretch of a writer come together; so do those of which each would have to
    come before the other: a page that is merged from others, and one that came late between them.
    """
    stretches: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for number, page in enumerate(pages):
        for span in selection.spans(page.info):
            stretches[span.writer_id].append((span.first_sequence, span.last_sequence, number))
    leader = list(range(len(pages)))

    def group_of(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for some in stretches.values():
        some.sort()
        reach, holder = some[0][1], some[0][2]
        for first, last, number in some[1:]:
            if first <= reach:
                leader[group_of(number)] = group_of(holder)
            if last >= reach:
                reach, holder = last, number
    groups: dict[int, list[PageEntry]] = defaultdict(list)
    for number, page in enumerate(pages):
        groups[group_of(number)].append(page)
    followers: dict[int, set[int]] = defaultdict(set)
    for some in stretches.values():
        for before, after in pairwise(group_of(number) for _, _, number in some):
            if before != after:
                followers[before].add(after)
    yield from _by_start(groups, followers)


def _by_start(
    groups: dict[int, list[PageEntry]], followers: dict[int, set[int]]
) -> Iterator[list[PageEntry]]:
    """Groups after those that must precede them, the earliest start first."""
    while groups:
        yield from _free_ones(groups, followers)
        if groups:
            _join_a_circle(groups, followers)


def _free_ones(
    groups: dict[int, list[PageEntry]], followers: Mapping[int, Iterable[int]]
) -> Iterator[list[PageEntry]]:
    """As many groups as can come without one that must precede them; they are removed."""
    waits_for = dict.fromkeys(groups, 0)
    for group in groups:
        for follower in followers.get(group, ()):
            waits_for[follower] += 1

    def start_of(group: int) -> tuple[int, str, int]:
        info = min((page.info for page in groups[group]), key=lambda one: one.start_time_us)
        return info.start_time_us, info.page_id, group

    ready = [start_of(group) for group, count in waits_for.items() if count == 0]
    heapify(ready)
    while ready:
        group = heappop(ready)[2]
        yield groups.pop(group)
        for follower in followers.get(group, ()):
            waits_for[follower] -= 1
            if waits_for[follower] == 0:
                heappush(ready, start_of(follower))


def _join_a_circle(groups: dict[int, list[PageEntry]], followers: dict[int, set[int]]) -> None:
    """Let groups come together each of which would have to come before the other."""
    precedes = {follower: group for group in groups for follower in followers.get(group, ())}
    walked: list[int] = []
    group = next(iter(groups))
    while group not in walked:
        walked.append(group)
        group = precedes[group]
    circle = walked[walked.index(group) :]
    first = circle[0]
    for other in circle[1:]:
        groups[first] += groups.pop(other)
        followers[first] |= followers.pop(other, set())
    for some in followers.values():
        if not some.isdisjoint(circle):
            some.difference_update(circle)
            some.add(first)
    followers[first].discard(first)


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

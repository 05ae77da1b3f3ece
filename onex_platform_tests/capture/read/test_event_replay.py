"""A replay gives each selected event once, in its writer's order, and goes on where it was."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_events import CapturedEvent, Durability, PageEntry
from onex_platform.capture.config import StorageConfig
from onex_platform.capture.errors import ObjectMissingError
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.index.memory import MemoryIndex
from onex_platform.capture.read.event_replay import (
    CursorFile,
    DamagedPageError,
    Done,
    Progress,
    replay,
)
from onex_platform.capture.read.page_selection import Selection, in_reading_order
from onex_platform.capture.read.sinks import FileSink, StreamSink
from onex_platform.capture.recovering import unflushed_events
from onex_platform.capture.slots import ObjectStorage
from onex_platform.capture.storage import open_storage
from onex_platform_tests.support.captured_archives import Collected
from onex_platform_tests.support.captured_pages import (
    NOON,
    SECOND,
    TENANT,
    entry_of,
    event,
    events_of,
    page_of,
)
from onex_platform_tests.support.snapshotters import config_for, snapshotter

ALL = Selection(TENANT)


class Archive:
    """A store and an index, and what a snapshotter would do to them."""

    def __init__(self, folder: Path) -> None:
        self.index = MemoryIndex()
        self.storage: ObjectStorage = open_storage(
            StorageConfig.model_validate(
                {"backend": "filesystem", "config": {"base_path": str(folder)}}
            )
        )

    def add(
        self, events: Sequence[CapturedEvent], *, replaces: Sequence[PageEntry] = ()
    ) -> PageEntry:
        page = page_of(events, replaces=[entry.info.page_id for entry in replaces])
        entry = entry_of(page)
        self.storage.put(entry.key, page.data, content_type="x/y", attributes={})
        self.index.publish([entry])
        return entry

    def replayed(self, selection: Selection = ALL, **options: object) -> list[CapturedEvent]:
        sink = Collected()
        count = replay(self.index, self.storage, selection, sink, **options)  # type: ignore[arg-type]
        assert count == len(sink.events)
        return sink.events


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "store")


def test_everything_comes_once_and_in_order(archive: Archive) -> None:
    archive.add(events_of("a", [4, 5]))
    archive.add(events_of("a", [1, 2, 3]) + events_of("b", [1]))
    archive.add(events_of("b", [2, 3]))
    events = archive.replayed()
    for writer, last in (("a", 5), ("b", 3)):
        assert [one for one in events if one.writer_id == writer] == events_of(
            writer, range(1, last + 1)
        )
    assert len(events) == 8


def test_sequences_decide_and_not_times(archive: Archive) -> None:
    late = [event("a", 1, at=NOON + 900 * SECOND), event("a", 2, at=NOON)]
    archive.add([event("a", 3, at=NOON - SECOND)])
    archive.add(late)
    assert [one.sequence for one in archive.replayed()] == [1, 2, 3]


def test_what_two_pages_have_in_common_comes_once(archive: Archive) -> None:
    archive.add(events_of("a", [1, 2, 3]))
    archive.add(events_of("a", [2, 3, 4]))
    archive.add(events_of("a", [3]))
    assert archive.replayed() == events_of("a", [1, 2, 3, 4])


def test_writers_times_and_attributes_select(archive: Archive) -> None:
    archive.add(
        [
            event("a", 1),
            event("a", 2, attributes={"type": "login", "x": "y"}),
            event("a", 3),
            event("b", 2),
        ]
    )
    assert archive.replayed(Selection(TENANT, "b")) == events_of("b", [2])
    assert archive.replayed(Selection("another")) == []
    second = NOON + 2 * SECOND
    within = archive.replayed(Selection(TENANT, None, second, second + 1))
    assert [(one.writer_id, one.sequence) for one in within] == [("a", 2), ("b", 2)]
    [login] = archive.replayed(Selection(TENANT, attributes={"type": "login"}))
    assert login.sequence == 2
    assert archive.replayed(Selection(TENANT, attributes={"type": "logout"})) == []


def test_what_is_in_no_page_yet_comes_as_well(archive: Archive) -> None:
    archive.add(events_of("a", [1, 2]))
    unflushed = events_of("a", [2, 3]) + events_of("b", [1])
    assert archive.replayed(unflushed=unflushed) == events_of("a", [1, 2, 3]) + events_of("b", [1])


def test_a_broken_replay_goes_on_where_it_was(archive: Archive, tmp_path: Path) -> None:
    for start in range(1, 40, 10):
        archive.add(events_of("a", range(start, start + 10)))
    sink = Collected(breaks_after=2)
    cursor = tmp_path / "cursor"
    with pytest.raises(OSError, match="broke"):
        replay(archive.index, archive.storage, ALL, sink, cursor=CursorFile(cursor, ALL))
    assert len(sink.events) == 20
    again = Collected()
    again.events = sink.events
    replay(archive.index, archive.storage, ALL, again, cursor=CursorFile(cursor, ALL))
    assert again.events == events_of("a", range(1, 41))


def test_a_cursor_outlives_a_merge_and_takes_up_what_came_late(
    archive: Archive, tmp_path: Path
) -> None:
    cursor = tmp_path / "cursor"
    old = [archive.add(events_of("a", [1, 2])), archive.add(events_of("a", [5, 6]))]
    first = archive.replayed(cursor=CursorFile(cursor, ALL))
    assert [one.sequence for one in first] == [1, 2, 5, 6]
    late = archive.add(events_of("a", [3, 4]))
    archive.add(events_of("a", range(1, 8)), replaces=[*old, late])
    rest = archive.replayed(cursor=CursorFile(cursor, ALL))
    assert [one.sequence for one in rest] == [3, 4, 7]
    assert archive.replayed(cursor=CursorFile(cursor, ALL)) == []


def test_a_cursor_belongs_to_one_replay(archive: Archive, tmp_path: Path) -> None:
    cursor = tmp_path / "cursor"
    archive.add(events_of("a", [1]))
    archive.replayed(cursor=CursorFile(cursor, ALL))
    with pytest.raises(ConfigurationError, match="belongs to another replay"):
        CursorFile(cursor, Selection(TENANT, "b"))
    cursor.write_text("{")
    with pytest.raises(ConfigurationError, match="damaged or no cursor"):
        CursorFile(cursor, ALL)


def test_pages_that_are_merged_and_removed_meanwhile_are_no_loss(archive: Archive) -> None:
    pages = [archive.add(events_of("a", [number])) for number in (1, 2, 3)]

    class Merging(Collected):
        def write(self, events: Sequence[CapturedEvent]) -> None:
            super().write(events)
            if len(self.events) == 1:
                archive.add(events_of("a", [1, 2, 3]), replaces=pages)
                for page in pages:
                    archive.storage.delete(page.key)

    sink = Merging()
    replay(archive.index, archive.storage, ALL, sink)
    assert sink.events == events_of("a", [1, 2, 3])


def test_a_lost_or_damaged_page_stops_the_replay(archive: Archive, tmp_path: Path) -> None:
    entry = archive.add(events_of("a", [1]))
    (tmp_path / "store" / entry.key).write_bytes(b"something else")
    with pytest.raises(DamagedPageError, match="is damaged"):
        archive.replayed()
    archive.storage.delete(entry.key)
    with pytest.raises(ObjectMissingError):
        archive.replayed()


def test_a_file_is_cut_to_what_its_cursor_knows(archive: Archive, tmp_path: Path) -> None:
    target, cursor = tmp_path / "out" / "events.ndjson", tmp_path / "cursor"
    archive.add(events_of("a", [1, 2]))
    with FileSink(target) as sink:
        replay(archive.index, archive.storage, ALL, sink, cursor=CursorFile(cursor, ALL))
    with target.open("ab") as file:
        file.write(b"written, but not noted before the crash\n")
    archive.add(events_of("a", [3]))
    with FileSink(target) as sink:
        replay(archive.index, archive.storage, ALL, sink, cursor=CursorFile(cursor, ALL))
    lines = [msgspec.json.decode(line) for line in target.read_bytes().splitlines()]
    assert [line["sequence"] for line in lines] == [1, 2, 3]


def test_standard_output_gets_lines(archive: Archive) -> None:
    archive.add([event("a", 1, payload=b"\x00\xff", attributes={"k": "v"})])
    stream = io.BytesIO()
    replay(archive.index, archive.storage, ALL, StreamSink(stream))
    assert msgspec.json.decode(stream.getvalue()) == {
        "tenant": TENANT,
        "writer_id": "a",
        "sequence": 1,
        "event_id": "a-1",
        "timestamp": NOON + SECOND,
        "payload": "AP8=",
        "attributes": {"k": "v"},
    }


def test_a_rate_is_kept(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    archive.add(events_of("a", range(1, 101)))
    archive.replayed(events_per_second=20)
    assert clock[0] == pytest.approx(4.9, abs=0.2)


def test_progress_is_told(archive: Archive) -> None:
    for number in (1, 2):
        archive.add(events_of("a", [number]))
    told: list[Progress] = []
    archive.replayed(report=told.append)
    assert told == [Progress(1, 2, 1), Progress(2, 2, 2)]


_SPANS = st.dictionaries(
    st.sampled_from("abc"), st.tuples(st.integers(1, 20), st.integers(0, 6)), min_size=1
)


@given(st.lists(_SPANS, max_size=8))
@settings(deadline=None)
def test_no_order_of_pages_breaks_a_writers_order(plans: list[dict[str, tuple[int, int]]]) -> None:
    entries = [
        entry_of(
            page_of(
                [
                    one
                    for writer, (first, more) in sorted(plan.items())
                    for one in events_of(writer, range(first, first + more + 1))
                ]
            )
        )
        for plan in plans
    ]
    groups = list(in_reading_order(entries, ALL))
    assert sorted(id(entry) for group in groups for entry in group) == sorted(map(id, entries))
    reached: dict[str, int] = {}
    for group in groups:
        spans = [span for entry in group for span in entry.info.writers]
        for span in spans:
            assert span.first_sequence > reached.get(span.writer_id, 0)
        for span in spans:
            reached[span.writer_id] = max(reached.get(span.writer_id, 0), span.last_sequence)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5))), st.integers(1, 40))
def test_what_is_done_is_a_set_of_sequences(
    stretches: list[tuple[int, int]], sequence: int
) -> None:
    done = Done()
    model = set[int]()
    for first, more in stretches:
        done.add("a", first, first + more)
        model.update(range(first, first + more + 1))
    assert done.holds("a", sequence) == (sequence in model)
    assert not done.holds("b", sequence)
    assert Done(done.ranges).ranges == done.ranges
    assert len(done.ranges.get("a", [])) == len({n for n in model if n + 1 not in model})


def test_a_snapshotter_at_work_is_replayed_with_what_it_has_not_flushed(tmp_path: Path) -> None:
    async def scenario() -> list[CapturedEvent]:
        sink, config = Collected(), config_for(tmp_path)
        async with snapshotter(config, tmp_path) as running, running.client() as client:
            for number in range(3):
                await client.publish(client.event("a", b"%d" % number))
            await client.flush("a", Durability.INDEXED)
            for number in range(3, 5):
                await client.publish(client.event("a", b"%d" % number))
            unflushed = unflushed_events(tmp_path / "wal")
            selection = Selection(DEFAULT_TENANT)
            replay(running.index, running.storage, selection, sink, unflushed=unflushed)
        return sink.events

    events = asyncio.run(scenario())
    assert [(one.sequence, one.payload) for one in events] == [
        (number + 1, b"%d" % number) for number in range(5)
    ]

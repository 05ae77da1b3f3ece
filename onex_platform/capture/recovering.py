"""What an earlier process left: numbers in the checkpoint, events and cuts in the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onex_platform.capture.api.requests import Publication
from onex_platform.capture.buffers import Held
from onex_platform.capture.captured_events import CapturedEvent
from onex_platform.capture.flush.page_making import Cut, decode, decode_cut, decode_event, encode
from onex_platform.capture.wal.commit import Kind
from onex_platform.capture.wal.disk import FolderDisk
from onex_platform.capture.wal.recovery import recover
from onex_platform.capture.wal.segments import Location
from onex_platform.capture.wal.wal_records import Record
from onex_platform.capture.writers import Known, WriterKey, Writers, id_keys


@dataclass
class LeftOver:
    """Events by writer and sequence, cuts with the segments that hold them, and stored pages."""

    events: dict[WriterKey, dict[int, Held]] = field(default_factory=dict)
    cuts: list[tuple[Cut, int]] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)

    def take(self, cut: Cut) -> list[tuple[WriterKey, list[Held]]]:
        """The events of a cut that are still in the log."""
        taken = []
        for writer_id, first, last in cut.writers:
            some = self.events.get((cut.tenant, writer_id), {})
            held = [some.pop(number) for number in range(first, last + 1) if number in some]
            if held:
                taken.append(((cut.tenant, writer_id), held))
        return taken


def unflushed_events(folder: Path) -> list[CapturedEvent]:
    """The events in the log of a snapshotter's folder, by writer and sequence; most are in no page
    yet. It may be at work: a copy is read, and a segment that goes meanwhile is stored by then."""
    log = folder / "wal"
    if not log.is_dir():
        return []
    with TemporaryDirectory() as copy:
        for segment in log.iterdir():
            with suppress(FileNotFoundError):
                shutil.copy(segment, copy)
        _, records = recover(FolderDisk(Path(copy)))
        events = [decode_event(one.payload)[0] for one, _ in records if one.kind == Kind.EVENT]
    return sorted(events, key=lambda event: (event.tenant, event.writer_id, event.sequence))


def write_checkpoint(writers: Writers, stored: Iterable[str], now: float) -> bytes:
    """The numbers that released segments proved, as far as they are durable, and the stored pages
    whose cuts are still in the log."""
    return encode(
        {
            "version": 1,
            "writers": [
                (tenant, writer_id, writer.durable, writer.pages, writer.producers)
                for (tenant, writer_id), writer in writers.items()
            ],
            "ids": [
                (*key, known.sequence, known.event_id, known.digest, now - known.seen_at)
                for key, known in writers.ids.items()
                if known.sequence <= writers[key[0], key[1]].durable
            ],
            "stored": list(stored),
        }
    )


def read_left_over(
    checkpoint: bytes | None,
    records: Iterable[tuple[Record, Location]],
    writers: Writers,
    hold: Callable[[CapturedEvent, int, Location], Held],
    now: float,
) -> LeftOver:
    """Everything, with the writers' numbers restored on the way."""
    left = LeftOver()
    if checkpoint:
        known = decode(checkpoint)
        _restore(known, writers, now)
        left.stored.update(known["stored"])
    for record, location in records:
        if record.kind == Kind.EVENT:
            event, id_was_given = decode_event(record.payload)
            held = hold(event, len(record.payload), location)
            left.events.setdefault((event.tenant, event.writer_id), {})[event.sequence] = held
            _note(event, id_was_given, writers, now)
        elif record.kind == Kind.CUT:
            left.cuts.append((decode_cut(record.payload), location.segment))
        else:
            left.stored.add(record.payload.decode())
    return left


def _restore(known: dict[str, Any], writers: Writers, now: float) -> None:
    for tenant, writer_id, durable, pages, producers in known["writers"]:
        writer = writers[tenant, writer_id]
        writer.last_sequence = writer.durable = durable
        writer.pages = pages
        writer.producers = producers
    for *key, sequence, event_id, digest, age in known["ids"]:
        tenant, writer_id, name, number = key
        answer = Known(sequence, event_id, digest, now - age)
        writers.ids.remember((tenant, writer_id, name, number), answer)


def _note(event: CapturedEvent, id_was_given: bool, writers: Writers, now: float) -> None:
    """What an event proves of its writer: numbers, and ids by which a retry is recognised."""
    writer = writers[event.tenant, event.writer_id]
    writer.last_sequence = writer.durable = max(writer.durable, event.sequence)
    if event.producer_id:
        last = writer.producers.get(event.producer_id, 0)
        writer.note_producer(event.producer_id, max(last, event.producer_sequence))
    asked = Publication(
        event.tenant,
        event.writer_id,
        event.payload,
        event.attributes,
        event.event_id if id_was_given else "",
        event.producer_id,
        event.producer_sequence,
    )
    if keys := id_keys(asked):
        known = Known(event.sequence, event.event_id, asked.digest(), now)
        for key in keys:
            writers.ids.remember(key, known)

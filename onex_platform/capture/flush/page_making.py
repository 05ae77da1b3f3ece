"""Pages on their way, and how events and cuts stand in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onex_platform.capture.buffers import Held
from onex_platform.capture.captured_events import CapturedEvent, PageInfo, WriterRange
from onex_platform.capture.writers import WriterKey

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode

Taken = Sequence[tuple[WriterKey, list[Held]]]
"""What a page takes from buffers, sorted by writer."""


@dataclass(slots=True)
class Page:
    """A page between its cut and the index."""

    info: PageInfo
    key: str
    held: list[Held]
    attempts: int = 0
    cut_segment: int | None = None  # where the cut is logged, if it is
    segments: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.segments.update(one.location.segment for one in self.held)

    @property
    def resident_bytes(self) -> int:
        return sum(held.resident_bytes for held in self.held)


@dataclass(frozen=True, slots=True)
class PageStyle:
    """How pages of this instance look."""

    format: str
    compression: str
    tags: dict[str, str]
    key: Callable[[PageInfo], str]


class Cut(msgspec.Struct, frozen=True):
    """A cut as a record of the log: all that decides the page's bytes, beside its events."""

    page_id: str
    tenant: str
    page_sequence: int
    reason: str
    key: str
    format: str
    compression: str
    tags: dict[str, str]
    writers: list[tuple[str, int, int]]  # writer id, first and last sequence

    @property
    def owner(self) -> WriterKey:
        """Whose pages the page's sequence counts: the writer's, or those that are shared."""
        return self.tenant, self.writers[0][0] if len(self.writers) == 1 else ""

    def page(self, taken: Taken) -> Page:
        """The page of these events; the same events give the same page, whenever it is built."""
        held = [one for _, some in taken for one in some]
        times = [one.timestamp_us for one in held]
        info = PageInfo(
            page_id=self.page_id,
            tenant=self.tenant,
            writers=tuple(_range(writer_id, some) for (_, writer_id), some in taken),
            page_sequence=self.page_sequence,
            start_time_us=min(times),
            end_time_us=max(times),
            event_count=len(held),
            format=self.format,
            compression=self.compression,
            reason=self.reason,
            tags=self.tags,
        )
        return Page(info, self.key, held)


def new_cut(page_id: str, number: int, reason: str, taken: Taken, style: PageStyle) -> Cut:
    """A cut of the instance's style; its key follows from the page that it makes."""
    cut = Cut(
        page_id=page_id,
        tenant=taken[0][0][0],
        page_sequence=number,
        reason=reason,
        key="",
        format=style.format,
        compression=style.compression,
        tags=style.tags,
        writers=[(key[1], some[0].sequence, some[-1].sequence) for key, some in taken],
    )
    return msgspec.structs.replace(cut, key=style.key(cut.page(taken).info))


def _range(writer_id: str, held: Sequence[Held]) -> WriterRange:
    times = [one.timestamp_us for one in held]
    return WriterRange(
        writer_id, held[0].sequence, held[-1].sequence, min(times), max(times), len(held)
    )


def encode_event(event: CapturedEvent, id_was_given: bool) -> bytes:
    """An event as a record of the log."""
    return encode(
        (
            event.tenant,
            event.writer_id,
            event.sequence,
            event.event_id,
            event.timestamp_us,
            event.payload,
            dict(event.attributes),
            event.producer_id,
            event.producer_sequence,
            id_was_given,
        )
    )


def decode_event(payload: bytes) -> tuple[CapturedEvent, bool]:
    """The event, and whether its writer gave it its id."""
    fields: list[Any] = decode(payload)
    return CapturedEvent(*fields[:-1]), fields[-1]


def decode_cut(payload: bytes) -> Cut:
    return _decode_cut(payload)


_decode_cut = msgspec.msgpack.Decoder(Cut).decode

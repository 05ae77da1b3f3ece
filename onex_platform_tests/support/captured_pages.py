"""Events and pages for tests, by hand and by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from hypothesis import strategies as st

from onex_platform.capture.captured_events import (
    CapturedEvent,
    CutReason,
    EncodedPage,
    PageEntry,
    PageInfo,
    ranges_of,
)
from onex_platform.capture.codecs import page_codec
from onex_platform.log.page_format import checksum_of

TENANT = "tenant-1"
NOON = 1_772_366_400_000_000  # 2026-03-01T12:00:00Z
SECOND = 1_000_000

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_WRITER = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
)  # the service refuses empty ids and control characters


def event(
    writer_id: str,
    sequence: int,
    *,
    at: int | None = None,
    payload: bytes = b"",
    attributes: Mapping[str, str] | None = None,
    tenant: str = TENANT,
) -> CapturedEvent:
    """An event; its time follows from its sequence unless one is given."""
    return CapturedEvent(
        tenant,
        writer_id,
        sequence,
        f"{writer_id}-{sequence}",
        NOON + sequence * SECOND if at is None else at,
        payload or f"{writer_id} {sequence}".encode(),
        attributes or {},
    )


def events_of(writer_id: str, numbers: Sequence[int], **rest: object) -> list[CapturedEvent]:
    return [event(writer_id, number, **rest) for number in numbers]  # type: ignore[arg-type]


def info_of(
    events: Sequence[CapturedEvent],
    *,
    page_id: str | None = None,
    replaces: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
) -> PageInfo:
    """What a page of these sorted events says of itself before it is encoded."""
    times = [one.timestamp_us for one in events]
    return PageInfo(
        page_id=page_id or str(uuid4()),
        tenant=events[0].tenant,
        writers=ranges_of(events),
        page_sequence=1,
        start_time_us=min(times),
        end_time_us=max(times),
        event_count=len(events),
        format="protobuf",
        compression="none",
        reason=CutReason.COUNT.value,
        tags=tags or {},
        replaces=tuple(replaces),
    )


def page_of(events: Sequence[CapturedEvent], **about: object) -> EncodedPage:
    """A page as the service would write it."""
    return page_codec("protobuf", "zstd").encode(info_of(events, **about), events)  # type: ignore[arg-type]


def entry_of(page: EncodedPage, key: str | None = None) -> PageEntry:
    """How an index knows the page."""
    return PageEntry(
        page.info, key or f"{page.info.page_id}.pb.zst", len(page.data), checksum_of(page.data)
    )


@st.composite
def captured(draw: st.DrawFn) -> list[CapturedEvent]:
    """Events of one to three writers, sorted as pages have them."""
    writers = draw(st.lists(_WRITER, min_size=1, max_size=3, unique=True).map(sorted))
    events: list[CapturedEvent] = []
    for writer in writers:
        first = draw(st.integers(1, 2**60))
        events += [
            replace(
                event(writer, first + number, at=draw(_INT64)),
                event_id=draw(_TEXT),
                payload=draw(st.binary(max_size=50)),
                attributes=draw(st.dictionaries(_TEXT, _TEXT, max_size=3)),
                producer_id=draw(_TEXT),
                producer_sequence=draw(_INT64),
            )
            for number in range(draw(st.integers(1, 4)))
        ]
    return events


@st.composite
def infos(draw: st.DrawFn, events: Sequence[CapturedEvent]) -> PageInfo:
    """What a page of the events may say of itself."""
    return replace(
        info_of(events, page_id=draw(_TEXT)),
        tenant=draw(_WRITER),
        page_sequence=draw(_INT64),
        reason=draw(st.sampled_from(CutReason)).value,
        tags=draw(st.dictionaries(_TEXT, _TEXT, max_size=3)),
        replaces=tuple(draw(st.lists(_TEXT, max_size=3))),
    )

"""What protobuf and NDJSON pages share: a header, then the events, packed as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onex_platform.capture.captured_events import (
    CapturedEvent,
    DecodedPage,
    EncodedPage,
    EventColumns,
    PageInfo,
)
from onex_platform.capture.codecs.compression import COMPRESSIONS
from onex_platform.capture.errors import PageFormatError


class StreamedCodec(ABC):
    """A format whose bytes are those of the header followed by those of the events."""

    format: str
    content_type: str
    _extension: str

    def __init__(self, compression: str, *, include_metadata: bool = True) -> None:
        self.compression = compression
        self._include_metadata = include_metadata

    @property
    def extension(self) -> str:
        return self._extension + COMPRESSIONS[self.compression].suffix

    def encode(self, info: PageInfo, events: Sequence[CapturedEvent]) -> EncodedPage:
        body = self._encode_events(info, events)
        info = replace(
            info, format=self.format, compression=self.compression, page_size_bytes=len(body)
        )
        packed = COMPRESSIONS[self.compression].pack(self._encode_header(info) + body)
        return EncodedPage(info, packed)

    def decode(self, data: bytes) -> DecodedPage:
        return decoded(*self.columns(COMPRESSIONS[self.compression].unpack(data)))

    def _attributes(self, event: CapturedEvent) -> Mapping[str, str]:
        return event.attributes if self._include_metadata else {}

    @abstractmethod
    def _encode_header(self, info: PageInfo) -> bytes: ...

    @abstractmethod
    def _encode_events(self, info: PageInfo, events: Sequence[CapturedEvent]) -> bytes: ...

    @abstractmethod
    def columns(self, plain: bytes) -> tuple[PageInfo, EventColumns]:
        """What a page says that is unpacked already."""


def whole(info: PageInfo, columns: EventColumns) -> tuple[PageInfo, EventColumns]:
    """The page, if it has as many events as its header says."""
    events = len(columns.sequences)
    if events != info.event_count:
        raise PageFormatError(
            f"The page {info.page_id} is damaged: it holds {events} events"
            f" instead of {info.event_count}."
        )
    return info, columns


def decoded(info: PageInfo, columns: EventColumns) -> DecodedPage:
    """The page, its events as objects."""
    return DecodedPage(info, columns.events(info.tenant))

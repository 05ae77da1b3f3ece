"""What protobuf and NDJSON pages share: a header, then the events, packed as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from onex_platform.capture.captured_events import CapturedEvent, DecodedPage, EncodedPage, PageInfo
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
        return self.decode_plain(COMPRESSIONS[self.compression].unpack(data))

    def decode_plain(self, plain: bytes) -> DecodedPage:
        """A page that is unpacked already."""
        return whole(self._decode_plain(plain))

    def _attributes(self, event: CapturedEvent) -> Mapping[str, str]:
        return event.attributes if self._include_metadata else {}

    @abstractmethod
    def _encode_header(self, info: PageInfo) -> bytes: ...

    @abstractmethod
    def _encode_events(self, info: PageInfo, events: Sequence[CapturedEvent]) -> bytes: ...

    @abstractmethod
    def _decode_plain(self, plain: bytes) -> DecodedPage: ...


def whole(page: DecodedPage) -> DecodedPage:
    """The page, if it has as many events as its header says."""
    if len(page.events) != page.info.event_count:
        raise PageFormatError(
            f"The page {page.info.page_id} is damaged: it holds {len(page.events)} events"
            f" instead of {page.info.event_count}."
        )
    return page

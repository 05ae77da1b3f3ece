"""001's `EventPage`. Protobuf reads concatenated messages as one: header and events are encoded
apart, so that the header can tell the events' size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from onex_platform.capture.api.messages import page_messages
from onex_platform.capture.captured_events import (
    CapturedEvent,
    EventColumns,
    PageInfo,
    WriterRange,
)
from onex_platform.capture.codecs.streamed import StreamedCodec, whole
from onex_platform.capture.errors import PageFormatError
from onex_platform.capture.flush.page_json import require_readable


class ProtobufCodec(StreamedCodec):
    """001's default: small and quick."""

    format = "protobuf"
    content_type = "application/protobuf"
    _extension = "pb"

    def _encode_header(self, info: PageInfo) -> bytes:
        messages = page_messages()
        page = messages.EventPage(
            metadata=messages.PageMetadata(
                writer_id=info.writer_id,
                page_sequence=info.page_sequence,
                start_time=info.start_time_us,
                end_time=info.end_time_us,
                event_count=info.event_count,
                page_size_bytes=info.page_size_bytes,
                format_version=info.format_version,
                compression=info.compression,
                tags=info.tags,
                page_id=info.page_id,
                tenant=info.tenant,
                reason=info.reason,
                writers=[
                    messages.WriterRange(
                        writer_id=span.writer_id,
                        first_sequence=span.first_sequence,
                        last_sequence=span.last_sequence,
                        first_time=span.first_time_us,
                        last_time=span.last_time_us,
                        events=span.events,
                    )
                    for span in info.writers
                ],
                replaces=info.replaces,
            )
        )
        return bytes(page.SerializeToString(deterministic=True))

    def _encode_events(self, info: PageInfo, events: Sequence[CapturedEvent]) -> bytes:
        message, common = page_messages().Event, info.writer_id
        page = page_messages().EventPage(
            events=[
                message(
                    event_id=event.event_id,
                    timestamp=event.timestamp_us,
                    payload=event.payload,
                    attributes=self._attributes(event),
                    sequence=event.sequence,
                    writer_id="" if common else event.writer_id,
                    producer_id=event.producer_id,
                    producer_sequence=event.producer_sequence,
                )
                for event in events
            ]
        )
        return bytes(page.SerializeToString(deterministic=True))

    def columns(self, plain: bytes) -> tuple[PageInfo, EventColumns]:
        try:
            page = page_messages().EventPage.FromString(plain)
        except DecodeError as error:
            raise PageFormatError(f"The page is damaged or no protobuf page: {error}.") from None
        info, events = self._info_of(page.metadata), list(page.events)
        common = info.writer_id
        return whole(
            info,
            EventColumns(
                [event.writer_id or common for event in events],
                [event.sequence for event in events],
                [event.event_id for event in events],
                [event.timestamp for event in events],
                [event.payload for event in events],
                [dict(event.attributes) for event in events],
                [event.producer_id for event in events],
                [event.producer_sequence for event in events],
            ),
        )

    def _info_of(self, metadata: Any) -> PageInfo:
        require_readable(metadata.format_version)
        return PageInfo(
            page_id=metadata.page_id,
            tenant=metadata.tenant,
            writers=tuple(
                WriterRange(
                    span.writer_id,
                    span.first_sequence,
                    span.last_sequence,
                    span.first_time,
                    span.last_time,
                    span.events,
                )
                for span in metadata.writers
            ),
            page_sequence=metadata.page_sequence,
            start_time_us=metadata.start_time,
            end_time_us=metadata.end_time,
            event_count=metadata.event_count,
            format=self.format,
            compression=metadata.compression,
            reason=metadata.reason,
            page_size_bytes=metadata.page_size_bytes,
            format_version=metadata.format_version,
            tags=dict(metadata.tags),
            replaces=tuple(metadata.replaces),
        )

"""001's NDJSON page: a line of metadata, then a line per event with its payload in base64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onex_platform.capture.captured_events import CapturedEvent, EventColumns, PageInfo
from onex_platform.capture.codecs.streamed import StreamedCodec, whole
from onex_platform.capture.errors import PageFormatError
from onex_platform.capture.flush.page_json import info_from_json, info_schema, info_to_json


class _Header(msgspec.Struct):
    metadata: dict[str, Any]


class _Line(msgspec.Struct, omit_defaults=True):
    event_id: str
    timestamp: int
    payload: bytes
    attributes: dict[str, str]
    sequence: int
    writer_id: str = ""  # only if writers share the page
    producer_id: str = ""
    producer_sequence: int = 0


_encode = msgspec.json.Encoder(order="deterministic").encode
_encode_lines = msgspec.json.Encoder(order="deterministic").encode_lines
_decode_header = msgspec.json.Decoder(_Header).decode
_decode_lines = msgspec.json.Decoder(_Line).decode_lines


def line_schema() -> dict[str, Any]:
    """What a line may be, as a JSON Schema: the page's metadata or an event."""
    _, components = msgspec.json.schema_components([_Line])
    event = {name: components["_Line"][name] for name in ("type", "properties", "required")}
    header = {"type": "object", "properties": {"metadata": info_schema()}, "required": ["metadata"]}
    return {"anyOf": [{**line, "additionalProperties": False} for line in (header, event)]}


class NdjsonCodec(StreamedCodec):
    """Legible with the tools that every machine has."""

    format = "ndjson"
    content_type = "application/x-ndjson"
    _extension = "ndjson"

    def _encode_header(self, info: PageInfo) -> bytes:
        return _encode(_Header(info_to_json(info))) + b"\n"

    def _encode_events(self, info: PageInfo, events: Sequence[CapturedEvent]) -> bytes:
        common = info.writer_id
        return _encode_lines(
            [
                _Line(
                    event.event_id,
                    event.timestamp_us,
                    event.payload,
                    dict(self._attributes(event)),
                    event.sequence,
                    "" if common else event.writer_id,
                    event.producer_id,
                    event.producer_sequence,
                )
                for event in events
            ]
        )

    def columns(self, plain: bytes) -> tuple[PageInfo, EventColumns]:
        if not plain.endswith(b"\n"):
            raise PageFormatError("The page is damaged: its last line is cut short.")
        header, _, body = plain.partition(b"\n")
        try:
            info = info_from_json(_decode_header(header).metadata)
            lines = _decode_lines(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PageFormatError(f"The page is damaged or no NDJSON page: {error}.") from None
        common = info.writer_id
        return whole(
            info,
            EventColumns(
                [line.writer_id or common for line in lines],
                [line.sequence for line in lines],
                [line.event_id for line in lines],
                [line.timestamp for line in lines],
                [line.payload for line in lines],
                [line.attributes for line in lines],
                [line.producer_id for line in lines],
                [line.producer_sequence for line in lines],
            ),
        )

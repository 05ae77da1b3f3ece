"""Parquet pages, for those who read pages by columns; compaction writes them as well."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onex_platform.capture.captured_events import CapturedEvent, DecodedPage, EncodedPage, PageInfo
from onex_platform.capture.codecs.streamed import whole
from onex_platform.capture.errors import PageFormatError
from onex_platform.capture.flush.page_json import info_from_json, info_to_json

MAGIC = b"PAR1"
METADATA_KEY = b"onex.capture.page"
SCHEMA = pa.schema(
    [
        pa.field("writer_id", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("producer_id", pa.string(), nullable=False),
        pa.field("producer_sequence", pa.int64(), nullable=False),
    ]
)

# Avro's words for the types of the columns.
_AVRO: dict[pa.DataType, Any] = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.binary(): "bytes",
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.map_(pa.string(), pa.string()): {"type": "map", "values": "string"},
}


def row_schema() -> dict[str, Any]:
    """A row as an Avro record: registries know no Parquet, and Avro has the same types."""
    return {
        "type": "record",
        "name": "Event",
        "namespace": "prism.snapshotter",
        "fields": [{"name": column.name, "type": _AVRO[column.type]} for column in SCHEMA],
    }


class ParquetCodec:
    """Each column is compressed by itself: that is Parquet's own way, which every reader knows."""

    format = "parquet"
    content_type = "application/vnd.apache.parquet"
    extension = "parquet"

    def __init__(self, compression: str, *, include_metadata: bool = True) -> None:
        self.compression = compression
        self._include_metadata = include_metadata

    def encode(self, info: PageInfo, events: Sequence[CapturedEvent]) -> EncodedPage:
        table = self._table(events)
        info = replace(
            info, format=self.format, compression=self.compression, page_size_bytes=table.nbytes
        )
        buffer = io.BytesIO()
        with pq.ParquetWriter(
            buffer,
            SCHEMA,
            compression=self.compression,
            # Ids are unique and payloads nearly so: a dictionary would only be built and dropped.
            use_dictionary=["writer_id", "attributes", "producer_id"],
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({METADATA_KEY: msgspec.json.encode(info_to_json(info))})
        return EncodedPage(info, buffer.getvalue())

    def decode(self, data: bytes) -> DecodedPage:
        try:
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                header = (file.metadata.metadata or {}).get(METADATA_KEY, b"{}")
                info = info_from_json(msgspec.json.decode(header))
                columns = [_values(column) for column in file.read(SCHEMA.names).columns]
        except (pa.ArrowException, OSError, KeyError, msgspec.DecodeError) as error:
            raise PageFormatError(f"The page is damaged or no Parquet page: {error}.") from None
        return whole(
            DecodedPage(
                info,
                tuple(
                    CapturedEvent(
                        info.tenant,
                        writer_id,
                        sequence,
                        event_id,
                        timestamp,
                        payload,
                        dict(attributes),
                        producer_id,
                        producer_sequence,
                    )
                    for (
                        writer_id,
                        sequence,
                        event_id,
                        timestamp,
                        payload,
                        attributes,
                        producer_id,
                        producer_sequence,
                    ) in zip(*columns, strict=True)
                ),
            )
        )

    def _table(self, events: Sequence[CapturedEvent]) -> pa.Table:
        columns = [
            [event.writer_id for event in events],
            [event.sequence for event in events],
            [event.event_id for event in events],
            [event.timestamp_us for event in events],
            [event.payload for event in events],
            [
                sorted(event.attributes.items()) if self._include_metadata else []
                for event in events
            ],
            [event.producer_id for event in events],
            [event.producer_sequence for event in events],
        ]
        arrays = [
            pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _values(column: pa.ChunkedArray) -> list[object]:
    """Python's own values; times stay numbers."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values

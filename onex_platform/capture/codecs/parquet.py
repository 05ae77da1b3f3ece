"""Parquet pages, for those who read pages by columns; compaction writes them as well."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from onex_platform.capture.captured_events import (
    CapturedEvent,
    DecodedPage,
    EncodedPage,
    EventColumns,
    PageInfo,
)
from onex_platform.capture.codecs.streamed import decoded, whole
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
        columns = EventColumns.of(events)
        if not self._include_metadata:
            columns = columns._replace(attributes=[{} for _ in events])
        return self.encode_table(info, event_table(columns))

    def encode_table(self, info: PageInfo, table: pa.Table) -> EncodedPage:
        """A page of events that are columns of Arrow already."""
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
        return decoded(*self.columns(data))

    def columns(self, data: bytes) -> tuple[PageInfo, EventColumns]:
        """What a page says."""
        try:
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                header = (file.metadata.metadata or {}).get(METADATA_KEY, b"{}")
                info = info_from_json(msgspec.json.decode(header))
                columns = EventColumns(*map(_values, file.read(SCHEMA.names).columns))
        except (pa.ArrowException, OSError, KeyError, msgspec.DecodeError) as error:
            raise PageFormatError(f"The page is damaged or no Parquet page: {error}.") from None
        return whole(info, columns._replace(attributes=list(map(dict, columns.attributes))))


def event_table(columns: EventColumns) -> pa.Table:
    """Events as columns of Arrow; attributes are sorted, so that equal ones are the same bytes."""
    values: list[list[Any]] = list(columns)
    values[SCHEMA.get_field_index("attributes")] = [
        sorted(some.items()) for some in columns.attributes
    ]
    arrays = [pa.array(some, type=field.type) for some, field in zip(values, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python's own values; times stay numbers."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values

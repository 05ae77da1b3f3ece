"""Page formats: one class each, any compression. A page's first bytes tell which one wrote it."""

from __future__ import annotations

from collections.abc import Callable

from onex_platform.base.errors import ConfigurationError
from onex_platform.capture.captured_events import DecodedPage, EventColumns, PageInfo
from onex_platform.capture.codecs.compression import COMPRESSIONS, compression_of
from onex_platform.capture.codecs.ndjson import NdjsonCodec
from onex_platform.capture.codecs.parquet import MAGIC as PARQUET_MAGIC
from onex_platform.capture.codecs.parquet import ParquetCodec
from onex_platform.capture.codecs.protobuf import ProtobufCodec
from onex_platform.capture.codecs.streamed import decoded
from onex_platform.capture.slots import PageCodec

FORMATS: dict[str, Callable[..., PageCodec]] = {
    "protobuf": ProtobufCodec,
    "ndjson": NdjsonCodec,
    "parquet": ParquetCodec,
}

# What compaction writes: Spark's own format, which whoever reads pages by columns knows as well.
MERGED_FORMAT = ("parquet", "zstd")


def page_codec(format: str, compression: str, *, include_metadata: bool = True) -> PageCodec:
    """The codec of a format; without `include_metadata`, events lose their attributes."""
    for name, value, known in (
        ("page.format", format, FORMATS),
        ("page.compression", compression, COMPRESSIONS),
    ):
        if value not in known:
            raise ConfigurationError(
                f"{name} is {value!r}.", hint=f"Known are {', '.join(sorted(known))}."
            )
    return FORMATS[format](compression, include_metadata=include_metadata)


def read_page(data: bytes) -> DecodedPage:
    """A page of any format, recognised by its bytes: keys may be named in any way."""
    return decoded(*read_columns(data))


def read_columns(data: bytes) -> tuple[PageInfo, EventColumns]:
    """The same, for whoever needs no objects: they are half of what reading costs."""
    if data.startswith(PARQUET_MAGIC):
        return ParquetCodec("none").columns(data)
    compression = compression_of(data)
    plain = COMPRESSIONS[compression].unpack(data)
    text = plain.startswith(b"{")
    return (NdjsonCodec if text else ProtobufCodec)(compression).columns(plain)

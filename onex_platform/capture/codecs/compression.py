"""Compression of whole pages: one gzip member or one zstd frame, the same bytes every time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from onex_platform.capture.errors import PageFormatError


@dataclass(frozen=True)
class Compression:
    """One way to pack a page."""

    suffix: str  # of keys
    magic: bytes  # how packed bytes begin
    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes], bytes]


def _gzip(data: bytes) -> bytes:
    # Without a time, so that a page that is written again has the same bytes.
    return gzip.compress(data, compresslevel=6, mtime=0)


def _gunzip(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise PageFormatError(f"The page is damaged: its gzip stream ends in {error}.") from None


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _unzstd(data: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    except OSError as error:
        raise PageFormatError(f"The page is damaged: its zstd frame ends in {error}.") from None


COMPRESSIONS = {
    "none": Compression("", b"", bytes, bytes),
    "gzip": Compression(".gz", b"\x1f\x8b", _gzip, _gunzip),
    "zstd": Compression(".zst", b"\x28\xb5\x2f\xfd", _zstd, _unzstd),
}


def compression_of(data: bytes) -> str:
    """What packed these bytes; no page begins like that by itself."""
    packed = [name for name, kind in COMPRESSIONS.items() if kind.magic]
    return next((name for name in packed if data.startswith(COMPRESSIONS[name].magic)), "none")

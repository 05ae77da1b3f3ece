"""001's slots: what the station asks of a page codec, of a store and of an index.

Each slot has one contract suite that every implementation passes. All calls block; the service
makes them in threads. A server that can't be reached raises `InfraConnectionError` or
`InfraTimeoutError`, which are tried again; any other `OnexError` is final.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from onex_platform.capture.captured_events import (
    CapturedEvent,
    DecodedPage,
    EncodedPage,
    PageEntry,
    PageInfo,
)


class PageCodec(Protocol):
    """One page format with one compression. The same input gives the same bytes, always: a page
    that is written again after a crash must be the page that may lie in the store already."""

    @property
    def format(self) -> str:
        """`protobuf`, `ndjson` or `parquet`."""
        ...

    @property
    def compression(self) -> str:
        """`none`, `gzip` or `zstd`."""
        ...

    @property
    def extension(self) -> str:
        """How a key of such a page ends, without the dot: `pb.gz`."""
        ...

    @property
    def content_type(self) -> str: ...

    def encode(self, info: PageInfo, events: Sequence[CapturedEvent]) -> EncodedPage:
        """Events sorted by writer and sequence, as one page."""
        ...

    def decode(self, data: bytes) -> DecodedPage:
        """A page of this or an older format version; a newer one is refused by name."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a store says of one object; `attributes` is empty where the store keeps none."""

    key: str
    size: int
    modified_at: datetime
    attributes: Mapping[str, str]
    etag: str = ""
    version_id: str = ""


class ObjectStorage(Protocol):
    """001's `storage_object`: five operations, and what was probed at the start."""

    @property
    def backend(self) -> str:
        """The configuration's word for it: `s3`, `minio`, `azure`, `gcs`, `filesystem`."""
        ...

    def probe(self) -> Mapping[str, bool]:
        """Write and remove a small object; say whether the store refuses an existing key
        (`conditional_create`) and keeps versions (`versioning`)."""
        ...

    def put(
        self, key: str, data: bytes, *, content_type: str, attributes: Mapping[str, str]
    ) -> ObjectHead:
        """Create an object and confirm it by size and checksum before returning.

        A key that holds the same bytes already is success: it is our own page. One that holds other
        bytes raises `ObjectExistsError`; nothing is ever overwritten. Attributes are ASCII, below
        2 KB together.
        """
        ...

    def get(self, key: str, offset: int = 0, limit: int = 0) -> bytes:
        """The bytes from `offset` on, at most `limit` of them (0: all); raises
        `ObjectMissingError`."""
        ...

    def delete(self, key: str) -> bool:
        """Remove an object; False if it was gone already."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectHead]:
        """Every object below a prefix, without attributes, however many there are."""
        ...

    def head(self, key: str) -> ObjectHead:
        """One object with its attributes; raises `ObjectMissingError`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which pages a reader wants; what is left empty does not restrict. Times overlap: a page is
    found if any of its events, of that writer where one is named, may lie in [from, until)."""

    tenant: str
    writer_id: str | None = None
    from_us: int | None = None
    until_us: int | None = None


class PageIndex(Protocol):
    """Where pages are found. Readers see a replacement as one change, everywhere."""

    @property
    def backend(self) -> str:
        """The configuration's word for it: `postgres`, `memstore`, `redis`, …"""
        ...

    def publish(self, entries: Sequence[PageEntry]) -> None:
        """Make pages known, all or none where the server can; a page that is known already, or was
        replaced, stays as it is."""
        ...

    def query(self, query: PageQuery) -> Iterator[PageEntry]:
        """The pages of a tenant that match and were not replaced, by start time, then id."""
        ...

    def replace(self, entry: PageEntry) -> None:
        """Publish a page instead of those that `entry.info.replaces` names, in one change."""
        ...

    def forget(self, page_ids: Sequence[str]) -> int:
        """Remove entries; how many were there."""
        ...

    def replaced(self, tenant: str) -> Iterator[PageEntry]:
        """The pages that were replaced and are still remembered: their objects await removal."""
        ...

    def count(self) -> int:
        """How many pages readers can find, of all tenants."""
        ...

    def check(self) -> None:
        """Raise if the server does not answer."""
        ...

    def close(self) -> None: ...

"""Where pages lie: a local folder by default; S3, Google Cloud Storage or Azure by URL.

One library (obstore, the Rust object_store) speaks to all of them. A page is created, never
overwritten: the store is asked to refuse a key that exists.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

from onex_platform.base.errors import ConfigurationError, InfraConnectionError, OnexError
from onex_platform.log.page_format import EncodedPage, checksum_of
from onex_platform.log.page_layout import PageMetadata

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Enough to hide a remote store's latency, and a bound on the pages in memory at once.
_THREADS = 8
_PAGE_KEY = re.compile(r"[^/]+/\d{4}/\d\d/\d\d/\d\d/[0-9a-f-]{36}\.parquet")
_SETTING = "Check ONEX_PAGES_URL and the credentials of the store."
_VERIFY = "`onex pages verify` lists every page that is missing or damaged."


class PageMissingError(OnexError):
    """A page that the page table names is not in the store."""


class PageExistsError(OnexError):
    """The key is taken, and stored objects are never overwritten."""


class PageDamagedError(OnexError):
    """A page's bytes are not those that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a remote store is reached; what is not given, the environment or the library decides.

    `credentials` have the names that the store's own variables have, in small letters, such as
    `aws_access_key_id`. They are never printed.
    """

    endpoint: str | None = None
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_class: str | None = None
    max_retries: int | None = None  # 0 leaves trying again to the caller
    retry_timeout: timedelta | None = None
    request_timeout: timedelta | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What obstore is told, for any kind of store."""
        config = dict(self.credentials)
        client: dict[str, Any] = {}
        if self.endpoint is not None:
            config["endpoint"] = self.endpoint
            client["allow_http"] = self.endpoint.startswith("http://")
        if self.request_timeout is not None:
            client["timeout"] = self.request_timeout
        limits = {"max_retries": self.max_retries, "retry_timeout": self.retry_timeout}
        retries = {name: limit for name, limit in limits.items() if limit is not None}
        parts = {"config": config, "client_options": client, "retry_config": retries}
        return {name: part for name, part in parts.items() if part}


class CreatedObject(NamedTuple):
    """What the store says of an object that it has just stored; None: it says nothing."""

    e_tag: str | None
    version: str | None


class StoredPage(NamedTuple):
    """A page of the log and where it lies."""

    metadata: PageMetadata
    key: str
    encoded_bytes: int
    checksum: str


class StoredObject(NamedTuple):
    """What a listing of the store says of one object."""

    key: str
    encoded_bytes: int
    modified_at: datetime

    @property
    def is_page(self) -> bool:
        """Whether it lies where a page would; other things may lie in the same store."""
        return _PAGE_KEY.fullmatch(self.key) is not None


class ObjectDetails(NamedTuple):
    """What a store says of one object when it is asked for it."""

    key: str
    encoded_bytes: int
    modified_at: datetime
    attributes: Mapping[str, str]
    etag: str
    version: str


class StoreAbilities(NamedTuple):
    """What a store was seen to do."""

    conditional_create: bool  # refuses a key that exists
    versioning: bool  # keeps what is overwritten or deleted


def page_key(metadata: PageMetadata) -> str:
    """Where a page lies: by domain and hour; its id makes the key unique."""
    return f"{metadata.domain}/{metadata.period:%Y/%m/%d/%H}/{metadata.page_id}.parquet"


class PageStore:
    """A bucket, container or folder of objects, addressed by URL; it can travel to the workers.

    `hint` tells people where address and credentials are set.
    """

    def __init__(
        self, url: str, options: StoreOptions | None = None, *, hint: str = _SETTING
    ) -> None:
        self.url = url
        self.options = options or StoreOptions()
        self._hint = hint
        self._folder: Path | None = None
        self._store: Any
        try:
            if "://" not in url:
                self._folder = Path(url).resolve()
                self._folder.mkdir(parents=True, exist_ok=True)
                self._store = obstore.store.LocalStore(str(self._folder))
            else:
                self._store = obstore.store.from_url(url, **self.options.arguments)
        except (BaseError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"The page archive {url!r} can't be opened: {error}.",
                hint="Set ONEX_PAGES_URL to a folder or to an s3://, gs:// or az:// address.",
            ) from None

    def __reduce__(self) -> tuple[type[PageStore], tuple[str, StoreOptions]]:
        return PageStore, (self.url, self.options)

    def create(
        self, key: str, data: bytes, attributes: Mapping[str, str] | None = None
    ) -> CreatedObject:
        """Store a new object, where the store keeps them with its attributes; a key that exists
        already is an error, never overwritten."""
        kept = dict(attributes or {})
        if self.options.storage_class is not None:
            kept["Storage-Class"] = self.options.storage_class
        with self._translated(key):
            try:
                put = obstore.put(
                    self._store,
                    key,
                    data,
                    mode="create",
                    attributes=kept if kept and self._folder is None else None,
                )
            except AlreadyExistsError:
                raise PageExistsError(
                    f"{key} exists in {self.url} already; pages are never overwritten."
                ) from None
            if self._folder is not None:
                _sync(self._folder, key)
        return CreatedObject(put["e_tag"], put["version"])

    def create_page(self, page: EncodedPage) -> StoredPage:
        """Store a page; it is not part of the log yet."""
        key = page_key(page.metadata)
        self.create(key, page.data, page.attributes)
        return StoredPage(page.metadata, key, len(page.data), page.checksum)

    def read(self, key: str) -> bytes:
        with self._translated(key):
            if self._folder is not None:  # a fifth of what the library takes
                return (self._folder / key).read_bytes()
            return bytes(obstore.get(self._store, key).bytes())

    def read_whole(self, key: str, checksum: str) -> bytes:
        """A page's bytes; raises if they are not those that the page table knows."""
        data = self.read(key)
        if checksum_of(data) != checksum:
            raise PageDamagedError(
                f"{key} in the page archive {self.url} is damaged: its checksum is not {checksum}.",
                hint=_VERIFY,
            )
        return data

    def open(self, key: str) -> BinaryIO:
        """A seekable reader that fetches only the ranges it is asked for."""
        with self._translated(key):
            if self._folder is not None:
                return (self._folder / key).open("rb")
            size = obstore.head(self._store, key)["size"]
            return io.BufferedReader(_Ranges(self, key, size), 64 * 1024)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Some of an object's bytes."""
        with self._translated(key):
            return bytes(obstore.get_range(self._store, key, start=start, length=length))

    def delete(self, key: str) -> None:
        """Remove an object; one that is gone already is as good."""
        with self._translated(key):
            try:
                obstore.delete(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return

    def head(self, key: str) -> ObjectDetails:
        """One object's details, with the attributes that it was created with."""
        with self._translated(key):
            found = obstore.get(self._store, key, options={"head": True})
            return ObjectDetails(
                key,
                found.meta["size"],
                found.meta["last_modified"],
                dict(found.attributes),
                found.meta["e_tag"] or "",
                found.meta["version"] or "",
            )

    def probe(self, key: str) -> StoreAbilities:
        """What the store does with a key of no use: written twice, then removed."""
        self.create(key, b"first")
        try:
            first = self.head(key).version
            try:
                self.create(key, b"second")
            except PageExistsError:
                conditional = True
            else:
                conditional = False
            with self._translated(key):
                obstore.put(self._store, key, b"third")
            return StoreAbilities(conditional, bool(first) and self._still_has(key, first))
        finally:
            self.delete(key)

    def _still_has(self, key: str, version: str) -> bool:
        """Whether an overwritten version can be read: some stores number what they don't keep."""
        with self._translated(key):
            try:
                obstore.get(self._store, key, options={"head": True, "version": version})
            except (BaseError, FileNotFoundError):
                return False
            return True

    def objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object below a folder, in chunks, however many there are."""
        with self._translated(prefix):
            for chunk in obstore.list(self._store, prefix=prefix or None):
                for item in chunk:
                    yield StoredObject(item["path"], item["size"], item["last_modified"])

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (NotFoundError, FileNotFoundError):
            raise PageMissingError(
                f"{key} is not in the page archive {self.url}.",
                hint=_VERIFY,
            ) from None
        except (BaseError, OSError) as error:
            raise InfraConnectionError(
                f"The page archive {self.url} failed at {key}: {_gist(error)}.",
                hint=self._hint,
            ) from error


def _gist(error: Exception) -> str:
    """What the library says to people; behind it, it repeats itself for developers."""
    return str(error).split("\n\nDebug source", 1)[0]


def concurrently(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """What the work on each item came to, in order; several wait for the store at once."""
    pending = iter(items)
    with ThreadPoolExecutor(_THREADS) as pool:
        while some := list(islice(pending, 16 * _THREADS)):
            yield from pool.map(work, some)


def _sync(folder: Path, key: str) -> None:
    """Bring a local file to the disk, with the folders that lead to it: obstore does not, and the
    page table must never name a page that is lost."""
    path = folder / key
    for place in (path, *path.parents):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if place == folder:
            break


class _Ranges(io.RawIOBase):
    """A remote object as a file, read range by range."""

    def __init__(self, store: PageStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._place)
        if length <= 0:
            return 0
        buffer[:length] = self._store.read_range(self._key, self._place, length)
        self._place += length
        return length

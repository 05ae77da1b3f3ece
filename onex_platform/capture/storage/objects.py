"""001's `storage_object`: five operations, on any store that the page archive can lie in.

What holds:
- An object is never overwritten. Where the store does not refuse an existing key, it is looked for
  first; keys are unique, so that nobody can come in between.
- A put has succeeded once the store was asked again and has the same bytes. A store may answer
  "200 OK" with an error in the body, or lose its answer after it has stored everything: neither
  misleads us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from uuid import uuid4

from onex_platform.base.errors import InfraConnectionError
from onex_platform.capture.errors import ObjectExistsError, ObjectMissingError
from onex_platform.capture.slots import ObjectHead
from onex_platform.log.store import PageExistsError, PageMissingError, PageStore

PROBES = "_probes"  # the folder of what `probe` writes


class ObjectStore:
    """The operations, on a bucket, a container or a folder."""

    def __init__(self, backend: str, store: PageStore, *, storage_class: str | None = None) -> None:
        self.backend = backend
        self._store = store
        self._extra = {"Storage-Class": storage_class} if storage_class else {}
        self._refuses_existing: bool | None = None  # not probed yet

    def probe(self) -> dict[str, bool]:
        """Write and remove a small object, to see what the store does."""
        abilities = self._store.probe(f"{PROBES}/{uuid4()}")
        self._refuses_existing = abilities.conditional_create
        return abilities._asdict()

    def put(
        self, key: str, data: bytes, *, content_type: str, attributes: Mapping[str, str]
    ) -> ObjectHead:
        """Create an object; see the slot for what is promised."""
        if self._refuses_existing is None:
            self.probe()
        if not self._refuses_existing and self._holds(key):
            return self._confirmed(key, data, fresh=False)
        described = {**attributes, **self._extra, "Content-Type": content_type}
        try:
            self._store.create(key, data, described)
        except PageExistsError:
            return self._confirmed(key, data, fresh=False)
        return self._confirmed(key, data, fresh=True)

    def get(self, key: str, offset: int = 0, limit: int = 0) -> bytes:
        """An object's bytes, or some of them. It is read whole: pages are small, and some servers
        take no notice of a range."""
        with _translated(key):
            data = self._store.read(key)
        return data[offset : offset + limit if limit else None]

    def delete(self, key: str) -> bool:
        """Remove an object; stores don't say whether there was one, so it is looked for."""
        if not self._holds(key):
            return False
        self._store.delete(key)
        return True

    def list(self, prefix: str = "") -> Iterator[ObjectHead]:
        """Every object below a prefix."""
        for found in self._store.objects(prefix):
            yield ObjectHead(found.key, found.encoded_bytes, found.modified_at, {})

    def head(self, key: str) -> ObjectHead:
        """One object with its attributes."""
        with _translated(key):
            found = self._store.head(key)
        return ObjectHead(
            key, found.encoded_bytes, found.modified_at, found.attributes, found.etag, found.version
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _holds(self, key: str) -> bool:
        try:
            self._store.head(key)
        except PageMissingError:
            return False
        return True

    def _confirmed(self, key: str, data: bytes, *, fresh: bool) -> ObjectHead:
        """The object, once it is known to hold the data. One that was there before may hold other
        bytes for good; one that was just created is damaged, and the caller tries again."""
        try:
            head = self.head(key)
            if head.size == len(data) and (_tells(head.etag, data) or self.get(key) == data):
                return head
        except ObjectMissingError:
            raise InfraConnectionError(
                f"The store {self._store.url} said that it has {key}, and does not.",
                hint="The page is kept and stored again.",
            ) from None
        if fresh:
            raise InfraConnectionError(
                f"The store {self._store.url} has {head.size} other bytes at {key} than the"
                f" {len(data)} it was given.",
                hint="The page is kept and stored again.",
            )
        raise ObjectExistsError(
            f"{key} in {self._store.url} holds another object; it is never overwritten.",
            hint="Give this snapshotter a bucket or a key_template of its own.",
        )


def _tells(etag: str, data: bytes) -> bool:
    """Whether the ETag proves the bytes: S3's is their MD5 unless they are encrypted there. For
    others the object is read back."""
    return etag.strip('"') == md5(data, usedforsecurity=False).hexdigest()


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except PageMissingError as error:
        raise ObjectMissingError(
            error.message, hint="`onex pages reconcile` compares index and store."
        ) from None

"""A capture archive as its readers and its maintenance reach it: store and index of one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from onex_platform.base.settings import Settings
from onex_platform.capture.config import CaptureConfig
from onex_platform.capture.flush.keys import DEFAULT_TENANT
from onex_platform.capture.index import open_index
from onex_platform.capture.slots import ObjectStorage, PageIndex
from onex_platform.capture.storage import open_storage


@dataclass(frozen=True, slots=True)
class ArchiveAddress:
    """All that it takes to open an archive; it travels to the workers of Spark. The settings name
    the platform's database, where the index has none of its own."""

    config: CaptureConfig
    settings: Settings

    @contextmanager
    def open(self) -> Iterator[CapturedArchive]:
        """The archive for the block, over connections of its own."""
        storage = open_storage(self.config.storage)
        index = open_index(self.config.index, self.settings)
        try:
            yield CapturedArchive(self, storage, index)
        finally:
            index.close()
            storage.close()


@dataclass(frozen=True, slots=True)
class CapturedArchive:
    """An archive that is open."""

    address: ArchiveAddress
    storage: ObjectStorage
    index: PageIndex

    @property
    def config(self) -> CaptureConfig:
        return self.address.config

    @property
    def tenants(self) -> list[str]:
        """Those that the configuration knows."""
        return sorted({DEFAULT_TENANT, *(token.tenant for token in self.config.tokens)})

"""The pages' tests use the projections' migrated database and store, and their own archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform_tests.projections.conftest import another_store, store, store_settings
from onex_platform_tests.support.written_logs import WrittenLog

__all__ = ["another_store", "store", "store_settings"]


@pytest.fixture
def archive_settings(store_settings: Settings, tmp_path: Path) -> Settings:
    pages = PagesSettings(url=str(tmp_path / "pages"), buckets=4)
    return store_settings.model_copy(update={"pages": pages})


@pytest.fixture
def archive(archive_settings: Settings) -> Iterator[PageArchive]:
    with open_archive(archive_settings) as opened:
        yield opened


@pytest.fixture
def log(archive: PageArchive) -> WrittenLog:
    return WrittenLog(archive)

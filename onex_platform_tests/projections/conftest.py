"""A migrated database of its own for each test, the store on top of it, and a log beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.ingest.archive import PageArchive, open_archive
from onex_platform_tests.support.stored_rows import Store, open_store


@pytest.fixture
def store_settings(database_settings: Settings) -> Settings:
    migrate(database_settings)
    return database_settings


@pytest.fixture
def another_store(store_settings: Settings) -> Iterator[Callable[[], Store]]:
    """Opens the store as another process would."""
    with ExitStack() as stores:
        yield lambda: stores.enter_context(open_store(store_settings))


@pytest.fixture
def store(another_store: Callable[[], Store]) -> Store:
    return another_store()


@pytest.fixture
def log_settings(store_settings: Settings, tmp_path: Path) -> Settings:
    """A page archive of the test's own."""
    pages = PagesSettings(url=str(tmp_path / "pages"))
    return store_settings.model_copy(update={"pages": pages})


@pytest.fixture
def archive(log_settings: Settings) -> Iterator[PageArchive]:
    with open_archive(log_settings) as opened:
        yield opened

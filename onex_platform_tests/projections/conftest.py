"""A migrated database of its own for each test, and the store on top of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from onex_platform.engines.migrations import migrate
from onex_platform.settings import Settings
from onex_platform_tests.projections.stored import Store, open_store


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

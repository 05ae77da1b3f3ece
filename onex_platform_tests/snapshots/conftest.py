"""A registry with a snapshot topic of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.snapshot_registry import Registry, open_registry


@pytest.fixture
def registry(database_settings: Settings) -> Iterator[Registry]:
    migrate(database_settings)
    create_topics(database_settings)
    with open_registry(database_settings) as opened:
        yield opened

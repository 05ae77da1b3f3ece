"""The deadlines' tests use the projections' migrated database and store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform.base.settings import Settings
from onex_platform_tests.projections.conftest import log_settings, store_settings
from onex_platform_tests.support.watched_clock import Watched, open_watched

__all__ = ["log_settings", "store_settings"]


@pytest.fixture
def watched(log_settings: Settings) -> Iterator[Watched]:
    with open_watched(log_settings) as opened:
        yield opened


@pytest.fixture
def piped(pipeline_settings: Settings) -> Iterator[Watched]:
    """Connected to the broker, with nothing to read there yet."""
    with open_watched(pipeline_settings) as opened:
        yield opened

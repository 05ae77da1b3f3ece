"""A registry whose deadlines are watched, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform.base.settings import Settings
from onex_platform_tests.support.watched_clock import Watched, open_watched


@pytest.fixture
def watched(archive_settings: Settings) -> Iterator[Watched]:
    with open_watched(archive_settings) as opened:
        yield opened

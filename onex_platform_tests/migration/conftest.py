"""Both kinds of moves, each with topics and groups of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onex_platform.base.settings import Settings
from onex_platform_tests.support.moving_topics import MovingTopic, moving_topic


@pytest.fixture(params=["name", "version", "namespace"])
def moving(request: pytest.FixtureRequest, store_settings: Settings) -> Iterator[MovingTopic]:
    """A legacy name that moves to its twin, and versions that move to the next: of an event of
    ours, and of a topic of the namespace."""
    with moving_topic(store_settings, request.param) as opened:
        yield opened


@pytest.fixture
def stream(store_settings: Settings) -> Iterator[MovingTopic]:
    with moving_topic(store_settings, "namespace") as opened:
        yield opened


@pytest.fixture
def version(store_settings: Settings) -> Iterator[MovingTopic]:
    with moving_topic(store_settings, "version") as opened:
        yield opened

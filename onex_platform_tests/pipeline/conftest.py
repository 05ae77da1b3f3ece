"""A broker whose clock a test can turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onex_platform import stack
from onex_platform.base.settings import PagesSettings, Settings
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.provision import create_topics
from onex_platform_tests.support.graph import keep_senders_times
from onex_platform_tests.support.stacks import embedded_settings


@pytest.fixture
def quiet_broker(store_settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A broker of the test's own, on which senders date the introspections: what enters the shared
    one now lies behind what others sent."""
    with stack.running(embedded_settings(tmp_path / "stack"), services=("kafka",)) as attached:
        create_topics(attached, load_catalogue())
        introspections = load_catalogue().for_kind(EnumEventKind.NODE_INTROSPECTION)
        keep_senders_times(attached, introspections.topic)
        pages = PagesSettings(url=str(tmp_path / "pages"))
        yield store_settings.model_copy(update={"kafka": attached.kafka, "pages": pages})

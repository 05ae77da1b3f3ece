"""Topics on a cluster: what a creation has achieved when it returns."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onex_platform.engines.kafka import end_positions, open_admin
from onex_platform.engines.kafka_topics import TopicLayout, create
from onex_platform.settings import Settings

pytestmark = pytest.mark.servers


def test_new_topics_answer_at_once(kafka_settings: Settings) -> None:
    names = [f"test.{uuid4().hex}" for _ in range(20)]
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, 3, replication_factor=1, config={}) for name in names])
    assert set(end_positions(kafka_settings, names).values()) == {0}

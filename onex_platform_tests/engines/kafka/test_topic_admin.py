"""Topics on a cluster: what a creation has achieved when it returns, and who they are."""

from __future__ import annotations

from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import end_positions, open_admin
from onex_platform.engines.kafka.topic_admin import KafkaSession, TopicLayout, create, topic_ids
from onex_platform.stack.processes import wait_until

pytestmark = pytest.mark.servers


def test_new_topics_answer_at_once(kafka_settings: Settings) -> None:
    names = [f"test.{uuid4().hex}" for _ in range(20)]
    with open_admin(kafka_settings) as admin:
        create(admin, [TopicLayout(name, 3, replication_factor=1, config={}) for name in names])
    assert set(end_positions(kafka_settings, names).values()) == {0}


def test_a_topic_that_is_made_again_has_another_id(kafka_settings: Settings) -> None:
    name = f"tests.{uuid4()}"
    layout = TopicLayout(name, 1, 1, {})
    with KafkaSession(kafka_settings) as session:
        admin = session.admin()
        create(admin, [layout])
        first = topic_ids(admin, [name, "tests.nowhere"])
        assert list(first) == [name]
        assert topic_ids(session.admin(), [name]) == first
        admin.delete_topics([name])[name].result()
        assert wait_until(lambda: topic_ids(admin, [name]) == {}, 10)
        create(admin, [layout])
        assert topic_ids(admin, [name]).keys() == {name}
        assert topic_ids(admin, [name]) != first

"""The platform's own topics of numbers and audits: made for a test, and read by their contracts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import create, delete
from onex_platform.governance.state import layout_in
from onex_platform.topics.catalogue import Catalogue, load_whole_catalogue
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.policy import load_policy
from onex_platform.topics.schemas.published_values import schema_of, topic_of


def make_topics(settings: Settings, names: Collection[StreamName]) -> dict[str, StreamName]:
    """The topics as the broker has them, by its names for them."""
    whole = load_whole_catalogue()
    topics = {topic_of(str(name), settings.environment): name for name in names}
    layouts = [
        layout_in(whole[str(name)], load_policy(), settings.environment, topic)
        for topic, name in topics.items()
    ]
    with open_admin(settings) as admin:
        create(admin, layouts)
    return topics


@contextmanager
def topics_for_a_while(
    settings: Settings, names: Collection[StreamName]
) -> Iterator[dict[str, StreamName]]:
    """The same for the block: platforms of other tests don't find the topics, and keep quiet."""
    topics = make_topics(settings, names)
    try:
        yield topics
    finally:
        with open_admin(settings) as admin:
            for topic in topics:
                delete(admin, topic)


def as_contracts_say() -> nullcontext[Catalogue]:
    """`Published` for tests in which no topic moves."""
    return nullcontext(load_whole_catalogue())


def decoded(name: StreamName, value: bytes) -> Any:
    """A value by the schema of its contract."""
    return schema_of(name).decode(value)

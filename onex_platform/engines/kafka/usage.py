"""Who uses topics: when they last got a record, and which groups read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from onex_platform.engines.kafka.clients import KafkaAdmin, translated


def last_records(admin: KafkaAdmin, names: Collection[str]) -> dict[str, datetime]:
    """The time of each topic's newest record; a topic without records is left out."""
    newest: dict[str, datetime] = {}
    with translated(admin.settings, "say when its topics were written to"):
        found = admin.list_topics(timeout=admin.settings.kafka.request_timeout_seconds).topics
        places = {
            TopicPartition(name, partition): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for name in names
            if name in found
            for partition in found[name].partitions
        }
        for place, answer in (admin.list_offsets(places) if places else {}).items():
            told = answer.result(timeout=_patience(admin))
            if told.offset >= 0:
                moment = datetime.fromtimestamp(told.timestamp / 1000, UTC)
                newest[place.topic] = max(moment, newest.get(place.topic, moment))
    return newest


def reading_groups(admin: KafkaAdmin, names: Collection[str]) -> dict[str, set[str]]:
    """The groups that have committed an offset of a topic, by topic."""
    readers: dict[str, set[str]] = defaultdict(set)
    with translated(admin.settings, "list its groups"):
        listed = admin.list_consumer_groups().result(timeout=_patience(admin))
        for group in (found.group_id for found in listed.valid):
            request = [ConsumerGroupTopicPartitions(group)]
            for answer in admin.list_consumer_group_offsets(request).values():
                for place in answer.result(timeout=_patience(admin)).topic_partitions:
                    if place.error is not None:
                        raise KafkaException(place.error)
                    if place.topic in names and place.offset >= 0:
                        readers[place.topic].add(group)
    return readers


def _patience(admin: KafkaAdmin) -> float:
    return 2 * admin.settings.kafka.request_timeout_seconds

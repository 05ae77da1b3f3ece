"""Where groups are in topics: their members, what they have committed, and setting it for them;
and which offset a topic had at a moment.

The broker's errors hide in each partition of an answer: all are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from onex_platform.engines.kafka.clients import KafkaAdmin, Positions, translated

_MILLISECONDS = 1000
_PAUSE_SECONDS = 0.1
# For a moment after a broker came up, or took groups over from another.
_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def member_count(admin: KafkaAdmin, group: str) -> int:
    """How many consumers the group has now; one that nobody knows has none."""
    with translated(admin.settings, f"describe group {group}"):
        try:
            found = _coordinated(admin, lambda: admin.describe_consumer_groups([group])[group])
            return len(found.members)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return 0


def committed(admin: KafkaAdmin, group: str, topic: str) -> Positions:
    """The group's next offsets in the topic; partitions that it has not read are left out."""
    with translated(admin.settings, f"say where group {group} is"):
        request = [ConsumerGroupTopicPartitions(group)]
        try:
            found = _coordinated(
                admin, lambda: admin.list_consumer_group_offsets(request)[group]
            ).topic_partitions
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return {}
        _require_no_error(found)
    return {(p.topic, p.partition): p.offset for p in found if p.topic == topic and p.offset >= 0}


def commit_for(admin: KafkaAdmin, group: str, positions: Positions) -> None:
    """Set a group that has no members to these offsets; a group with members is an error."""
    places = [TopicPartition(*place, offset) for place, offset in positions.items()]
    with translated(admin.settings, f"set the offsets of group {group}"):
        request = [ConsumerGroupTopicPartitions(group, places)]
        answer = _coordinated(admin, lambda: admin.alter_consumer_group_offsets(request)[group])
        _require_no_error(answer.topic_partitions)


def offsets_at(admin: KafkaAdmin, topic: str, moment: datetime) -> Positions:
    """In each partition the first offset from the moment on; the end if there is none."""
    # The ends come first: what arrives meanwhile lies behind them and is read in any case.
    ends = _listed(admin, topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    stamp = int(moment.timestamp() * _MILLISECONDS)
    found = _listed(admin, topic, OffsetSpec.for_timestamp(stamp))
    return {place: end if found[place] < 0 else found[place] for place, end in ends.items()}


def first_offsets(admin: KafkaAdmin, topic: str) -> Positions:
    """The oldest offset that each partition still has."""
    return _listed(admin, topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def end_offsets(admin: KafkaAdmin, topic: str) -> Positions:
    """Where each partition ends now: before the first transaction that is open."""
    return _listed(admin, topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _listed(admin: KafkaAdmin, topic: str, spec: OffsetSpec) -> Positions:
    with translated(admin.settings, f"say where {topic} is"):
        described = admin.list_topics(topic, timeout=_patience(admin)).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        places = [TopicPartition(topic, partition) for partition in described.partitions]
        answers = admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED
        )
        return {
            (place.topic, place.partition): answer.result(timeout=_patience(admin)).offset
            for place, answer in answers.items()
        }


def _coordinated(admin: KafkaAdmin, ask: Callable[[], Future[Any]]) -> Any:
    """What the group's coordinator answers; one that is not ready yet is asked again."""
    given_up = time.monotonic() + _patience(admin)
    while True:
        try:
            return ask().result(timeout=_patience(admin))
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > given_up:
                raise
            time.sleep(_PAUSE_SECONDS)


def _require_no_error(places: Collection[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _patience(admin: KafkaAdmin) -> float:
    return 2 * admin.settings.kafka.request_timeout_seconds

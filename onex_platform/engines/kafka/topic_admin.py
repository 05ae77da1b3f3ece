"""Topics on a cluster, in plain values: how they are set up, new ones, and other settings.

Nothing here changes a topic's partitions; what is deleted is named by the caller.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.clients import (
    KafkaAdmin,
    KafkaConsumer,
    open_admin,
    open_consumer,
    translated,
)
from onex_platform.engines.kafka.errors import naming_the_right

TIMESTAMP_TYPE = "message.timestamp.type"
BROKER_TIME = "LogAppendTime"

_2_64 = 2**64  # the halves of an id come as signed numbers
_INTERNAL = "__"  # Kafka's own topics begin so
_SHORT_MS = 10
_SETTINGS_AGE = 10.0  # seconds
_NOT_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


@dataclass(frozen=True)
class TopicLayout:
    """How a topic is set up; `config` has Kafka's names and holds what was asked for."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class KafkaSession:
    """An admin client and a consumer for as long as the block lasts, opened when they are first
    needed: to open one takes many times longer than to ask it something."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._admin: KafkaAdmin | None = None
        self._consumer: KafkaConsumer | None = None
        self._dated: tuple[float, Collection[str], set[str]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._admin = self._consumer = None
        self._stack.close()

    def admin(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = self._stack.enter_context(open_admin(self._settings))
        self._admin.poll(0)
        return self._admin

    def consumer(self) -> KafkaConsumer:
        """It reads nothing; whoever assigns partitions to it takes them away again.

        While the broker has it wait at the end of a partition, it answers nothing else: so it does
        not wait for long.
        """
        if self._consumer is None:
            prompt = {"enable.partition.eof": True, "fetch.wait.max.ms": _SHORT_MS}
            opened = open_consumer(self._settings, None, **prompt)
            self._consumer = self._stack.enter_context(opened)
        return self._consumer

    def dated_by_senders(self, names: Collection[str]) -> set[str]:
        """`dated_by_senders`, as it was a few seconds ago at most: a setting seldom changes."""
        now, names = time.monotonic(), frozenset(names)
        if self._dated is None or self._dated[1] != names or now - self._dated[0] > _SETTINGS_AGE:
            self._dated = now, names, dated_by_senders(self.admin(), names)
        return self._dated[2]


def topic_names(admin: KafkaAdmin) -> set[str]:
    """The cluster's topics, without Kafka's internal ones."""
    return {name for name in _metadata(admin) if not name.startswith(_INTERNAL)}


def describe(admin: KafkaAdmin, names: Collection[str]) -> dict[str, TopicLayout]:
    """How existing topics are set up; one that was created a moment ago is waited for."""
    if not names:
        return {}
    metadata = _await_topics(admin, names)
    layouts = {}
    for name, config in _configs(admin, names).items():
        partitions = metadata[name].partitions
        layouts[name] = TopicLayout(
            name=name,
            partitions=len(partitions),
            replication_factor=min(len(found.replicas) for found in partitions.values()),
            config=config,
        )
    return layouts


def most_bytes(admin: KafkaAdmin, topic: str) -> int:
    """How large a record may be with what travels with it, by the topic's limit and its segments'
    size."""
    config = describe(admin, [topic])[topic].config
    return min(int(config["max.message.bytes"]), int(config["segment.bytes"]))


def create(
    admin: KafkaAdmin, layouts: Iterable[TopicLayout], *, validate_only: bool = False
) -> set[str]:
    """Create topics, or only ask the cluster whether it would; gives those that did not exist.

    A topic that somebody else created first is no error. What the cluster refuses is raised with
    the topic's name.
    """
    new = [
        NewTopic(
            layout.name,
            num_partitions=layout.partitions,
            replication_factor=layout.replication_factor,
            config=dict(layout.config),
        )
        for layout in layouts
    ]
    if not new:
        return set()
    with translated(admin.settings, "create topics"):
        answers = admin.create_topics(new, validate_only=validate_only)
    created = set()
    for name, answer in answers.items():
        with translated(admin.settings, f"create topic {name}"):
            try:
                answer.result(timeout=_patience(admin))
                created.add(name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    if not validate_only:
        _await_leaders(admin, _await_topics(admin, created), created)
    return created


def alter(admin: KafkaAdmin, name: str, config: Mapping[str, str]) -> None:
    """Set these settings of a topic, leave its others, and wait until the cluster says so too."""
    entries = [
        ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        for setting, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    shown = ", ".join(f"{setting}={value}" for setting, value in config.items())
    with translated(admin.settings, f"set {shown} of topic {name}"):
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(timeout=_patience(admin))
        deadline = time.monotonic() + admin.settings.kafka.request_timeout_seconds
        while not config.items() <= _configs(admin, [name])[name].items():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.05)


def hidden_topics(admin: KafkaAdmin, names: Collection[str]) -> set[str]:
    """Of topics that a listing lacks, those that this account may not see.

    A broker leaves them out as if they were missing; asked by name, it tells the difference.
    """
    if not names:
        return set()
    hidden = set()
    with translated(admin.settings, "say which topics it has"):
        answers = admin.describe_topics(
            TopicCollection(list(names)),
            request_timeout=admin.settings.kafka.request_timeout_seconds,
        )
        for name, answer in answers.items():
            try:
                answer.result(timeout=_patience(admin))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    hidden.add(name)
                elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
    return hidden


def delete(admin: KafkaAdmin, name: str) -> None:
    """Delete a topic and its records; one that is gone already is no error."""
    with translated(admin.settings, f"delete topic {name}"):
        for answer in admin.delete_topics([name]).values():
            try:
                answer.result(timeout=_patience(admin))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise


def topic_ids(admin: KafkaAdmin, names: Collection[str]) -> dict[str, UUID]:
    """The ids of those topics that exist: one that is deleted and made again gets another one.

    A broker that knows no ids gives none.
    """
    with translated(admin.settings, "say which topics it has"):
        answers = admin.describe_topics(
            TopicCollection(list(names)),
            request_timeout=admin.settings.kafka.request_timeout_seconds,
        )
        found = {}
        for name, answer in answers.items():
            try:
                topic_id = answer.result(timeout=_patience(admin)).topic_id
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                continue
            halves = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
            if any(halves):
                found[name] = UUID(int=(halves[0] % _2_64) << 64 | halves[1] % _2_64)
    return found


def dated_by_senders(admin: KafkaAdmin, names: Collection[str]) -> set[str]:
    """Of those topics that exist, the ones whose records keep the times that senders gave them."""
    present = _metadata(admin).keys() & set(names)
    return {
        name
        for name, config in (_configs(admin, present) if present else {}).items()
        if config[TIMESTAMP_TYPE] != BROKER_TIME
    }


def broker_count(admin: KafkaAdmin) -> int:
    """How many brokers the cluster has now: so many copies a topic can have."""
    with translated(admin.settings, "list its brokers"):
        found = admin.list_topics(timeout=admin.settings.kafka.request_timeout_seconds)
    return len(found.brokers)


def _await_topics(admin: KafkaAdmin, names: Collection[str]) -> dict[str, TopicMetadata]:
    """The topics' metadata, once brokers know them: right after a creation they may not yet."""
    deadline = time.monotonic() + admin.settings.kafka.request_timeout_seconds
    while True:
        metadata = _metadata(admin)
        if all(name in metadata and _has_leaders(metadata[name]) for name in names):
            return metadata
        if time.monotonic() > deadline:
            with translated(admin.settings, "announce its topics"):
                raise TimeoutError
        time.sleep(0.05)


def _await_leaders(
    admin: KafkaAdmin, metadata: Mapping[str, TopicMetadata], names: Collection[str]
) -> None:
    """Wait until every partition answers: brokers hear last that they lead a new one."""
    deadline = time.monotonic() + admin.settings.kafka.request_timeout_seconds
    newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    silent = {TopicPartition(name, part) for name in names for part in metadata[name].partitions}
    while silent:
        with translated(admin.settings, "lead its new topics"):
            if time.monotonic() > deadline:
                raise TimeoutError
            answers = admin.list_offsets(dict.fromkeys(silent, newest))
            silent = {place for place, answer in answers.items() if not _answered(admin, answer)}
        if silent:
            time.sleep(0.05)


def _answered(admin: KafkaAdmin, answer: Future[Any]) -> bool:
    try:
        answer.result(timeout=_patience(admin))
    except KafkaException as error:
        if error.args[0].code() not in _NOT_YET:
            raise
        return False
    return True


def _has_leaders(topic: TopicMetadata) -> bool:
    return bool(topic.partitions) and all(part.leader >= 0 for part in topic.partitions.values())


def _metadata(admin: KafkaAdmin) -> dict[str, TopicMetadata]:
    with translated(admin.settings, "list its topics"):
        found = admin.list_topics(timeout=admin.settings.kafka.request_timeout_seconds)
    topics: dict[str, TopicMetadata] = found.topics
    return topics


def _configs(admin: KafkaAdmin, names: Collection[str]) -> dict[str, dict[str, str]]:
    with translated(admin.settings, "describe its topics"):
        answers = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in names]
        )
        found = {}
        for resource, answer in answers.items():
            try:
                entries = answer.result(timeout=_patience(admin))
            except KafkaException as error:
                right = naming_the_right(error.args[0], "describe the settings of", resource.name)
                raise KafkaException(right) from error
            found[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return found


def _patience(admin: KafkaAdmin) -> float:
    """Longer than librdkafka's own limit, whose error says more than a plain time-out of ours."""
    return 2 * admin.settings.kafka.request_timeout_seconds

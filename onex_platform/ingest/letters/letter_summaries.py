"""Reports on dead letters for those who read Kafka: by context for audits, by topic as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from onex_platform.base.faults import effect
from onex_platform.base.paths import project_folder
from onex_platform.context import PlatformContext
from onex_platform.engines.kafka.clients import KafkaRecord
from onex_platform.ingest.letters.letter_report import LetterCounts, report
from onex_platform.ingest.letters.letter_topics import topic_of
from onex_platform.records.wrapping import Wrapper
from onex_platform.topics.contract_folders import folder_of
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.policy import load_policy
from onex_platform.topics.schemas.formats import AvroSchema, read_schema
from onex_platform.topics.signals import send_soon

SUMMARIES = StreamName("platform", "aud", "dead-letters", 1)
METRICS = StreamName("platform", "met", "topic-health", 1)


def publish_report(platform: PlatformContext, counts: Sequence[LetterCounts], now: datetime) -> int:
    """Publish what the counts say, and wait for the broker; how many records it acknowledged."""
    settings = platform.settings
    values = [(SUMMARIES, key, value) for key, value in summaries(platform, counts, now)]
    values += [(METRICS, key, value) for key, value in metrics(counts, now)]
    wrapper = Wrapper(settings)
    records = [
        _to_record(name, key, value, settings.environment, wrapper) for name, key, value in values
    ]
    with effect("letters.report"):
        return send_soon(settings, records)


def summaries(
    platform: PlatformContext, counts: Sequence[LetterCounts], now: datetime
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is told of each context, by its name."""
    for item in report(counts, platform.catalogue, load_policy(), now):
        waits = item.oldest_waiting
        yield (
            item.context,
            {
                "context_name": item.context,
                "occurred_at": now.isoformat(),
                "waiting": item.waiting,
                "oldest_waiting_seconds": 0.0 if waits is None else waits.total_seconds(),
                "reprocessed": item.reprocessed,
                "purged": item.purged,
            },
        )


def metrics(counts: Sequence[LetterCounts], now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is told of each topic, by its name."""
    topics: dict[str, list[LetterCounts]] = {}
    for count in counts:
        topics.setdefault(count.topic, []).append(count)
    for topic, group in topics.items():
        oldest = min((count.oldest_waiting for count in group if count.oldest_waiting), default=now)
        yield (
            topic,
            {
                "topic_name": topic,
                "occurred_at": now.isoformat(),
                "dead_letters_waiting": sum(count.waiting for count in group),
                "oldest_dead_letter_seconds": (now - oldest).total_seconds(),
                "dead_letters_reprocessed": sum(count.reprocessed for count in group),
            },
        )


def _to_record(
    name: StreamName, key: str, value: Mapping[str, Any], environment: str, wrapper: Wrapper
) -> KafkaRecord:
    record_id = uuid5(NAMESPACE_URL, f"onex:{name}:{key}:{value['occurred_at']}")
    headers = [*wrapper.headers_of_record(record_id), ("ce_id", str(record_id))]
    encoded = schema_of(name).encode(value)
    return KafkaRecord(topic_of(str(name), environment), encoded, key, headers)


@cache
def schema_of(name: StreamName) -> AvroSchema:
    """The schema of a topic's values."""
    folder = project_folder("contracts") / folder_of(name, load_policy().is_onex_entity)
    schema = read_schema(folder / "value.schema.avsc")
    assert isinstance(schema, AvroSchema)  # noqa: S101 - by the file's name
    return schema

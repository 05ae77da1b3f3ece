"""Reports on dead letters for those who read Kafka: by context for audits, by topic as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from onex_platform.base.settings import Settings
from onex_platform.ingest.letters.letter_report import LetterCounts, report
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.policy import load_policy
from onex_platform.topics.schemas.published_values import publish_values
from onex_platform.topics.signals import Published

SUMMARIES = StreamName("platform", "aud", "dead-letters", 1)
METRICS = StreamName("platform", "met", "topic-health", 1)


def publish_report(
    settings: Settings, published: Published, counts: Sequence[LetterCounts], now: datetime
) -> int:
    """Publish what the counts say, and wait for the broker; how many records it acknowledged."""
    with published() as catalogue:
        values = [(SUMMARIES, key, value) for key, value in summaries(catalogue, counts, now)]
        values += [(METRICS, key, value) for key, value in metrics(counts, now)]
        return publish_values(settings, catalogue, values, "letters.report")


def summaries(
    catalogue: Catalogue, counts: Sequence[LetterCounts], now: datetime
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is told of each context, by its name."""
    for item in report(counts, catalogue, load_policy(), now):
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

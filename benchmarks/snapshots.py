"""What it costs to bring rows to the snapshot topic, beside the bare work.

    python -m benchmarks.snapshots publish --rows 100000
    python -m benchmarks.snapshots publish --only relay --only "one header"
    python -m benchmarks.snapshots load --entities 100000

`load` is described in `snapshot_cache.py`. `publish`, in one run and in turns, on one broker, each
to a topic of its own and with a producer that is connected:

- bare: librdkafka produces the same keys, values and headers from memory, and flushes once; with
  the settings of our transactional producer, so it reports no record but one that fails
- reported: the same with the usual report of each record, as `open_producer` has it
- as it comes: the same with librdkafka's own settings, idempotent as ours are, each record reported
- ready: the messages wait in a table as they are, nothing is made of rows: what any publisher pays
  that reads from PostgreSQL and sends as ours does
- rows: every row is published, acknowledged in transactions (`onex snapshots rebuild`)
- relay: the outbox is drained: entries, their rows, acknowledged, entries removed
- one header: the relay, with the version as the only header of a record
- per message: produce and flush, one by one, of the first messages

The first rounds warm up and do not count: a broker compiles its code while it works. Medians of
wall seconds, and of the seconds that this process and both servers computed; the ratios are what to
compare.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from random import sample
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID

import click

from benchmarks.measuring import processor_seconds
from benchmarks.projection_store import Bench, fill_projections, scratch_database
from benchmarks.snapshot_cache import load_command
from onex_platform import stack
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import Settings
from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.engines.kafka.clients import open_admin, open_producer
from onex_platform.engines.kafka.topic_admin import create
from onex_platform.engines.kafka.transactions import BULK_IN_TRANSACTIONS, Outgoing
from onex_platform.engines.postgres.database import Database, copy_rows, open_engine, streamed
from onex_platform.engines.postgres.migrations import migrate
from onex_platform.projections.snapshot_rows import RowState, read_rows_after
from onex_platform.projections.write.projector import ProjectorRegistration
from onex_platform.records.wrapping import Wrapper
from onex_platform.snapshots.publish import writer
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform.snapshots.publish.republish import publish_everything
from onex_platform.snapshots.publish.topic_setup import layout_of
from onex_platform.snapshots.publish.writer import Publication
from onex_platform.snapshots.snapshot_records import VERSION_HEADER, to_messages
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.topics.catalogue import load_catalogue

SINGLE_MESSAGES = 2000
# What librdkafka does if nobody tells it otherwise.
ITS_OWN_SETTINGS = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "compression.type": "none",
    "queue.buffering.max.kbytes": 1_048_576,
}
DAY_MS = 86_400_000
LOWEST = str(UUID(int=0))
_topics = count(1)


@contextmanager
def servers() -> Iterator[Settings]:
    """A broker and a database of the benchmark's own."""
    with scratch_database() as database, TemporaryDirectory() as folder:
        own = database.stack.model_copy(update={"folder": Path(folder)})
        with stack.running(
            database.model_copy(update={"stack": own}), services=["kafka"]
        ) as attached:
            migrate(attached)
            yield attached


def new_topic(settings: Settings) -> ModelSnapshotTopicConfig:
    """An empty snapshot topic."""
    config = ModelSnapshotTopicConfig.development(load_catalogue())
    context = f"benchmark-{next(_topics)}"
    changes = {
        "topic": config.topic.replace("platform", context),
        # Nothing is compacted while something else is measured.
        "min_compaction_lag_ms": DAY_MS,
        "max_compaction_lag_ms": DAY_MS,
    }
    config = config.model_copy(update=changes)
    with open_admin(settings) as admin:
        create(admin, [layout_of(settings, load_catalogue(), config)])
    return config


class Taken(NamedTuple):
    """Wall and processor seconds."""

    wall: float
    computed: float


def seconds(work: Callable[[], object]) -> Taken:
    computed, started = processor_seconds(), time.perf_counter()
    work()
    return Taken(time.perf_counter() - started, processor_seconds() - computed)


class Publishing:
    """The contestants, on the same rows."""

    def __init__(self, settings: Settings, rows: int) -> None:
        self.settings, self.rows = settings, rows
        self.database = Database(open_engine(settings), CircuitBreaker("PostgreSQL"))
        self.bench = Bench(self.database, ProjectorRegistration(self.database, settings))
        fill_projections(self.bench, rows)
        self.bench.administer("VACUUM ANALYZE")

    def messages(self) -> list[Outgoing]:
        """What our own ways send, made beforehand."""
        with (
            self.database.transaction() as cursor,
            read_rows_after(cursor, REGISTRATION_DOMAIN, LOWEST, self.rows) as rows,
        ):
            return list(to_messages(rows, Wrapper(self.settings), "none"))

    def bare(self, config: ModelSnapshotTopicConfig, **properties: Any) -> Taken:
        topic, messages = config.topic, self.messages()
        with open_producer(self.settings, **properties) as producer:
            first_key, first_value, _ = messages[0]
            producer.produce(topic, first_value, first_key)  # connects, as ours is by then
            producer.flush()

            def send() -> None:
                for key, value, headers in messages:
                    while True:
                        try:
                            producer.produce(topic, value, key, headers=headers)
                            break
                        except BufferError:
                            producer.poll(0.1)
                producer.flush()

            return seconds(send)

    def ready(self, config: ModelSnapshotTopicConfig) -> Taken:
        messages = self.messages()
        self.bench.administer(
            "DROP TABLE IF EXISTS ready",
            "CREATE UNLOGGED TABLE ready (key text, version text, value text)",
        )
        with self.database.transaction() as cursor:
            rows = ((key, headers[0][1], value) for key, value, headers in messages)
            copy_rows(cursor, "ready", dict.fromkeys(("key", "version", "value"), "text"), rows)
        self.bench.administer("VACUUM ANALYZE ready")

        def send(publication: Publication) -> None:
            query = "SELECT key, version, value, NULL FROM ready"
            with streamed(publication.cursor, query, {}) as rows:
                publication.send(rows)

        with open_relay(self.settings, load_catalogue(), config, database=self.database) as relay:
            relay.writer.exclusively(lambda publication: None)
            return seconds(lambda: relay.writer.exclusively(send))

    def per_message(self, config: ModelSnapshotTopicConfig) -> Taken:
        topic, messages = config.topic, self.messages()[:SINGLE_MESSAGES]
        with open_producer(self.settings, **{"linger.ms": 0}) as producer:

            def send() -> None:
                for key, value, headers in messages:
                    producer.produce(topic, value, key, headers=headers)
                    producer.flush()

            taken, share = seconds(send), self.rows / len(messages)
            return Taken(taken.wall * share, taken.computed * share)

    def from_rows(self, config: ModelSnapshotTopicConfig) -> Taken:
        with open_relay(self.settings, load_catalogue(), config, database=self.database) as relay:
            relay.writer.exclusively(
                lambda publication: None
            )  # opens the producer, as bare has it open
            return seconds(lambda: publish_everything(self.settings, relay.writer))

    def from_outbox(self, config: ModelSnapshotTopicConfig) -> Taken:
        self.bench.administer(
            "TRUNCATE outbox",
            "INSERT INTO outbox (domain, entry, entity_id, row_version)"
            " SELECT domain, 'snapshot', entity_id, row_version FROM registration_projections",
            "VACUUM ANALYZE outbox",
        )
        with open_relay(self.settings, load_catalogue(), config, database=self.database) as relay:
            relay.writer.exclusively(lambda publication: None)
            taken = seconds(relay.publish_pending)
        assert relay.publish_pending().published == 0
        return taken

    def with_one_header(self, config: ModelSnapshotTopicConfig) -> Taken:
        def to_plain(rows: Iterable[RowState], *_: object) -> Iterator[Outgoing]:
            return ((key, value, [(VERSION_HEADER, version)]) for key, version, value, _ in rows)

        with mock.patch.object(writer, "to_messages", to_plain):
            return self.from_outbox(config)


@click.group()
def main() -> None:
    """Measure the snapshots."""


main.add_command(load_command)


@main.command("publish")
@click.option("--rows", default=100_000, show_default=True)
@click.option("--warmup", default=5, show_default=True, help="Rounds that do not count.")
@click.option("--rounds", default=9, show_default=True)
@click.option("--only", multiple=True, help="Only these ways, by their names above.")
def publish_command(rows: int, warmup: int, rounds: int, only: tuple[str, ...]) -> None:
    """From rows in PostgreSQL to acknowledged records."""
    with servers() as settings:
        contest = Publishing(settings, rows)
        ways: dict[str, Callable[[ModelSnapshotTopicConfig], Taken]] = {
            "bare": lambda topic: contest.bare(topic, **BULK_IN_TRANSACTIONS),
            "reported": contest.bare,
            "as it comes": lambda topic: contest.bare(topic, **ITS_OWN_SETTINGS),
            "ready": contest.ready,
            "rows": contest.from_rows,
            "relay": contest.from_outbox,
            "one header": contest.with_one_header,
            "per message": contest.per_message,
        }
        ways = {name: way for name, way in ways.items() if not only or name in only}
        topics = {name: new_topic(settings) for name in ways}
        taken: dict[str, list[Taken]] = {name: [] for name in ways}
        for _ in range(warmup + rounds):
            for name in sample(list(ways), len(ways)):  # nobody always follows the same one
                taken[name].append(ways[name](topics[name]))
        contest.database.engine.dispose()
    medians = {
        name: Taken(*map(statistics.median, zip(*rounds[warmup:], strict=True)))
        for name, rounds in taken.items()
    }
    for name, (wall, computed) in medians.items():
        print(f"{name:<12} {wall:7.2f} s {computed:7.2f} s computed {rows / wall:10,.0f} records/s")
    for name, baseline in (
        *product(("ready", "rows", "relay"), ("bare", "reported", "as it comes", "per message")),
        ("relay", "one header"),
    ):
        if name not in medians or baseline not in medians:
            continue
        wall, computed = (b / n for b, n in zip(medians[baseline], medians[name], strict=True))
        print(f"{name} by {baseline}: {wall:.2f} (computed: {computed:.2f})")


if __name__ == "__main__":
    main()

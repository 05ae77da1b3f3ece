"""The publisher: what it sends, what it refuses; nobody can put an old state over a new one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import psutil
import pytest

from onex_platform.base.environment import child_environment
from onex_platform.base.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraUnavailableError,
)
from onex_platform.base.settings import BreakerSettings, KafkaSettings, address_variables
from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.postgres.database import open_database
from onex_platform.snapshots.publish.publisher import (
    SnapshotPublisherRegistration,
    StaleSnapshotError,
)
from onex_platform.snapshots.publish.publisher_lock import longest_publication, publication_lock_key
from onex_platform.snapshots.snapshot_records import PublishedState
from onex_platform.stack.processes import wait_until
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_registry import Registry, require_rising

pytestmark = pytest.mark.servers

RACES = 200


@contextmanager
def opened(registry: Registry) -> Iterator[SnapshotPublisherRegistration]:
    """A publisher as another process has it."""
    settings = registry.settings
    with (
        open_database(settings) as database,
        SnapshotPublisherRegistration(
            settings, database, registry.catalogue, registry.config
        ) as publisher,
    ):
        yield publisher


def test_a_snapshot_is_what_the_topic_says_afterwards(registry: Registry) -> None:
    [row] = registry.change(1)
    with opened(registry) as publisher:
        snapshot = publisher.publish_from_projection(row)
        assert publisher.get_latest_snapshot(number_id(1)) == snapshot
        assert publisher.get_latest_snapshot(number_id(2)) is None
    assert (snapshot.snapshot_version, snapshot.current_state) == (1, EnumRegistrationState.ACTIVE)
    assert registry.published() == [PublishedState(number_id(1), 1, False)]


def test_a_batch_counts_what_was_acknowledged_and_leaves_out_what_moved_on(
    registry: Registry,
) -> None:
    rows = registry.change(*range(5))
    rows += registry.close(5)
    registry.change(3)
    with opened(registry) as publisher:
        assert publisher.publish_batch(rows) == 5
    assert {state.entity_id for state in registry.published()} == {
        number_id(n) for n in (0, 1, 2, 4, 5)
    }
    assert registry.latest()[number_id(5)].is_tombstone


def test_an_older_snapshot_than_the_row_is_refused(registry: Registry) -> None:
    [old] = registry.change(1)
    registry.change(1)
    with opened(registry) as publisher:
        with pytest.raises(StaleSnapshotError, match=r"snapshot_version=1.*at version 2"):
            publisher.publish_from_projection(old)
        [closed] = registry.close(1)
        with pytest.raises(StaleSnapshotError, match="deregistered"):
            publisher.publish_from_projection(closed)
        with pytest.raises(StaleSnapshotError, match="not in the registry"):
            publisher.publish_from_projection(old.model_copy(update={"entity_id": uuid4()}))
    assert registry.published() == []


def test_deleting_needs_a_node_that_is_gone(registry: Registry) -> None:
    [row] = registry.change(1)
    with opened(registry) as publisher:
        publisher.publish_from_projection(row)
        assert publisher.delete_snapshot(number_id(1)) is False
        registry.close(1)
        for deleted in (True, False):  # there is nothing left to delete
            assert publisher.delete_snapshot(number_id(1)) is deleted
            assert publisher.get_latest_snapshot(number_id(1)) is None
        registry.close(2)  # closed, but never published
        for node in (2, 3):
            assert publisher.delete_snapshot(number_id(node)) is False
    assert registry.published() == [
        PublishedState(number_id(1), 1, False),
        PublishedState(number_id(1), 2, True),
    ]


def test_a_snapshot_that_no_row_knows_is_deleted_above_its_version(registry: Registry) -> None:
    [row] = registry.change(1)
    with opened(registry) as publisher:
        publisher.publish_from_projection(row)
        with registry.store.database.transaction() as cursor:
            cursor.execute("DELETE FROM registration_projections")
        assert publisher.delete_snapshot(number_id(1)) is True
    assert registry.published()[-1] == PublishedState(number_id(1), 2, True)


def test_another_domain_is_refused(registry: Registry) -> None:
    [row] = registry.change(1)
    with (
        opened(registry) as publisher,
        pytest.raises(ConfigurationError, match="domain='discovery'"),
    ):
        publisher.publish_batch([row.model_copy(update={"domain": "discovery"})])


def test_the_version_rises_over_restart_and_tombstone(registry: Registry) -> None:
    for step in (registry.change, registry.close, registry.change, registry.change):
        [row] = step(1)
        with opened(registry) as publisher:  # each time a new process, as far as it knows
            assert publisher.publish_batch([row]) == 1
    assert [(s.version, s.is_tombstone) for s in registry.published()] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
    ]


def test_two_publishers_race_and_no_version_ever_falls(registry: Registry) -> None:
    """Rows change while both publish what they have read; each refuses what has moved on."""
    nodes = range(4)
    registry.change(*nodes)

    def publish(publisher: SnapshotPublisherRegistration, seed: int) -> int:
        choice, published = random.Random(seed), 0
        for _ in range(RACES // 2):
            row = registry.store.node(number_id(choice.choice(nodes)))
            if choice.random() < 0.2:
                registry.change(choice.choice(nodes))
            published += publisher.publish_batch([row])
        return published

    with opened(registry) as first, opened(registry) as second, ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(publish, (first, second), (1, 2)))
        last = first.publish_batch(registry.store.node(number_id(node)) for node in nodes)
    assert all(counts)
    assert sum(counts) < RACES  # some rows had moved on
    assert len(registry.published()) == sum(counts) + last == sum(counts) + len(nodes)
    registry.require_topic_equals_rows()


# Reads the row in its turn, and stops there: what it holds grows old.
_ZOMBIE = """
import os, signal, sys
from uuid import UUID
from onex_platform.engines.kafka import transactions
from onex_platform.engines.postgres.database import Database, open_engine
from onex_platform.base.resilience import CircuitBreaker
from onex_platform.base.settings import load_settings
from onex_platform.projections.snapshot_rows import read_rows, read_rows_after
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.snapshots.publish.writer import SnapshotWriter
from onex_platform.topics.catalogue import load_catalogue

settings, node, moment = load_settings(), sys.argv[1], sys.argv[2]
config = ModelSnapshotTopicConfig.default(load_catalogue(), "dev")
database = Database(open_engine(settings), CircuitBreaker("PostgreSQL"))
writer = SnapshotWriter(settings, database, load_catalogue(), config)

producers, open_client = [], transactions.open_client

def remembered(*arguments):
    producers.append(open_client(*arguments))
    return producers[-1]

transactions.open_client = remembered

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

def stream(publication):
    with read_rows_after(publication.cursor, config.domain, str(UUID(int=0)), 10_000) as rows:
        def streaming():
            yield next(rows)
            stop()
            yield from rows
        return publication.send(streaming())

def read(publication):
    with read_rows(publication.cursor, config.domain, [node]) as found:
        rows = list(found)
    if moment == "reading":
        stop()
    def sending():
        yield from rows
        if moment == "sending":
            producers[-1].flush(5)
            stop()
    return publication.send(sending())

print(writer.attempt(stream if moment == "streaming" else read), flush=True)
"""


# More than sockets buffer, behind the first rows that the driver hands over at once.
_MANY_ROWS = """
    INSERT INTO registration_projections
    SELECT (jsonb_populate_record(stored, jsonb_build_object(
        'entity_id', gen_random_uuid(),
        'capabilities', jsonb_build_object('text', repeat('x', 20000))
    ))).*
    FROM registration_projections AS stored, generate_series(1, 2000)"""

_HOLDERS = """
    SELECT DISTINCT state, coalesce(wait_event = 'ClientWrite', false)
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND datname = current_database()"""


_IN_QUEUE = """
    SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
    WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"""


@pytest.mark.parametrize(
    ("moment", "state", "complaint"),
    [
        ("reading", ("idle in transaction", False), "TakenOverError"),
        ("sending", ("idle in transaction", False), "TakenOverError"),
        ("streaming", ("active", True), "InfraConnectionError"),
    ],
)
def test_a_publisher_that_is_stopped_holds_others_up_for_a_while_and_then_publishes_nothing(
    registry: Registry, moment: str, state: tuple[str, bool], complaint: str
) -> None:
    [old] = registry.change(1)
    if moment == "streaming":
        with registry.store.database.transaction() as cursor:
            cursor.execute(_MANY_ROWS)
    variables = {
        **address_variables(registry.settings),
        "SNAPSHOT_TOPIC": registry.config.topic,
        "SNAPSHOT_PARTITION_COUNT": str(registry.config.partition_count),
    }
    zombie = subprocess.Popen(
        [sys.executable, "-c", _ZOMBIE, str(old.entity_id), moment],
        env=child_environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stopped = psutil.STATUS_STOPPED
        assert wait_until(lambda: psutil.Process(zombie.pid).status() == stopped, 60)
        assert wait_until(lambda: registry.store.select(_HOLDERS) == [state], 10)
        [new] = registry.change(1)
        with opened(_impatient(registry)) as publisher:
            publisher.publish_from_projection(new)
        zombie.send_signal(signal.SIGCONT)
        _, said = zombie.communicate(timeout=60)
    finally:
        zombie.kill()
    assert zombie.returncode == 1
    assert complaint in said
    assert registry.published() == [PublishedState(number_id(1), 2, False)]


def test_a_publisher_that_waits_for_living_ones_ends_none_of_them(registry: Registry) -> None:
    """Each has the turn for less than the limit, all of them together for longer."""
    [row] = registry.change(1)
    impatient = _impatient(registry)
    pause = longest_publication(impatient.settings) / 2

    def hold(_: int) -> None:
        with registry.store.database.transaction() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(%s)", [publication_lock_key(registry.config.domain)]
            )
            cursor.execute("SELECT pg_sleep(%s)", [pause])

    def queue() -> int:
        return registry.store.select(_IN_QUEUE)[0][0]

    with ThreadPoolExecutor(3) as pool:
        holding = pool.map(hold, range(3))
        assert wait_until(lambda: queue() == 2, pause)  # all three are before us
        with opened(impatient) as publisher:
            assert queue() == 0
            assert publisher.publish_batch([row]) == 1
        list(holding)  # raises if a session was ended


def _impatient(registry: Registry) -> Registry:
    kafka = registry.settings.kafka.model_copy(update={"request_timeout_seconds": 3})
    snapshots = registry.settings.snapshots.model_copy(update={"transaction_seconds": 2})
    changes = {"kafka": kafka, "snapshots": snapshots}
    return replace(registry, settings=registry.settings.model_copy(update=changes))


def test_a_dead_broker_is_a_connection_error_and_then_the_breaker_opens(
    registry: Registry,
) -> None:
    settings = registry.settings.model_copy(
        update={
            "kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_seconds=0.1),
            "breaker": BreakerSettings(failure_threshold=2, reset_seconds=60),
        }
    )
    with open_database(settings) as database:
        publisher = SnapshotPublisherRegistration(
            settings, database, registry.catalogue, registry.config
        )
        for _ in range(2):
            with pytest.raises(InfraConnectionError, match=r"127\.0\.0\.1:1"):
                publisher.start()
        with pytest.raises(InfraUnavailableError):
            publisher.start()
        # What Kafka lacks is not held against PostgreSQL.
        assert registry.store.node(registry.change(1)[0].entity_id).row_version == 1


def test_versions_that_fall_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        require_rising(PublishedState(number_id(1), version, False) for version in (1, 2, 1))

"""The publisher: what it sends, what it refuses; nobody can put an old state over a new one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import psutil
import pytest

from onex_platform.domain.states import EnumRegistrationState
from onex_platform.engines.postgres import open_engine, transaction
from onex_platform.environment import child_environment
from onex_platform.errors import (
    ConfigurationError,
    InfraConnectionError,
    InfraUnavailableError,
)
from onex_platform.settings import BreakerSettings, KafkaSettings, address_variables
from onex_platform.snapshots.publisher import SnapshotPublisherRegistration, StaleSnapshotError
from onex_platform.snapshots.records import PublishedState
from onex_platform_tests.domain.builders import number_id
from onex_platform_tests.snapshots.registry import Registry, require_rising

pytestmark = pytest.mark.servers

RACES = 200


@contextmanager
def opened(registry: Registry) -> Iterator[SnapshotPublisherRegistration]:
    """A publisher as another process has it."""
    engine = open_engine(registry.settings)
    try:
        with SnapshotPublisherRegistration(registry.settings, engine, registry.config) as publisher:
            yield publisher
    finally:
        engine.dispose()


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
        assert publisher.delete_snapshot(number_id(1)) is True
        assert publisher.get_latest_snapshot(number_id(1)) is None
        assert publisher.delete_snapshot(number_id(2)) is False
    assert registry.published()[-1] == PublishedState(number_id(1), 2, True)


def test_a_snapshot_that_no_row_knows_is_deleted_above_its_version(registry: Registry) -> None:
    [row] = registry.change(1)
    with opened(registry) as publisher:
        publisher.publish_from_projection(row)
        with transaction(registry.store.engine, registry.store.breaker) as cursor:
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
    start = time.monotonic()

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
        first.publish_batch(registry.store.node(number_id(node)) for node in nodes)
    assert all(counts), f"both publish ({time.monotonic() - start:.0f} s)"
    assert sum(counts) < len(registry.published()) + RACES
    registry.require_topic_equals_rows()


# Reads the row in its turn, and stops there: what it holds grows old.
_ZOMBIE = """
import os, signal, sys
from onex_platform.engines.postgres import open_engine
from onex_platform.resilience import CircuitBreaker
from onex_platform.settings import load_settings
from onex_platform.snapshots.records import read_rows
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig
from onex_platform.snapshots.writer import SnapshotWriter

settings, node, late = load_settings(), sys.argv[1], sys.argv[2] == "sending"
config = ModelSnapshotTopicConfig.default("dev")
writer = SnapshotWriter(settings, open_engine(settings), CircuitBreaker("PostgreSQL"), config)

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
    yield from ()

def work(turn):
    with read_rows(turn.cursor, config.domain, [node]) as found:
        rows = list(found)
    if not late:
        list(stop())
    def sending():
        yield from rows
        if late:
            turn_producer = writer._producer._producer
            turn_producer.flush(5)
            list(stop())
    return turn.send(sending())

print(writer._once(work), flush=True)
"""


@pytest.mark.parametrize("moment", ["reading", "sending"])
def test_a_zombie_that_wakes_up_late_can_not_publish_what_it_read(
    registry: Registry, moment: str
) -> None:
    [old] = registry.change(1)
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
        _await_stop(zombie.pid)
        with transaction(registry.store.engine, registry.store.breaker) as cursor:
            # Its session ends, as a time-out or a broken network would end it: the turn is free.
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
                " AND pid <> pg_backend_pid()"
            )
        [new] = registry.change(1)
        with opened(registry) as publisher:
            publisher.publish_from_projection(new)
        zombie.send_signal(signal.SIGCONT)
        _, complaint = zombie.communicate(timeout=60)
    finally:
        zombie.kill()
    assert zombie.returncode == 1
    assert "TakenOverError" in complaint
    assert registry.published() == [PublishedState(number_id(1), 2, False)]


def _await_stop(pid: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            return
        time.sleep(0.05)
    raise AssertionError("the zombie did not stop")


def test_a_dead_broker_is_a_connection_error_and_then_the_breaker_opens(
    registry: Registry,
) -> None:
    settings = registry.settings.model_copy(
        update={
            "kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_seconds=0.1),
            "breaker": BreakerSettings(failure_threshold=2, reset_seconds=60),
        }
    )
    engine = open_engine(settings)
    publisher = SnapshotPublisherRegistration(settings, engine, registry.config)
    try:
        for _ in range(2):
            with pytest.raises(InfraConnectionError, match=r"127\.0\.0\.1:1"):
                publisher.start()
        with pytest.raises(InfraUnavailableError):
            publisher.start()
        # What Kafka lacks is not held against PostgreSQL.
        assert registry.store.node(registry.change(1)[0].entity_id).row_version == 1
    finally:
        engine.dispose()


def test_versions_that_fall_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        require_rising(PublishedState(number_id(1), version, False) for version in (1, 2, 1))

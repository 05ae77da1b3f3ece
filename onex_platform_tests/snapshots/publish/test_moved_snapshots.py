"""The snapshot topic moves to its next version and back: rows fill both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Timer
from uuid import uuid4

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.context import open_platform
from onex_platform.domain.identity import CANARY_ID
from onex_platform.engines.kafka.clients import open_admin, produce_all
from onex_platform.engines.kafka.topic_admin import describe, topic_names
from onex_platform.governance.provision import create_topics
from onex_platform.health.canaries.life_steps import STEPS, Step
from onex_platform.health.canaries.node_life import live_on
from onex_platform.migration.phase_table import begin_change, end_change, phases, phases_alone
from onex_platform.snapshots.audit.sweep import sweep
from onex_platform.snapshots.publish.publisher import SnapshotPublisherRegistration
from onex_platform.snapshots.publish.republish import rebuild_topic
from onex_platform.snapshots.read.cache import SnapshotCache
from onex_platform.snapshots.topic_config import ModelSnapshotTopicConfig, snapshot_topic
from onex_platform.topics.catalogue import Catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import snapshot
from onex_platform_tests.support.events import State, at, number_id, row
from onex_platform_tests.support.moving_topics import FORCED, MovingTopic, intent
from onex_platform_tests.support.snapshot_records import sent, transactions
from onex_platform_tests.support.snapshot_records import snapshot as snapshot_of
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers

_END_OTHERS_TURN = """
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND datname = current_database()"""
_MISSING_THERE, _MISSING_HERE = (f"events missing on the {side}" for side in ("target", "source"))


@pytest.fixture
def moving(registry: Registry) -> Iterator[tuple[Registry, MovingTopic]]:
    """A registry whose snapshot topic moves to a version with more partitions."""
    subject = f"onex.snapshot.test-{uuid4().hex}.registration-snapshots"
    source = snapshot(topic=f"{subject}.v1")
    target = snapshot(topic=f"{subject}.v2", partitions=5)
    catalogue = Catalogue([source, target], {source.topic: intent(target.topic)})
    create_topics(registry.settings, catalogue)
    config = ModelSnapshotTopicConfig.development(catalogue)
    assert config.topic == source.topic
    events = [contract for contract in registry.catalogue if contract.snapshot_of is None]
    own = replace(
        registry, config=config, catalogue=Catalogue([*events, *catalogue], catalogue.intents)
    )
    database = registry.store.database
    yield own, MovingTopic(own.settings, database, catalogue, source.topic, target.topic)


def _unmet(moving: MovingTopic) -> dict[str, tuple[str, ...]]:
    """What both sides differ in, once what was just written has settled."""
    return {name: named for name, named in moving.unmet().items() if named}


def _agree(moving: MovingTopic) -> bool:
    return _unmet(moving) == {}


def _of(registry: Registry, topic: str) -> Registry:
    return replace(registry, config=registry.config.model_copy(update={"topic": topic}))


def _enter(move: MovingTopic, phase: Phase) -> None:
    """Be in the phase without the ones before it."""
    with phases_alone(move.database) as cursor:
        step = Phase.ASSESS, phase
        begin_change(cursor, move.source, move.target, step, by="tests", reason=None)
        end_change(cursor, move.source, phase)


def _read_at(registry: Registry) -> str:
    with registry.store.database.transaction() as cursor:
        moved = registry.catalogue.at(phases(cursor))
    return snapshot_topic(registry.settings, moved)


def test_a_snapshot_topic_moves_to_more_partitions_and_back(
    moving: tuple[Registry, MovingTopic],
) -> None:
    registry, move = moving
    old, new = _of(registry, move.source), _of(registry, move.target)
    registry.change(*range(1, 8))
    registry.close(7)
    with registry.relay() as relay:
        relay.publish_pending()
        assert new.messages() == []
        assert move.advance() is Phase.DUAL
        # What nobody has changed since is missing there, by name, and is not forced through.
        assert eventually(lambda: len(_unmet(move).get(_MISSING_THERE, ())) == 6)
        assert f"{number_id(1)}: version 1" in _unmet(move)[_MISSING_THERE]
        with pytest.raises(ConfigurationError, match=f"{number_id(1)}: version 1"):
            move.advance()
        registry.change(1)
        relay.publish_pending()
        assert [state.version for state in new.published()] == [2]
        assert len(sweep(relay).comparison.faults) == 5
        relay.publish_pending()
        assert eventually(lambda: _agree(move))
        assert _read_at(registry) == move.source
        assert move.advance() is Phase.MOVE
        assert _read_at(registry) == move.target
        with SnapshotCache.open(registry.settings, move.target) as cache:
            registry.change(2)
            registry.close(3)
            relay.publish_pending()
            assert eventually(lambda: number_id(3) not in cache)
        old.require_topic_equals_rows()
        assert sweep(relay).comparison.faults == []  # who was gone before has no tombstone there
        assert eventually(lambda: _agree(move))
        assert move.advance() is Phase.FREEZE
        registry.change(4)
        registry.close(5)
        relay.publish_pending()
        assert old.latest()[number_id(4)].version == 1
        assert sweep(relay).comparison.faults == []
        # Back: the source has what happened meanwhile once it is swept.
        assert move.rollback() is Phase.MOVE
        assert eventually(lambda: len(_unmet(move)) == 2)
        sweep(relay)
        relay.publish_pending()
        assert eventually(lambda: _agree(move))
        old.require_topic_equals_rows()
        assert move.advance() is Phase.FREEZE
        assert move.advance(replace(FORCED, deletes=move.source)) is Phase.RETIRED
        registry.change(6)
        relay.publish_pending()
        rebuild_topic(registry.settings, relay.writer)
        new.require_topic_equals_rows()
        with open_admin(registry.settings) as admin:
            assert move.source not in topic_names(admin)
        assert move.rollback() is Phase.FREEZE
        assert move.rollback() is Phase.MOVE
        rebuild_topic(registry.settings, relay.writer)
        assert eventually(lambda: _agree(move))
        old.require_topic_equals_rows()
        with open_admin(registry.settings) as admin:
            assert describe(admin, [move.target])[move.target].partitions == 5


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_relay_that_is_killed_between_both_sides_says_all_of_it_again(
    moving: tuple[Registry, MovingTopic], when: str
) -> None:
    registry, move = moving
    move.advance()
    registry.change(1, 2)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with registry.relay() as relay:
        faults.arm(f"{when}:snapshots.send", die)
        with pytest.raises(Killed):
            relay.publish_pending()
    assert registry.waiting().rows == 2
    with registry.relay() as relay:
        relay.publish_pending()
    for topic in (move.source, move.target):
        _of(registry, topic).require_topic_equals_rows()


def test_who_loses_the_turn_between_both_sides_puts_nothing_old_on_the_other(
    moving: tuple[Registry, MovingTopic],
) -> None:
    registry, move = moving
    move.advance()
    registry.change(1)

    def be_overtaken() -> None:
        """By one that was started where readers are on the target already."""
        registry.store.select(_END_OTHERS_TURN)
        registry.change(1)
        with _of(registry, move.target).relay() as rival:
            rival.publish_pending()

    with registry.relay() as relay, suppress(InfraError):
        faults.arm("after:snapshots.send", be_overtaken)
        relay.publish_pending()
    for topic in (move.source, move.target):
        _of(registry, topic).require_topic_equals_rows()


def test_the_sweep_repairs_whichever_side_lacks_or_leads(
    moving: tuple[Registry, MovingTopic],
) -> None:
    registry, move = moving
    move.advance()
    old, new = _of(registry, move.source), _of(registry, move.target)
    registry.change(1, 2, 3)
    with registry.relay() as relay:
        relay.publish_pending()
        old.intrude(1, b"{}", ("snapshot_version", "9"))
        new.intrude(1, b"{}", ("snapshot_version", "5"))
        new.intrude(2, None, ("snapshot_version", "1"))
        old.intrude(4, b"{}", ("snapshot_version", "1"))
        sweep(relay, raise_versions=True)
        relay.publish_pending()
        assert sweep(relay).comparison.faults == []
    latest = new.latest()
    assert (latest[number_id(1)].version, latest[number_id(2)].version) == (10, 2)
    assert old.latest() == latest


def test_the_canary_sees_its_snapshot_where_the_topic_has_moved_to(
    moving: tuple[Registry, MovingTopic],
) -> None:
    registry, move = moving
    now = datetime.now(UTC)
    come_so_far = [step.name for step in STEPS[: STEPS.index(Step("published"))]]
    steps = json.dumps(dict.fromkeys(come_so_far, now.isoformat()))
    registry.store.projector.persist(row(State.ACTIVE, entity_id=CANARY_ID, registered_at=at(0)))
    _enter(move, Phase.FREEZE)
    with registry.store.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO canary_lives (domain, epoch, begun_at, steps) VALUES (%s, 1, %s, %s)",
            [registry.config.domain, now, steps],
        )
    with registry.relay() as relay:
        relay.publish_pending()
    with open_platform(registry.settings, registry.catalogue) as platform:
        life = live_on(platform, now)
    assert life is not None
    assert "published" in life.steps


def test_a_freeze_waits_for_what_was_committed_before_it(
    moving: tuple[Registry, MovingTopic],
) -> None:
    registry, move = moving
    _enter(move, Phase.MOVE)
    with transactions(registry.settings) as producer:
        producer.begin_transaction()
        produce_all(producer, [sent(move.source, snapshot_of(1))])
        commit = Timer(1, producer.commit_transaction)
        faults.arm("before:migration.enter_phase", commit.start)
        assert move.advance() is Phase.FREEZE
        commit.join()
    assert "records appended since the freeze" not in move.unmet()


def test_a_removal_goes_to_both_sides(moving: tuple[Registry, MovingTopic]) -> None:
    registry, move = moving
    registry.close(1)
    registry.forget_outbox()
    move.advance()
    _of(registry, move.target).intrude(1, b"{}", ("snapshot_version", "1"))
    with SnapshotPublisherRegistration(
        registry.settings, registry.store.database, registry.catalogue
    ) as publisher:
        assert publisher.delete_snapshot(number_id(1))
    for topic in (move.source, move.target):
        assert _of(registry, topic).latest()[number_id(1)].is_tombstone

"""WRITE on a broker with an authoriser: taken by the freeze, given back by the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from onex_platform.base.errors import InfraError
from onex_platform.base.settings import Settings
from onex_platform.engines.kafka.access import Right, grant
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.migration.moves import Order
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.kafka_accounts import as_account
from onex_platform_tests.support.killed_moves import killed_acts
from onex_platform_tests.support.moving_topics import MovingTopic, moving_topic

pytestmark = pytest.mark.servers

_ACCOUNT = "moving-producer"


@pytest.fixture
def guarded(secured: Settings, store_settings: Settings) -> Iterator[MovingTopic]:
    """A version that moves on a broker that asks everybody for rights."""
    settings = store_settings.model_copy(update={"kafka": secured.kafka})
    with moving_topic(settings, "version") as opened:
        yield opened


def _granted(moving: MovingTopic, *topics: str) -> MovingTopic:
    """A producer's view of the move, which may write these topics."""
    with open_admin(moving.settings) as admin:
        grant(
            admin,
            [
                Right(f"User:{_ACCOUNT}", "topic", "literal", topic, verb)
                for topic in topics
                for verb in ("write", "describe")
            ],
        )
    return replace(moving, settings=as_account(moving.settings, _ACCOUNT))


def test_write_is_taken_at_the_freeze_and_given_back(guarded: MovingTopic) -> None:
    producer = _granted(guarded, guarded.source)
    lacking = guarded.unmet()["rights that the target lacks"]
    assert lacking == (f"User:{_ACCOUNT} may describe", f"User:{_ACCOUNT} may write")
    producer = _granted(guarded, guarded.source, guarded.target)
    assert guarded.advance() is Phase.DUAL
    assert guarded.advance() is Phase.MOVE
    guarded.migrator.handover(guarded.source, guarded.groups[0])
    with killed_acts(guarded) as killed:
        killed.through("advance", "migration.deny_write")
        with pytest.raises(InfraError, match="does not let User:moving-producer"):
            producer.write(guarded.source, 1)
        assert "WRITE on the source" not in guarded.unmet()
        kept = producer.write(guarded.target, 3)
        killed.through("rollback", "migration.allow_write")
    assert guarded.migrator.status(guarded.source).state.phase is Phase.MOVE
    assert sorted(guarded.ids(guarded.source)) == sorted(kept)
    producer.write(guarded.source, 1)


def test_a_source_that_is_made_anew_stays_frozen(guarded: MovingTopic) -> None:
    producer = _granted(guarded, guarded.source, guarded.target)
    guarded.advance()
    guarded.advance()
    guarded.migrator.handover(guarded.source, guarded.groups[0])
    guarded.advance()
    kept = producer.write(guarded.target, 3)
    order = Order("tests", "nobody waits for an hour", forced=True, deletes=guarded.source)
    assert guarded.advance(order) is Phase.RETIRED
    assert guarded.rollback() is Phase.FREEZE
    assert sorted(guarded.ids(guarded.source)) == sorted(kept)
    with pytest.raises(InfraError, match="does not let User:moving-producer"):
        producer.write(guarded.source, 1)

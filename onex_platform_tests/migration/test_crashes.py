"""Killed before and after every effect: nothing lost, each key in order, at worst a repeat under
the same event id."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.killed_moves import KILLED, killed_acts
from onex_platform_tests.support.moving_topics import FORCED, MovingTopic
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


def _phase(moving: MovingTopic) -> Phase:
    state = moving.migrator.status(moving.source).state
    assert state.changing_to is None
    return state.phase


def _agree(moving: MovingTopic) -> bool:
    moving.migrator.mirror(moving.source)
    return moving.unmet() == {}


def test_a_move_that_is_killed_everywhere_ends_as_one_that_is_not(version: MovingTopic) -> None:
    moving = version
    old, new = moving.groups
    ids = moving.write(moving.source, 20)
    seen = moving.read(old, moving.source, 5)
    with killed_acts(moving) as killed:
        killed.through(
            "advance",
            "migration.begin_change",
            "migration.begin_mirror",
            "migration.mirror_send",
            "migration.mirror_advance",
            "migration.enter_phase",
        )
        assert _phase(moving) is Phase.DUAL
        ids += moving.write(moving.source, 10)
        killed.through("mirror", "migration.mirror_send")
        ids += moving.write(moving.source, 10)
        killed.through("mirror", "migration.mirror_advance")
        assert eventually(lambda: _agree(moving))
        assert set(Counter(moving.ids(moving.target)).values()) == {1}
        moving.advance()
        killed.through("handover", "migration.set_offsets", back=False)
        seen += moving.read_all(new, moving.target, set(ids) - set(seen))
        assert set(seen) == set(ids)
        assert eventually(lambda: _agree(moving))
        killed.through("advance", "migration.begin_change", "migration.enter_phase")
        assert _phase(moving) is Phase.FREEZE
        killed.through("advance", "migration.retire_name", "migration.delete_source")
        assert _phase(moving) is Phase.RETIRED
        ids += moving.write(moving.target, 5)
        killed.through(
            "rollback",
            "migration.begin_mirror",
            "migration.mirror_send",
            "migration.enter_phase",
        )
        assert _phase(moving) is Phase.FREEZE
    assert Counter(moving.ids(moving.source)) == Counter(moving.ids(moving.target))
    assert moving.orders(moving.source) == moving.orders(moving.target)


def test_a_deletion_that_was_not_come_to_is_undone_without_a_trace(version: MovingTopic) -> None:
    _freeze(version)
    before = version.ids(version.source)
    orders = version.orders(version.source)
    with killed_acts(version) as killed:
        assert killed.do("advance", "before:migration.delete_source") == KILLED
        since = version.write(version.target, 3)
        assert killed.do("rollback") == 0
    assert _phase(version) is Phase.FREEZE
    assert Counter(version.ids(version.source)) == Counter([*before, *since])
    after = version.orders(version.source)
    assert all(after[key][: len(ids)] == ids for key, ids in orders.items())


def test_a_deletion_is_judged_again_as_long_as_the_topic_is_there(version: MovingTopic) -> None:
    _freeze(version)
    with killed_acts(version) as killed:
        assert killed.do("advance", "before:migration.delete_source") == KILLED
        version.write(version.source, 1)  # nobody keeps a producer from it here
        order = replace(FORCED, deletes=version.source)
        with pytest.raises(ConfigurationError, match="records appended since the freeze: 1"):
            version.advance(order)


def _freeze(moving: MovingTopic) -> None:
    moving.write(moving.source, 6)
    moving.advance()
    moving.advance()
    moving.migrator.handover(moving.source, moving.groups[0])
    moving.read(moving.groups[1], moving.target, 6)
    assert moving.advance() is Phase.FREEZE


def test_a_killed_handover_is_noted_when_it_is_done_again(version: MovingTopic) -> None:
    version.write(version.source, 6)
    version.read(version.groups[0], version.source, 2)
    version.advance()
    version.advance()
    with killed_acts(version) as killed:
        assert killed.do("handover", "before:migration.note_handover", back=False) == KILLED
        assert "groups that are not handed over" in version.unmet()
        assert killed.do("handover", "after:migration.note_handover", back=False) == KILLED
        assert "groups that are not handed over" not in version.unmet()
        assert killed.do("handover", "after:migration.note_handover", back=True) == KILLED
    assert "groups that are not handed over" in version.unmet()


def test_a_change_that_was_killed_may_be_undone(version: MovingTopic) -> None:
    with killed_acts(version) as killed:
        assert killed.do("advance", "after:migration.begin_mirror") == KILLED
        state = version.migrator.status(version.source).state
        assert (state.phase, state.changing_to) == (Phase.ASSESS, Phase.DUAL)
        assert killed.do("rollback", "after:migration.begin_change") == KILLED
        assert killed.do("advance") == 1  # it is on its way back
        assert killed.do("rollback") == 0
        assert _phase(version) is Phase.ASSESS
        assert killed.do("rollback", "before:migration.remove_target") == KILLED
        assert killed.do("rollback", "after:migration.remove_target") == KILLED
        assert killed.do("rollback") == 0


def test_a_producer_that_dies_between_both_topics_loses_nothing(version: MovingTopic) -> None:
    version.advance()
    event = version.event("dual-0", 1).decode()
    event_id = json.loads(event)["event_id"]
    with killed_acts(version) as killed:
        assert killed.do("publish", "before:migration.dual_send", event=event) == KILLED
        assert version.ids(version.source) == []
        assert killed.do("publish", "after:migration.dual_send", event=event) == KILLED
    assert version.ids(version.source) == [event_id]
    assert version.ids(version.target) == []
    assert eventually(lambda: _agree(version))
    assert version.ids(version.target) == [event_id]

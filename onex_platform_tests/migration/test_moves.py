"""Both moves on a real broker: through all phases under load, and back from each."""

from __future__ import annotations

from collections import Counter

import pytest

from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.moving_topics import Load, MovingTopic
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


def _enter_move(moving: MovingTopic) -> None:
    moving.advance()
    moving.migrator.mirror(moving.source)
    moving.advance()


def test_a_move_under_load_loses_nothing_for_its_group(moving: MovingTopic) -> None:
    old, new = moving.groups
    first = moving.write(moving.source, 50)
    seen = moving.read(old, moving.source, 20)
    with Load(moving) as load:
        assert moving.advance() is Phase.DUAL
        assert eventually(lambda: moving.migrator.mirror(moving.source).copied > 10)
        dual = moving.write_both(20)
        assert moving.advance() is Phase.MOVE
        seen += moving.read(old, moving.source, 30)
    moving.migrator.mirror(moving.source)
    moving.migrator.handover(moving.source, old)
    every = {*first, *dual, *load.sent}
    left = every - set(seen)
    seen += moving.read(new, moving.target, len(left))
    assert set(seen) == every
    assert moving.orders(moving.source).items() <= moving.orders(moving.target).items() or (
        _same_order(moving)
    )
    assert moving.unmet() == {}
    assert moving.advance() is Phase.FREEZE
    assert Counter(moving.ids(moving.target)).most_common(1)[0][1] == 1


def _same_order(moving: MovingTopic) -> bool:
    """Whether the target has each key's events in the source's order; older ones it may lack."""
    after = moving.orders(moving.target)
    return all(
        [one for one in ids if one in set(after.get(key, ()))] == after.get(key, [])
        for key, ids in moving.orders(moving.source).items()
    )

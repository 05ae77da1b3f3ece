"""Both moves on a real broker: through all phases under load, and back from each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from onex_platform.base.errors import ConfigurationError, InfraError, InfraTimeoutError
from onex_platform.engines.kafka.clients import open_admin
from onex_platform.engines.kafka.topic_admin import topic_names
from onex_platform.engines.postgres.database import open_database
from onex_platform.migration import phase_table
from onex_platform.migration.moves import Order
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.moving_topics import FORCED, Load, MovingTopic
from onex_platform_tests.support.waiting import eventually

pytestmark = [pytest.mark.servers, pytest.mark.long]

_PLAIN = Order("tests")


def _topics(moving: MovingTopic) -> set[str]:
    with open_admin(moving.settings) as admin:
        return topic_names(admin) & {moving.source, moving.target}


def _mirrored(moving: MovingTopic) -> bool:
    moving.migrator.mirror(moving.source)
    return moving.unmet() == {}


def _to_move(moving: MovingTopic) -> None:
    """Both sides agree, and groups may go."""
    assert moving.advance() is Phase.DUAL
    assert eventually(lambda: _mirrored(moving))
    assert moving.advance() is Phase.MOVE


def _to_freeze(moving: MovingTopic) -> None:
    old, new = moving.groups
    _to_move(moving)
    plan = moving.migrator.handover(moving.source, old)
    moving.read(new, moving.target, plan.unread + plan.repeated)
    assert eventually(lambda: _mirrored(moving))
    assert moving.advance(_PLAIN) is Phase.FREEZE


def test_a_move_under_load_loses_nothing_and_repeats_nothing(moving: MovingTopic) -> None:
    moving = moving.settling(3)
    old, new = moving.groups
    first = moving.write(moving.source, 50)
    seen = moving.read(old, moving.source, 20)
    with Load(moving) as load:
        assert moving.advance() is Phase.DUAL
        moving.write_both(20)
        assert eventually(lambda: _mirrored(moving))
        assert moving.advance() is Phase.MOVE
        seen += moving.read(old, moving.source, 30)
    moving.migrator.mirror(moving.source)
    plan = moving.migrator.handover(moving.source, old)
    every = Counter(moving.ids(moving.source))
    assert every.keys() >= {*first, *load.sent}
    seen += moving.read(new, moving.target, plan.unread + plan.repeated)
    assert set(seen) == every.keys()
    assert set(Counter(moving.ids(moving.target)).values()) == {1}
    _require_same_order(moving)
    assert eventually(lambda: moving.unmet() == {})
    assert moving.advance(_PLAIN) is Phase.FREEZE
    assert moving.advance(replace(FORCED, deletes=moving.source)) is Phase.RETIRED
    assert eventually(lambda: _topics(moving) == {moving.target})


def _require_same_order(moving: MovingTopic) -> None:
    """What the target has of a key is what the source has of it, from some event on."""
    after = moving.orders(moving.target)
    for key, ids in moving.orders(moving.source).items():
        copied = after.get(key, [])
        assert ids[len(ids) - len(copied) :] == copied


def test_values_are_lifted_and_nothing_else_changes(version: MovingTopic) -> None:
    ids = version.write(version.source, 10)
    done = version.read(version.groups[0], version.source, 1)
    version.advance()
    assert set(version.ids(version.target)) >= set(ids) - set(done)
    for payload in version.payloads(version.target):
        assert payload["health"] == "good"
        assert payload["unit"] == "s"
        assert "mood" not in payload
    assert {payload["mood"] for payload in version.payloads(version.source)} == {"good"}


def test_a_missing_and_a_doubled_event_are_named_before_a_phase_is_left(
    version: MovingTopic,
) -> None:
    version.advance()
    [lost] = version.write(version.target, 1)  # the source never had it
    [known] = version.write_both(1)
    assert eventually(lambda: "events missing on the source" in version.unmet())
    assert version.unmet()["events missing on the source"] == (lost,)
    with pytest.raises(ConfigurationError, match=rf"missing on the source: 1, needed 0 \({lost}\)"):
        version.advance()
    [missing] = version.write(version.source, 1)  # no mirror runs
    assert eventually(lambda: "events missing on the target" in version.unmet())
    with pytest.raises(ConfigurationError, match=missing):
        version.advance()
    assert known not in str(version.unmet())


def test_too_early_is_answered_with_every_unmet_condition(moving: MovingTopic) -> None:
    moving.advance()
    moving.advance()
    old, _ = moving.groups
    with pytest.raises(ConfigurationError) as refusal:
        moving.advance(_PLAIN)
    assert f"groups that are not handed over: 1, needed 0 ({old})" in refusal.value.message
    assert moving.migrator.status(moving.source).state.phase is Phase.MOVE


def test_forcing_needs_a_reason_and_is_kept_with_it(version: MovingTopic) -> None:
    with pytest.raises(ConfigurationError, match="needs a reason"):
        Order("tests", forced=True)
    _to_freeze(version)
    with pytest.raises(ConfigurationError, match="no authoriser keeps anybody from it"):
        version.advance(replace(_PLAIN, deletes=version.source))
    version.write(version.source, 1)
    with pytest.raises(ConfigurationError, match="records appended since the freeze: 1"):
        version.advance(replace(FORCED, deletes=version.source))
    with version.database.transaction() as cursor:
        kept = cursor.execute("SELECT reason, waived FROM migration_changes ORDER BY id").fetchall()
    assert kept[0].reason == FORCED.reason


def test_a_topic_is_deleted_by_flag_and_name_only(version: MovingTopic) -> None:
    _to_freeze(version)
    for name in (None, version.target, version.source.upper()):
        with pytest.raises(ConfigurationError, match=f"--delete --name {version.source}"):
            version.advance(replace(FORCED, deletes=name))
    assert version.source in _topics(version)


def test_what_the_log_has_not_read_is_not_deleted(version: MovingTopic) -> None:
    version.archived[version.source] = {0: 0, 1: 0, 2: 0}
    count = len(version.write(version.source, 5))
    version.read(version.groups[0], version.source, 5)
    _to_freeze(version)
    with pytest.raises(ConfigurationError, match=f"records that the log lacks: {count}"):
        version.advance(replace(FORCED, deletes=version.source))


def test_back_from_the_first_phase_an_empty_target_goes(version: MovingTopic) -> None:
    assert version.rollback() is Phase.ASSESS
    assert eventually(lambda: _topics(version) == {version.source})
    assert "differences of the target from its contract" in version.unmet()


def test_a_target_that_is_used_stays(version: MovingTopic) -> None:
    version.write(version.target, 3)
    with pytest.raises(ConfigurationError, match="has had 3 records"):
        version.rollback()
    assert _topics(version) == {version.source, version.target}


def test_back_from_dual_the_target_is_no_longer_written(moving: MovingTopic) -> None:
    moving.advance()
    moving.write(moving.source, 5)
    assert moving.rollback() is Phase.ASSESS
    before = moving.ids(moving.target)
    assert moving.migrator.mirror(moving.source).copied == 0
    assert moving.ids(moving.target) == before


def test_back_from_move_each_group_goes_on_where_its_successor_stopped(
    moving: MovingTopic,
) -> None:
    old, new = moving.groups
    ids = moving.write(moving.source, 30)
    seen = moving.read(old, moving.source, 10)
    _to_move(moving)
    moving.migrator.handover(moving.source, old)
    seen += moving.read(new, moving.target, 8)
    ids += moving.write_both(6)
    assert moving.rollback() is Phase.DUAL
    with pytest.raises(ConfigurationError, match="in the phase move"):
        moving.migrator.plan_handover(moving.source, old)
    seen += moving.read_all(old, moving.source, set(ids) - set(seen))
    assert set(seen) == set(ids)


def test_back_from_freeze_the_source_has_what_was_written_meanwhile(moving: MovingTopic) -> None:
    ids = moving.write(moving.source, 10)
    moving.read(moving.groups[0], moving.source, 10)
    _to_freeze(moving)
    ids += moving.write(moving.target, 10)
    assert moving.rollback() is Phase.MOVE
    ids += moving.write(moving.target, 5)  # not everybody has moved back at once
    assert eventually(lambda: _mirrored(moving))
    # Each way is gone again and again, and nothing goes round in circles.
    assert moving.migrator.mirror(moving.source).copied == 0
    assert Counter(moving.ids(moving.source)) == Counter(ids)
    assert Counter(moving.ids(moving.target)) == Counter(ids[10:])  # the group had read the first
    _require_same_order(moving)
    assert moving.speaks_as_before(moving.source)


def test_back_from_retired_the_source_is_made_anew_and_filled(moving: MovingTopic) -> None:
    moving.write(moving.source, 10)
    moving.read(moving.groups[0], moving.source, 4)
    _to_freeze(moving)
    before = moving.ids(moving.target)
    moving.advance(replace(FORCED, deletes=moving.source))
    moving.write(moving.target, 5)
    with pytest.raises(ConfigurationError, match="is retired; there is no further phase"):
        moving.advance()
    assert moving.rollback() is Phase.FREEZE
    assert set(moving.ids(moving.source)) > set(before)
    assert Counter(moving.ids(moving.source)) == Counter(moving.ids(moving.target))
    assert moving.orders(moving.source) == moving.orders(moving.target)
    assert moving.speaks_as_before(moving.source)
    assert moving.rollback() is Phase.MOVE
    [new] = moving.write(moving.source, 1)
    assert moving.migrator.mirror(moving.source).copied == 1
    assert moving.ids(moving.target).count(new) == 1


def test_a_retired_name_is_never_the_target_of_another_move(version: MovingTopic) -> None:
    with version.database.transaction() as cursor:
        cursor.execute("INSERT INTO retired_topics (topic) VALUES (%s)", [version.target])
    with pytest.raises(ConfigurationError, match="the target's name: retired, needed free"):
        version.advance()


def test_a_group_that_nobody_named_is_in_the_way(version: MovingTopic) -> None:
    version.write(version.source, 1)
    version.read(f"stranger-{version.source}", version.source, 1)
    with pytest.raises(ConfigurationError, match=f"stranger-{version.source}"):
        version.advance()


def test_a_group_that_came_later_is_in_the_way_as_well(version: MovingTopic) -> None:
    version.write(version.source, 1)
    _to_freeze(version)
    version.read(f"stranger-{version.source}", version.source, 1)
    with pytest.raises(ConfigurationError, match=f"stranger-{version.source}"):
        version.advance(replace(FORCED, deletes=version.source))


def test_changes_of_one_move_exclude_each_other(version: MovingTopic) -> None:
    impatient = version.settings.postgres.model_copy(update={"lock_timeout_seconds": 0.1})
    settings = version.settings.model_copy(update={"postgres": impatient})
    with (
        phase_table.change_alone(version.database, version.source),
        open_database(settings) as database,
    ):
        other = replace(version, database=database)
        for act in (
            other.advance,
            other.rollback,
            lambda: other.migrator.handover(other.source, other.groups[0]),
        ):
            with pytest.raises(InfraTimeoutError):
                act()


def test_a_phase_that_nobody_began_is_not_entered(version: MovingTopic) -> None:
    version.advance()
    with (
        version.database.transaction() as cursor,
        pytest.raises(InfraError, match="not on its way to move any more"),
    ):
        phase_table.end_change(cursor, version.source, Phase.MOVE)


def test_status_writes_nothing(version: MovingTopic) -> None:
    version.migrator.status(version.source)
    with version.database.transaction() as cursor:
        for table in ("topic_migrations", "migration_changes", "mirror_positions"):
            assert cursor.execute(f"SELECT FROM {table}").fetchall() == []

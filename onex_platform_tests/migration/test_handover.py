"""A group's work is handed over: nothing skipped, nothing set while somebody is at work."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.engines.kafka.clients import open_admin, open_consumer
from onex_platform.engines.kafka.group_offsets import commit_for, committed, member_count
from onex_platform_tests.support.moving_topics import MovingTopic
from onex_platform_tests.support.waiting import eventually

pytestmark = pytest.mark.servers


def _in_move(moving: MovingTopic) -> None:
    moving.advance()
    assert eventually(
        lambda: moving.migrator.mirror(moving.source).waiting == 0 and moving.unmet() == {}
    )
    moving.advance()


def test_a_dry_run_says_where_and_sets_nothing(version: MovingTopic) -> None:
    old, new = version.groups
    version.write(version.source, 20)
    version.read(old, version.source, 5)
    _in_move(version)
    planned = version.migrator.plan_handover(version.source, old)
    with open_admin(version.settings) as admin:
        assert committed(admin, new, version.target) == {}
    done = version.migrator.handover(version.source, old)
    assert done == planned
    assert done.unread == 15
    with open_admin(version.settings) as admin:
        assert committed(admin, new, version.target) == done.begins_at
    with pytest.raises(ConfigurationError, match="is handed over already"):
        version.migrator.handover(version.source, old)


def test_a_group_at_work_is_not_set(version: MovingTopic) -> None:
    old, new = version.groups
    _in_move(version)
    for group in (old, new):
        with open_consumer(version.settings, group) as consumer:
            consumer.subscribe([version.source])
            with open_admin(version.settings) as admin:

                def joined(admin=admin, consumer=consumer, group=group) -> bool:  # type: ignore[no-untyped-def]
                    consumer.poll(0.05)
                    return member_count(admin, group) == 1

                assert eventually(joined)
                with pytest.raises(ConfigurationError, match=f"Group {group} has 1 members"):
                    version.migrator.handover(version.source, old)
                with pytest.raises(InfraError):  # the broker hides it in each partition's error
                    commit_for(admin, group, {(version.target, 0): 0})


def test_what_the_target_lacks_is_named(version: MovingTopic) -> None:
    old, _ = version.groups
    _in_move(version)
    [unread] = version.write(version.source, 1)  # no mirror runs
    with pytest.raises(InfraError, match=rf"lacks 1 events that {old} has not read: {unread}"):
        version.migrator.handover(version.source, old)


def test_a_group_without_successor_is_told_who_has_one(version: MovingTopic) -> None:
    _in_move(version)
    with pytest.raises(ConfigurationError, match=r"names no successor of group 'other'"):
        version.migrator.handover(version.source, "other")


def test_an_old_group_that_reads_on_is_in_the_way(version: MovingTopic) -> None:
    old, _ = version.groups
    version.write(version.source, 3)
    _in_move(version)
    version.migrator.handover(version.source, old)
    version.read(old, version.source, 2)
    assert f"records read by {old} since" in version.unmet()

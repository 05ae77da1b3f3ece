"""A group's work is handed over: nothing skipped, nothing set while somebody is at work."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError, InfraError
from onex_platform.delivery.config import DeliveryConfig, broker_names
from onex_platform.delivery.consumer import RetryingConsumer, wall_clock
from onex_platform.delivery.delivered import Delivery
from onex_platform.engines.kafka.clients import open_admin, open_consumer
from onex_platform.engines.kafka.group_offsets import commit_for, committed, member_count
from onex_platform.migration.event_ids import event_id_of
from onex_platform.topics.policy import load_policy
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


def test_a_group_whose_records_wait_is_not_handed_over(stream: MovingTopic) -> None:
    old, new = stream.groups
    ids = stream.write(stream.source, 6, keys=3)
    config = DeliveryConfig.from_contract(
        stream.move.source, old, broker_names(stream.settings, load_policy().home)
    )
    handled: list[str] = []
    is_broken, minutes = True, 0

    def handle(delivery: Delivery) -> None:
        if is_broken and delivery.key == b"node-1":
            raise RuntimeError("the printer has no paper")
        record = delivery.record
        handled.append(event_id_of(record.key, record.value, record.headers))

    def clock() -> int:
        return wall_clock() + minutes * 60_000

    leaves_at_once = {"session.timeout.ms": 6000}
    with RetryingConsumer(stream.settings, config, handle, clock=clock, **leaves_at_once) as member:
        member.run(until=lambda: len(handled) == 4 and member.waiting() == 2)
    _in_move(stream)
    with pytest.raises(ConfigurationError, match=r"1 keys of .* wait in .*rty.* or are dead: node"):
        stream.migrator.handover(stream.source, old)
    is_broken, minutes = False, 2
    with RetryingConsumer(stream.settings, config, handle, clock=clock, **leaves_at_once) as member:
        member.run(until=lambda: len(handled) == 6 and member.waiting() == 0)
    assert sorted(handled) == sorted(ids)
    assert stream.migrator.handover(stream.source, old).following.group == new


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

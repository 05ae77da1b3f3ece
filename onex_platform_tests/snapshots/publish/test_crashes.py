"""Killed before the send, before the mark, after the mark: the topic comes to what the rows say."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from onex_platform.base.settings import address_variables
from onex_platform.domain.envelope import parse_envelope
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.snapshots.audit.sweep import sweep
from onex_platform.topics.catalogue import load_catalogue
from onex_platform_tests.support.events import Kind, event, number_id
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.snapshot_registry import Registry
from onex_platform_tests.support.stored_rows import queue_events

pytestmark = pytest.mark.servers

ACCEPTED = load_catalogue().for_kind(Kind.NODE_ACCEPTED).topic

_RUN = """
import sys
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.snapshots.publish.relay import open_relay
from onex_platform.snapshots.audit.sweep import sweep
from onex_platform.topics.catalogue import load_catalogue
faults.arm(sys.argv[1])
with open_relay(load_settings(), load_catalogue()) as relay:
    if "repairs" in sys.argv[1]:
        sweep(relay)
    relay.publish_pending()
"""


def _run_and_die(registry: Registry, point: str) -> None:
    variables = {
        **address_variables(registry.settings),
        "ONEX_SNAPSHOTS_TRANSACTION_SECONDS": "2",
        "SNAPSHOT_TOPIC": registry.config.topic,
        "SNAPSHOT_PARTITION_COUNT": str(registry.config.partition_count),
    }
    assert run_program(_RUN, point, variables=variables) == -signal.SIGKILL


@pytest.mark.parametrize("effect", ["snapshots.send", "snapshots.mark"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_rows_killed_at_any_effect_reach_the_topic(
    registry: Registry, moment: str, effect: str
) -> None:
    registry.change(*range(20))
    registry.close(3, 4)
    _run_and_die(registry, f"{moment}:{effect}")
    marked = (moment, effect) == ("after", "snapshots.mark")
    assert registry.waiting().rows == (0 if marked else 22)
    registry.change(5, 6)
    with registry.relay() as relay:
        relay.publish_pending()
    registry.require_topic_equals_rows()
    assert registry.waiting() == (0, 0)


@pytest.mark.parametrize("effect", ["events.send", "events.mark"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_events_killed_at_any_effect_are_all_there_in_order(
    registry: Registry, moment: str, effect: str
) -> None:
    start = end_positions(registry.settings, [ACCEPTED])
    facts = [event(Kind.NODE_ACCEPTED, n, event_id=number_id(100 + n)) for n in range(5)]
    with registry.store.database.transaction() as cursor:
        queue_events(cursor, facts)
    _run_and_die(registry, f"{moment}:{effect}")
    with registry.relay() as relay:
        relay.publish_pending()
    sent = [
        parse_envelope(message.value() or b"").event_id
        for message in read_to_end(registry.settings, [ACCEPTED], start)
    ]
    twice = (moment, effect) in {("after", "events.send"), ("before", "events.mark")}
    assert sent == [fact.event_id for fact in facts] * (2 if twice else 1)
    assert registry.waiting() == (0, 0)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sweep_killed_at_its_effect_is_made_good_by_the_next(
    registry: Registry, moment: str
) -> None:
    registry.change(1, 2, 3)
    with registry.store.database.transaction() as cursor:
        cursor.execute("DELETE FROM outbox")
    _run_and_die(registry, f"{moment}:snapshots.queue_repairs")
    with registry.relay() as relay:
        assert Counter(sweep(relay).comparison.counts())["missing"] == 3
        relay.publish_pending()
    registry.require_topic_equals_rows()

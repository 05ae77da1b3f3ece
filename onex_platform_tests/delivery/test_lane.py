"""The rules of one lane, on a test clock."""

from __future__ import annotations

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.base.settings import Settings
from onex_platform.delivery.config import DeliveryConfig, Limits, broker_names
from onex_platform.delivery.consumer import wait_seconds
from onex_platform.delivery.entries import (
    Attempts,
    Entry,
    EnumEntry,
    EnumFailure,
    decode,
    encode,
)
from onex_platform.delivery.lane import Lane
from onex_platform.topics.catalogue import load_whole_catalogue
from onex_platform_tests.support.simulated_delivery import (
    GROUP,
    PERMANENT,
    TIERS,
    TRANSIENT,
    Broker,
    Owner,
    Poison,
    ask,
    filled,
    settled,
)

MINUTE, QUARTER, HOURS = TIERS


def test_attempts_come_at_the_tiers_to_the_millisecond() -> None:
    broker = filled(b"a")
    owner, start = settled(broker, Poison({b"a": TRANSIENT})), broker.now
    for wait in TIERS:
        broker.now += wait - 1
        owner.settle()
        broker.now += 1
        owner.settle()
    times = [when - start for when, _ in owner.attempts]
    assert times == [0, MINUTE, MINUTE + QUARTER, MINUTE + QUARTER + HOURS]
    assert len(broker.letters) == 1


def test_a_wait_of_two_hours_holds_back_none_of_a_minute() -> None:
    broker = filled(b"slow")
    poison = Poison({b"slow": TRANSIENT, b"quick": TRANSIENT})
    owner = settled(broker, poison)
    for wait in (MINUTE, QUARTER):
        broker.now += wait
        owner.settle()
    broker.produce(b"quick")
    owner.settle()
    del poison.failures[b"quick"]
    broker.now += MINUTE
    owner.settle()
    assert broker.handled[GROUP] == {b"quick": [1]}
    assert owner.lane.waiting == 1


def test_a_permanent_failure_skips_the_tiers_and_followers_become_letters_too() -> None:
    broker = filled(b"a", b"a", b"b")
    owner = settled(broker, Poison({b"a": PERMANENT}))
    broker.produce(b"a")
    owner.settle()
    assert [offset for _, offset in owner.attempts] == [0, 2]
    assert len(broker.letters) == 3
    assert broker.committed[GROUP][0] == 4


def test_a_letter_is_the_original_record_with_the_failure_behind_its_headers() -> None:
    broker = filled(b"a")
    settled(broker, Poison({b"a": PERMANENT}))
    [(key, value, headers, _)] = broker.letters
    found = decode(key, value, headers, GROUP)
    assert found is not None
    assert found.record == broker.source[0]
    assert found.attempts[:1] == (1,)
    assert (found.attempts.failure, found.attempts.reason) == (EnumFailure.PERMANENT, "never")
    assert decode(key, value, headers, "another group") is None


@pytest.mark.parametrize(
    ("next_at", "due_in"),
    [(b"soon", 0), (b"", 0), (b"-5", 0), (b"99999999999999999", HOURS), (b"\xff", 0)],
)
def test_a_due_time_of_nonsense_is_now_and_one_far_ahead_is_capped(
    next_at: bytes, due_in: int
) -> None:
    broker = filled(b"a")
    entry = Entry(
        EnumEntry.WAIT,
        b"a",
        0,
        broker.source[0],
        Attempts(1, 0, 0, 0, EnumFailure.TRANSIENT),
        epoch=0,
        number=0,
        leads=True,
    )
    headers = [
        (name, next_at if name == "x-next-at" else value) for name, value in encode(entry, GROUP)
    ]
    lane = Lane(Limits(TIERS), "claim")
    lane.read(decode(b"a", b"0", headers, GROUP), 1, broker.now, broker.now)
    [kept] = lane.keys[b"a"].queue
    assert max(0, kept.entry.attempts.due - broker.now) == due_in


def test_when_dlt_refuses_its_key_stops_is_told_once_and_the_others_go_on() -> None:
    broker = filled(b"a", b"b")
    broker.takes_letters = False
    owner = settled(broker, Poison({b"a": PERMANENT}))
    broker.produce(b"b")
    for _ in range(3):
        broker.now += 10_000
        owner.settle()
    assert broker.handled[GROUP] == {b"b": [1, 2]}
    assert [alert.name for alert in owner.lane.alerts] == ["dead_letters_refused"]
    broker.takes_letters = True
    broker.now += 10_000
    owner.settle()
    assert len(broker.letters) == 1


def test_when_rty_refuses_nothing_is_handled_nor_committed_until_it_takes_entries() -> None:
    broker = filled(b"a", b"b")
    owner = settled(broker, Poison({}))
    before = broker.committed[GROUP]
    broker.produce(b"a")
    broker.produce(b"b")
    owner.lane.failed(b"a", broker.source[2], TRANSIENT, broker.now)
    owner.refuse()
    owner.take(10)
    owner.commit()
    assert (owner.lane.is_open, broker.committed[GROUP]) == (False, before)
    assert [alert.name for alert in owner.lane.alerts] == ["retry_refused"]
    owner.settle()
    assert owner.lane.is_open


def test_too_many_waiting_records_pause_the_source_and_are_told() -> None:
    lane = Owner(filled(), GROUP, Poison({}), "claim")
    lane.lane = Lane(Limits(TIERS, waiting_records=2), "claim")
    lane.settle()
    for offset, key in enumerate((b"a", b"b")):
        lane.broker.produce(key)
        lane.lane.failed(key, lane.broker.source[offset], TRANSIENT, lane.broker.now)
    assert (lane.lane.is_open, lane.lane.takes_more) == (True, False)
    assert [alert.name for alert in lane.lane.alerts] == ["too_many_waiting"]


def test_a_replay_handles_the_letters_before_later_records_and_a_second_does_nothing() -> None:
    broker = filled(b"a", b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    broker.produce(b"a")
    poison.failures.clear()
    ask(owner, b"a")
    again = ask(owner, b"a")
    owner.settle()
    assert broker.handled[GROUP] == {b"a": [0, 1, 2]}
    poison.failures[b"a"] = PERMANENT
    broker.produce(b"a")
    broker.store(broker.retry, again, GROUP)
    owner.settle()
    tried = len(owner.attempts)
    broker.store(broker.retry, again, GROUP)
    owner.settle()
    settled(broker, poison, "second")
    assert (len(owner.attempts), len(broker.letters)) == (tried, 3)


def test_a_released_key_goes_on_without_its_letters() -> None:
    broker = filled(b"a", b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    poison.failures.clear()
    ask(owner, b"a", EnumEntry.RELEASE)
    owner.settle()
    broker.produce(b"a")
    owner.settle()
    assert broker.handled[GROUP] == {b"a": [2]}


def test_nothing_is_due_while_nothing_may_be_done() -> None:
    broker = filled(b"a")
    poison = Poison({b"a": TRANSIENT})
    owner = settled(broker, poison)
    due = broker.now + MINUTE
    assert owner.lane.next_due() == due
    successor = Owner(broker, GROUP, poison, "second")
    assert successor.lane.next_due() is None
    successor.settle()
    assert successor.lane.next_due() == due
    successor.lane.failed(b"b", broker.source[0], TRANSIENT, broker.now)
    successor.refuse()
    assert successor.lane.next_due() is None


def test_a_consumer_waits_for_records_until_it_may_do_something() -> None:
    assert wait_seconds(0.2, [], 0, 1000) == 0.2
    assert wait_seconds(0.2, [None, 1100, 5000], 0, 1000) == 0.1
    assert wait_seconds(0.2, [0, 900], 0, 1000) == 0.0
    assert wait_seconds(0.2, [0, 900], 6000, 1000) == 0.2
    assert wait_seconds(0.2, [0, 900], 1050, 1000) == 0.05


def test_a_request_outlives_an_owner_that_is_killed_with_the_letters_under_way() -> None:
    broker = filled(b"a", b"a", b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    ask(owner, b"a")
    owner.read(10)
    owner.work()
    owner.land(1)
    owner.read(10)
    owner.commit()
    poison.failures.clear()
    successor = settled(broker, poison, "second")
    assert broker.handled[GROUP] == {b"a": [0, 1, 2]}
    assert successor.lane.keys == {}


def test_a_request_outlives_a_burial_that_was_under_way() -> None:
    broker = filled(b"a")
    poison = Poison({b"a": PERMANENT})
    owner = settled(broker, poison)
    broker.produce(b"a")
    owner.take(1)
    owner.land(1)
    owner.read(1)
    owner.work()
    ask(owner, b"a")
    owner.land(1)
    owner.read(2)
    owner.commit()
    poison.failures.clear()
    settled(broker, poison, "second")
    assert broker.handled[GROUP] == {b"a": [0, 1]}


def test_a_record_that_was_handled_counts_until_that_is_read_back() -> None:
    broker = filled(b"a", b"a")
    poison = Poison({b"a": TRANSIENT})
    owner = settled(broker, poison)
    poison.failures.clear()
    broker.now += MINUTE
    owner.work()
    owner.commit()
    assert broker.handled[GROUP] == {b"a": [0, 1]}
    settled(broker, poison, "second")
    assert broker.handled[GROUP] == {b"a": [0, 1, 0, 1]}


def test_a_record_whose_end_is_on_its_way_is_not_handled_when_the_source_brings_it_again() -> None:
    broker = filled(b"a", b"a", b"a")
    poison = Poison({b"a": TRANSIENT})
    settled(broker, poison)
    broker.committed[GROUP] = (0, 0)
    poison.failures.clear()
    broker.now += MINUTE
    owner = Owner(broker, GROUP, poison, "second")
    owner.land(1)
    owner.read(10)
    owner.work()
    owner.take(1)
    owner.land(2)
    settled(broker, poison, "third")
    assert broker.handled[GROUP] == {b"a": [0, 1, 2, 2]}


def test_records_that_an_earlier_owner_wrote_are_not_written_twice() -> None:
    broker = filled(b"a", b"a")
    poison = Poison({b"a": TRANSIENT})
    settled(broker, poison)
    broker.committed[GROUP] = (0, 0)
    owner = settled(broker, poison, "second")
    assert owner.lane.waiting == 2


def test_what_lies_far_behind_is_carried_so_that_rty_may_delete_the_rest() -> None:
    broker = filled(b"dead", b"slow")
    poison = Poison({b"dead": PERMANENT, b"slow": TRANSIENT})
    owner = settled(broker, poison)
    for _ in range(20):
        poison.failures[b"x"] = TRANSIENT
        broker.produce(b"x")
        owner.settle()
        del poison.failures[b"x"]
        broker.now += MINUTE
        owner.settle()
    source, retry = broker.committed[GROUP]
    assert source == 22
    assert retry > 10
    broker.retry[:retry] = [(None, None, [], 0)] * retry
    successor = settled(broker, poison, "second")
    assert successor.lane.keys[b"dead"].dead is not None
    assert successor.lane.keys[b"slow"].queue


def test_a_lane_whose_rty_was_made_anew_stops_and_says_what_is_lost() -> None:
    broker = filled(b"slow")
    owner = settled(broker, Poison({b"slow": TRANSIENT}))
    owner.seek_retry(0)
    owner.read(1)
    assert (owner.lane.deposed, owner.lane.commits()) == (True, None)
    assert [alert.name for alert in owner.lane.alerts] == ["entries_lost"]


def test_entries_behind_a_refused_one_count_only_when_they_are_written_again() -> None:
    broker = filled()
    owner = settled(broker, Poison({b"a": TRANSIENT}))
    for _ in range(2):
        broker.produce(b"a")
    owner.take(2)
    owner.refuse_first()
    owner.land(10)
    owner.read(10)
    successor = Owner(broker, GROUP, Poison({}), "second")
    successor.settle()
    assert broker.handled[GROUP] == {b"a": [0, 1]}
    assert broker.committed[GROUP] == (2, len(broker.retry))


def test_no_batch_follows_one_that_is_not_read_back() -> None:
    broker = filled()
    owner = settled(broker, Poison({b"a": TRANSIENT}))
    broker.produce(b"a")
    owner.take(1)
    owner.land(0)
    broker.produce(b"a")
    owner.take(1)
    owner.refuse_first()
    owner.land(10)
    settled(broker, Poison({}), "second")
    assert broker.handled[GROUP] == {b"a": [0, 1]}


def test_a_successor_begins_with_a_whole_batch() -> None:
    broker = filled(b"x")
    poison = Poison({b"x": TRANSIENT, b"a": TRANSIENT})
    owner = settled(broker, poison)
    del poison.failures[b"x"]
    broker.now += MINUTE
    owner.work()
    for _ in range(2):
        broker.produce(b"a")
    owner.take(1)
    owner.land(1)
    owner.read(1)
    owner.commit()
    owner.land(1)
    owner.read(1)
    owner.take(1)
    owner.land(1)
    poison.failures.clear()
    broker.now += MINUTE
    settled(broker, poison, "second")
    assert broker.handled[GROUP] == {b"x": [0], b"a": [1, 2]}


def test_records_without_a_key_wait_each_for_itself() -> None:
    broker = Broker()
    broker.produce(None)
    broker.produce(None)
    poison = Poison({b"": TRANSIENT})
    owner = settled(broker, poison)
    assert owner.lane.waiting == 2
    assert [state.queue[0].entry.offset for state in owner.lane.keys.values()] == [0, 1]


def test_the_config_is_the_contract_s_and_a_topic_without_retry_is_refused() -> None:
    catalogue = load_whole_catalogue()
    contract = next(found for found in catalogue if found.retry is not None)
    settings = Settings.model_construct(environment="prod", tenant="acme")
    config = DeliveryConfig.from_contract(contract, "me", broker_names(settings, "omnibase"))
    assert config.source == f"prod.acme.{contract.topic}"
    assert config.limits.tiers == TIERS
    plain = next(found for found in catalogue if found.retry is None)
    with pytest.raises(ConfigurationError, match="has no retry in its contract"):
        DeliveryConfig.from_contract(plain, "me", str)
    with pytest.raises(ConfigurationError, match="no waiting times"):
        Limits(())

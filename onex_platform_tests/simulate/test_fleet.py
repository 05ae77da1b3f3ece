"""The fleet: repeatable, in the order of time, readable by the intake, true to its scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.batch import Decider
from onex_platform.domain.decider import RegistrationPolicy
from onex_platform.domain.envelope import EnumParkReason
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.identity import EntityKey
from onex_platform.domain.intake import Parked, admit
from onex_platform.domain.projection import ModelRegistrationProjection
from onex_platform.domain.reference.plain_fold import apply
from onex_platform.domain.states import EnumOutcome, EnumRegistrationState
from onex_platform.simulate.event_payloads import UNWELCOME_CAPABILITY
from onex_platform.simulate.malformed import MALFORMATIONS
from onex_platform.simulate.plan import duration_for
from onex_platform.simulate.profiles import PROFILES, EnumDisturbance, Profile, Rates
from onex_platform.simulate.records import Record
from onex_platform.simulate.scenarios import SCENARIOS
from onex_platform_tests.support.played_records import (
    STORMY,
    digest,
    fleet,
    kept,
    moment,
    promised,
    raw,
    read,
    read_fleet,
    rules_for,
    with_offsets,
)

# The others are parked for what a contract asks, and no contract of ours does.
_REASONS = set(EnumParkReason) - {
    EnumParkReason.BAD_HEADERS,
    EnumParkReason.UNSIGNED,
    EnumParkReason.BAD_SIGNATURE,
    EnumParkReason.UNKNOWN_KEY,
}

Kind = EnumEventKind
State = EnumRegistrationState
Trouble = EnumDisturbance


# Where a node stands when its script is over.
ENDINGS = {
    "steady": (State.ACTIVE, False),
    "graceful": (State.ACTIVE, True),
    "silent": (State.LIVENESS_EXPIRED, False),
    "returns": (State.ACTIVE, False),
    "reopens": (State.ACTIVE, False),
    "flapping": (State.ACTIVE, False),
    "no_ack": (State.ACK_TIMED_OUT, False),
    "late_ack": (State.ACK_TIMED_OUT, False),
    "ack_retry": (State.ACTIVE, False),
    "rejected": (State.REJECTED, False),
    "beats_first": (State.ACTIVE, False),
}


def only(*scenarios: str, **rates: float) -> Profile:
    return Profile(rates=Rates(**rates), weights=dict.fromkeys(scenarios, 1))


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    plan = replace(STORMY, max_events=3000)
    program = (
        "from dataclasses import replace\n"
        "from onex_platform_tests.support.played_records import STORMY, digest\n"
        "print(digest(replace(STORMY, max_events=3000)))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("0", "4711")
    }
    assert digests == {digest(plan)}


def test_another_seed_gives_another_history() -> None:
    assert digest(replace(STORMY, max_events=500, seed=1)) != digest(
        replace(STORMY, max_events=500, seed=2)
    )


def test_records_come_in_the_order_of_time_and_within_the_history() -> None:
    times = [moment(record.time_ms) for record in fleet(STORMY)]
    assert times == sorted(times)
    assert STORMY.start <= times[0]
    assert STORMY.start + STORMY.duration * 0.9 < times[-1] < STORMY.start + STORMY.duration


def test_a_history_ends_after_so_many_events() -> None:
    played = fleet(replace(STORMY, max_events=123))
    assert len(list(played)) == played.played == played.summary().records == 123
    assert played.progress == 1


def test_healthy_records_are_admitted_and_broken_ones_parked_for_the_announced_reason() -> None:
    plan = replace(
        STORMY,
        max_event_bytes=4096,
        profile=PROFILES["stormy"].changed({"malformed": 0.5}),
    )
    played = fleet(plan)
    rules = rules_for(plan)
    verdicts: Counter[str] = Counter()
    for record in played:
        verdict = admit(raw(record), rules, moment(plan.end_ms))
        reason = verdict.reason if isinstance(verdict, Parked) else None
        assert reason == record.malformed, record
        if reason is not None:
            verdicts[reason] += 1
    assert verdicts == played.summary().malformed
    assert set(verdicts) == _REASONS


def test_every_reason_to_park_has_a_malformation() -> None:
    assert {malformation.reason for malformation in MALFORMATIONS} == _REASONS


@pytest.mark.parametrize("profile", PROFILES)
def test_the_fold_of_a_history_keeps_what_the_scenarios_announce(profile: str) -> None:
    played = fleet(replace(STORMY, profile=PROFILES[profile], max_event_bytes=4096))
    reading = read_fleet(played)
    fold = reading.fold()
    summary = played.summary()

    assert kept(fold) == promised(played)
    assert summary.records == len(reading.events) + reading.parked.total()
    assert fold.read == sum(fold.outcomes.values()) == len(reading.events)
    assert reading.parked == summary.malformed
    assert fold.outcomes[EnumOutcome.DUPLICATE] == summary.duplicates
    assert fold.outcomes[EnumOutcome.PARKED] == summary.by_disturbance[Trouble.FOREIGN_TENANT]


@pytest.mark.parametrize("events", [50, 500, 1500, 2500])
def test_the_announcement_holds_wherever_the_history_is_cut(events: int) -> None:
    played = fleet(replace(STORMY, max_events=events, max_event_bytes=4096))
    assert kept(read_fleet(played).fold()) == promised(played)


def test_heartbeats_of_a_life_that_is_over_grant_the_next_one_nothing() -> None:
    profile = only("flapping", "silent", late=0.4, duplicate=0.4)
    played = fleet(replace(STORMY, nodes=200, duration=timedelta(minutes=30), profile=profile))
    fold = read_fleet(played).fold()
    assert kept(fold) == promised(played)
    assert fold.outcomes[EnumOutcome.STALE]


def test_every_scenario_has_its_ending_here() -> None:
    assert set(ENDINGS) == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", range(3))
def test_a_script_ends_where_it_says(scenario: str, seed: int) -> None:
    """Read is what one node said in its first script."""
    played = fleet(replace(STORMY, nodes=1, seed=seed, profile=only(scenario)))

    def first_script() -> Iterator[Record]:
        for record in played:
            yield record
            if played.summary().scripts[scenario] > 1:
                return

    fold = read(with_offsets(first_script()), played.plan).fold()
    assert list(kept(fold).values()) == [ENDINGS[scenario]]


def test_nodes_alone_leave_the_decisions_to_the_platform() -> None:
    scenarios = ("steady", "graceful", "reopens", "flapping", "rejected", "beats_first")
    played = fleet(replace(STORMY, registry=False, profile=only(*scenarios)))
    policy = RegistrationPolicy(forbidden_capabilities=frozenset({UNWELCOME_CAPABILITY}))
    reading = read_fleet(played)
    fold = reading.fold(Decider(policy=policy, now=STORMY.start))

    assert {event.kind for event in reading.events} <= {
        Kind.NODE_INTROSPECTION,
        Kind.NODE_HEARTBEAT,
        Kind.NODE_ACK,
        Kind.NODE_SHUTDOWN,
    }
    assert Kind.NODE_REGISTERED in {fact.kind for fact in fold.facts}
    found = kept(fold)
    # Those on their way in are further than the script says: this registry answers at once.
    settled = {
        key: standing
        for key, standing in promised(played).items()
        if standing[0] in (State.ACTIVE, State.REJECTED)
    }
    assert {key: found[key] for key in settled} == settled
    assert {state for state, _ in settled.values()} == {State.ACTIVE, State.REJECTED}


def test_nobody_is_missed_who_does_not_fall_silent() -> None:
    """However records are held up, an active node is heard of before its deadline has passed."""
    lively = set(SCENARIOS) - {"silent", "returns"}
    profile = only(*sorted(lively), late=0.4, out_of_order=0.4)
    reading = read_fleet(fleet(replace(STORMY, profile=profile, max_event_bytes=4096)))
    rows: dict[EntityKey, ModelRegistrationProjection] = {}
    for event in reading.numbered():
        row = rows.get(event.entity)
        if row is not None and row.liveness_deadline is not None:
            assert event.occurred_at <= row.liveness_deadline, event
        after, _, _ = apply(row, event)
        if after is not None:
            rows[event.entity] = after
    assert rows


def test_memory_does_not_grow_with_the_length_of_the_history() -> None:
    def peak(events: int) -> int:
        plan = replace(
            STORMY,
            nodes=20,
            max_events=events,
            max_event_bytes=4096,
            duration=duration_for(events, 20, STORMY.windows),
        )
        tracemalloc.start()
        try:
            for _ in fleet(plan):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1_000)  # what is made once and kept is not counted
    more_per_event = (peak(18_000) - peak(2_000)) / 16_000
    # One record takes some 700 bytes; what differs is how many are held up at the worst moment.
    assert more_per_event < 70


def test_nodes_speak_in_all_the_ways_that_the_rates_ask_for() -> None:
    played = fleet(STORMY)
    records = list(played)
    summary = played.summary()

    assert set(summary.traits) == {
        "legacy_topics",
        "both_topics",
        "skewed_clock",
        "plain_id",
        "odd_spelling",
    }
    assert set(summary.by_disturbance) == set(Trouble)
    assert {record.legacy for record in records} == {True, False}
    undisturbed = [record for record in records if record.disturbance is None]
    assert {dict(record.headers).get("x-tenant") for record in undisturbed} == {
        None,
        b"acme",
        b"globex",
    }


def test_one_plain_id_belongs_to_a_node_of_each_tenant() -> None:
    played = fleet(replace(STORMY, profile=only("steady", plain_id=1)))
    fold = read_fleet(played).fold()
    names = Counter(change.row.node_name for change in fold.changes.values())
    assert set(names.values()) == {3}
    assert len(fold.changes) == STORMY.nodes


def test_clocks_are_off_in_both_directions_and_change_nothing() -> None:
    plan = replace(STORMY, profile=only("graceful", "silent", skewed_clock=1))
    played = fleet(plan)
    reading = read_fleet(played)
    skews = {event.reported_at - event.occurred_at for event in reading.events if event.reported_at}
    assert min(skews) < -timedelta(days=1)
    assert max(skews) > timedelta(days=30)
    assert kept(reading.fold()) == promised(played)


def test_a_twin_is_the_same_record_on_the_legacy_topic() -> None:
    plan = replace(STORMY, profile=only("steady", both_topics=1), max_events=2000)
    records = list(fleet(plan))
    twins = [record for record in records if record.disturbance is Trouble.TWIN]
    canonical = {(record.kind, record.value) for record in records if not record.legacy}
    assert twins
    assert all(twin.legacy and (twin.kind, twin.value) in canonical for twin in twins)


def test_at_speed_everything_is_closer_together_and_still_folds() -> None:
    fast = replace(
        STORMY, speed=60, duration=timedelta(minutes=3), profile=only(*SCENARIOS), nodes=30
    )
    slow = replace(fast, speed=1, duration=timedelta(hours=3))
    fast_fleet, slow_fleet = fleet(fast), fleet(slow)
    assert kept(read_fleet(fast_fleet).fold()) == promised(fast_fleet)
    beats = {
        plan.speed: sum(record.kind is Kind.NODE_HEARTBEAT for record in played)
        for plan, played in ((fast, fleet(fast)), (slow, slow_fleet))
    }
    assert beats[60] == pytest.approx(beats[1], rel=0.3)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"nodes": 0}, "nodes=0"),
        ({"duration": timedelta()}, "duration=0:00:00"),
        ({"speed": 0.0}, "speed=0.0"),
        ({"max_events": -1}, "max_events=-1"),
        ({"start": STORMY.start.replace(tzinfo=None)}, "has no time zone"),
    ],
)
def test_a_plan_that_can_not_be_played_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        replace(STORMY, **changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rates": {"duplicate": 2}}, "rates.duplicate"),
        ({"rates": {"dupes": 0.1}}, "rates.dupes"),
        ({"rates": {"late": 0.7, "echo": 0.7}}, "together they are at most 1"),
        ({"weights": {"steadfast": 1}}, "no scenario steadfast"),
        ({"weights": {"steady": 0}}, "at least one must be played"),
        ({"weights": {"steady": -1}}, "weights.steady"),
    ],
)
def test_a_wrong_profile_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        PROFILES["default"].changed(**changes)

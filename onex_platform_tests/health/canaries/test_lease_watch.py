"""Who is missed: consumers and holders that gave signs of life and fell silent."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.base.settings import Settings, address_variables
from onex_platform.context import PlatformContext, open_platform
from onex_platform.delivery.lease_heartbeats import LEASE_HEARTBEAT, Heart
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.governance.provision import create_topics
from onex_platform.health.canaries.following import follow
from onex_platform.health.canaries.lease_watch import LeaseBeat, forget_lease, newest
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform_tests.support.events import at
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.met_topics import as_contracts_say, topics_for_a_while
from onex_platform_tests.support.waiting import eventually

SILENCE = timedelta(seconds=60)
ERRORS = load_catalogue().for_kind(EnumEventKind.ERROR_DETECTED).topic
BEATS = st.builds(
    LeaseBeat,
    st.sampled_from(["a", "b"]),
    st.integers(0, 50).map(at),
    st.just("somebody"),
    st.none() | st.integers(1, 3),
    st.booleans(),
)
# A process that gives signs of life and is killed as soon as one is sent.
_CHILD = """
import sys, time
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.delivery.lease_heartbeats import beating
from onex_platform_tests.support.met_topics import as_contracts_say
faults.arm(sys.argv[1])
with beating(load_settings(), as_contracts_say, sys.argv[2], seconds=0.05) as beat:
    while True:
        beat()
        time.sleep(0.01)
"""


@given(st.lists(BEATS), st.lists(BEATS))
def test_what_counts_is_the_highest_number_and_of_it_the_newest_sign(
    noted: list[LeaseBeat], heard: list[LeaseBeat]
) -> None:
    found = newest(newest({}, noted), heard)
    for name in ("a", "b"):
        of_name = [beat for beat in noted + heard if beat.lease_name == name]
        assert (name in found) == bool(of_name)
        if of_name:
            fence = max(beat.fence or 0 for beat in of_name)
            last = max(beat.beaten_at for beat in of_name if (beat.fence or 0) == fence)
            assert (found[name].fence or 0, found[name].beaten_at) == (fence, last)


def test_a_farewell_that_comes_late_does_not_end_the_successor() -> None:
    successor = LeaseBeat("drain", at(10), "new", 8)
    late = LeaseBeat("drain", at(11), "old", 7, is_last=True)
    assert newest({}, [successor, late])["drain"] == successor
    assert not successor.is_missed(at(70), SILENCE)
    assert successor.is_missed(at(71), SILENCE)
    assert not late.is_missed(at(9999), SILENCE)


@pytest.fixture
def platform(store_settings: Settings) -> Iterator[PlatformContext]:
    create_topics(store_settings, load_catalogue())
    with (
        topics_for_a_while(store_settings, [LEASE_HEARTBEAT]),
        open_platform(store_settings, load_catalogue()) as opened,
    ):
        yield opened


@pytest.mark.servers
@pytest.mark.parametrize("moment", ["before:delivery.beat", "after:delivery.beat"])
def test_a_killed_consumer_is_told_once_and_once_when_it_is_back(
    platform: PlatformContext, moment: str
) -> None:
    settings, catalogue, name = platform.settings, load_whole_catalogue(), f"reader-{uuid4()}"
    before = end_positions(settings, [ERRORS])

    def told() -> list[dict[str, Any]]:
        read = [json.loads(r.value() or b"") for r in read_to_end(settings, [ERRORS], before)]
        payloads = [event["payload"] for event in read]
        ours = [one for one in payloads if one.get("context", {}).get("lease") == name]
        return sorted(ours, key=itemgetter("error_code"))

    def look(seconds: float) -> bool:
        now = datetime.now(UTC) + timedelta(seconds=seconds)
        report = follow(platform, catalogue, now)
        return any(beat.lease_name == name and not beat.is_last for beat in report.leases)

    variables = address_variables(settings)
    assert run_program(_CHILD, moment, name, variables=variables) == -signal.SIGKILL
    # Of whoever never gave a sign, nobody knows.
    assert look(0) is (moment == "after:delivery.beat")
    for seconds in (61, 62):
        look(seconds)
    if moment == "before:delivery.beat":
        assert told() == []
        return
    [missed] = told()
    assert missed["error_code"] == "CANARY_STOPPED"
    assert "has given no sign of life" in missed["message"]
    heart = Heart(settings, as_contracts_say, name, seconds=0.01)
    heart.beat()
    assert eventually(lambda: heart.sent == 1, 30)
    for _ in range(2):
        look(0)
    [over, _] = told()
    assert (over["error_code"], over["severity"]) == ("CANARY_RECOVERED", "info")
    heart.close(farewell=True)
    # Whoever took leave is missed by nobody.
    for seconds in (0, 90):
        assert look(seconds) is False
    assert len(told()) == 2
    with platform.database.transaction() as cursor:
        assert forget_lease(cursor, name) == 1
        assert forget_lease(cursor, name) == 0

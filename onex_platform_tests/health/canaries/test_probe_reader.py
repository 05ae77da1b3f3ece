"""The canary reader: it reads back what was sent to it, whatever kills a look, or it is told."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.context import PlatformContext, open_platform
from onex_platform.domain.events import EnumEventKind
from onex_platform.engines.kafka.clients import end_positions, open_admin, read_to_end
from onex_platform.engines.kafka.topic_admin import delete
from onex_platform.governance.provision import create_topics
from onex_platform.health.canaries.following import follow
from onex_platform.health.canaries.probe_reader import PROBES, Probes, probe
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform.topics.grammar import StreamName
from onex_platform_tests.support.events import at
from onex_platform_tests.support.forked_programs import run_program
from onex_platform_tests.support.met_topics import make_topics, topics_for_a_while

ERRORS = load_catalogue().for_kind(EnumEventKind.ERROR_DETECTED).topic
RETRY = StreamName("platform", "rty", "canary-probe", 1)
DEAD = StreamName("platform", "dlt", "canary-probe", 1)
PERIOD = timedelta(seconds=60)
# A look that dies where it was armed to.
_CHILD = """
import sys
from datetime import datetime
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.context import open_platform
from onex_platform.health.canaries.probe_reader import probe
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
faults.arm(sys.argv[1])
with open_platform(load_settings(), load_catalogue()) as platform:
    probe(platform, load_whole_catalogue(), datetime.fromisoformat(sys.argv[2]))
"""


def test_two_probes_are_due_in_a_period_and_one_that_is_not_read_in_it_is_told() -> None:
    assert Probes(None, None).is_due(at(0), PERIOD)
    assert not Probes(at(0), None).is_due(at(29), PERIOD)
    assert Probes(at(0), None).is_due(at(30), PERIOD)
    assert not Probes(at(0), None).stands_still(at(9999), PERIOD)
    assert not Probes(at(30), at(0)).stands_still(at(59), PERIOD)
    assert Probes(at(30), at(0)).stands_still(at(60), PERIOD)


@pytest.fixture
def platform(store_settings: Settings) -> Iterator[PlatformContext]:
    create_topics(store_settings, load_catalogue())
    canary = store_settings.canary.model_copy(update={"period_seconds": PERIOD.total_seconds()})
    settings = store_settings.model_copy(update={"canary": canary})
    with (
        topics_for_a_while(settings, [PROBES, RETRY, DEAD]),
        open_platform(settings, load_catalogue()) as opened,
    ):
        yield opened


def killed_at(platform: PlatformContext, moment: str, now: datetime) -> None:
    variables = address_variables(platform.settings)
    assert run_program(_CHILD, moment, now.isoformat(), variables=variables) == -signal.SIGKILL


@pytest.mark.servers
@pytest.mark.parametrize(
    "moment",
    ["before:canaries.probe", "before:canaries.note_probe", "after:canaries.note_read"],
)
def test_a_look_that_is_killed_is_taken_up_by_the_next(
    platform: PlatformContext, moment: str
) -> None:
    now = datetime.now(UTC)
    killed_at(platform, moment, now)
    assert probe(platform, load_whole_catalogue(), now) == Probes(now, None)


@pytest.mark.servers
def test_a_reader_that_stands_still_is_told_once_and_once_when_it_reads_on(
    platform: PlatformContext,
) -> None:
    settings, catalogue, now = platform.settings, load_whole_catalogue(), datetime.now(UTC)
    before = end_positions(settings, [ERRORS])

    def told() -> list[dict[str, Any]]:
        read = [json.loads(r.value() or b"") for r in read_to_end(settings, [ERRORS], before)]
        payloads = [event["payload"] for event in read]
        ours = [one for one in payloads if one.get("operation") == "follow_canaries"]
        named = [one for one in ours if one["context"]["trouble"].startswith("reader ")]
        return sorted(named, key=itemgetter("error_code"))

    killed_at(platform, "before:canaries.note_read", now)
    [retry] = make_topics(settings, [RETRY])
    with open_admin(settings) as admin:
        delete(admin, retry)
    for seconds in (10, 60, 61):
        follow(platform, catalogue, now + timedelta(seconds=seconds))
    [still] = told()
    assert still["error_code"] == "CANARY_STOPPED"
    assert still["context"]["seconds"] == 60
    make_topics(settings, [RETRY])
    for seconds in (62, 63):
        report = follow(platform, catalogue, now + timedelta(seconds=seconds))
    assert report.probes.waiting_since is None
    [over, _] = told()
    assert (over["error_code"], over["severity"]) == ("CANARY_RECOVERED", "info")

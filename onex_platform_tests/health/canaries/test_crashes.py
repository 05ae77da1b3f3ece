"""Killed before or after any effect, the canaries are taken up by the next look: nothing is told
twice as two, and at worst one sample more is sent."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from onex_platform.base.settings import Settings, address_variables
from onex_platform.context import open_platform
from onex_platform.domain.events import EnumEventKind
from onex_platform.domain.headers import is_sample
from onex_platform.engines.kafka.clients import end_positions, read_to_end
from onex_platform.engines.kafka.group_offsets import commit_for, end_offsets
from onex_platform.governance.provision import create_topics
from onex_platform.health.canaries.following import follow
from onex_platform.health.canaries.node_life import lives
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
from onex_platform_tests.support.forked_programs import run_program

pytestmark = pytest.mark.servers

Kind = EnumEventKind
BREAKERS = load_catalogue().for_kind(Kind.BREAKER_STATE_CHANGED).topic
ERRORS = load_catalogue().for_kind(Kind.ERROR_DETECTED).topic
NODES = load_catalogue().for_kind(Kind.NODE_INTROSPECTION).topic
PERIOD = 60

# A process that dies where it was armed to.
_CHILD = """
import sys
from datetime import datetime
from onex_platform.base import faults
from onex_platform.base.settings import load_settings
from onex_platform.context import open_platform
from onex_platform.health.canaries.following import follow
from onex_platform.topics.catalogue import load_catalogue, load_whole_catalogue
point, now = sys.argv[1], datetime.fromisoformat(sys.argv[2])
faults.arm(point)
with open_platform(load_settings(), load_catalogue()) as platform:
    follow(platform, load_whole_catalogue(), now)
"""


# With the seconds at which the look is killed: what is wrong is told after a period.
@pytest.mark.parametrize(
    ("point", "seconds"),
    [
        ("after:canaries.begin", 0),
        ("after:canaries.say", 0),
        ("after:canaries.note", 0),
        ("after:canaries.sample", 0),
        ("after:canaries.note_sample", 0),
        ("before:canaries.note_groups", 0),
        ("after:canaries.note_beats", 0),
        ("before:canaries.alert", PERIOD),
        ("after:canaries.alert", PERIOD),
        ("after:canaries.mark_told", PERIOD),
    ],
)
def test_a_look_killed_at_any_effect_is_taken_up_by_the_next(
    store_settings: Settings, point: str, seconds: int
) -> None:
    canary = store_settings.canary.model_copy(update={"period_seconds": PERIOD})
    settings = store_settings.model_copy(update={"canary": canary})
    variables = address_variables(settings) | {"ONEX_CANARY_PERIOD_SECONDS": str(PERIOD)}
    catalogue, began = load_whole_catalogue(), datetime.now(UTC)
    create_topics(settings, load_catalogue())
    topics = [BREAKERS, ERRORS, NODES]
    before = end_positions(settings, topics)
    with open_platform(settings, load_catalogue()) as platform:
        admin, group = platform.kafka.admin(), f"observability-{uuid4()}"
        commit_for(admin, group, end_offsets(admin, BREAKERS))
        if seconds:
            follow(platform, catalogue, began)
        killed_at = began + timedelta(seconds=seconds)
        ended = run_program(_CHILD, point, killed_at.isoformat(), variables=variables)
        assert ended == -signal.SIGKILL
        for later in (seconds, PERIOD, PERIOD + 1):
            follow(platform, catalogue, began + timedelta(seconds=later))
        with platform.database.transaction() as cursor:
            found = list(lives(cursor, platform.domain, 10))
    assert [life.stopped_at for life in found] == [None, "ack_requested"]
    records = list(read_to_end(settings, topics, before))
    said = {record.value() for record in records if record.topic() == NODES}
    ids = {json.loads(value or b"")["event_id"] for value in said}
    assert len(ids) == len(found)
    # One at the beginning and one after a period; a sample more where its note was lost.
    samples = [r for r in records if r.topic() == BREAKERS and is_sample(r.headers())]
    assert len(samples) == (3 if point == "after:canaries.sample" else 2)
    told = [
        json.loads(record.value() or b"")
        for record in records
        if record.topic() == ERRORS and not is_sample(record.headers())
    ]
    canaries = [one for one in told if one["payload"].get("operation") == "follow_canaries"]
    ours = [one for one in canaries if one["payload"]["context"].get("group", group) == group]
    twice = 2 if point == "after:canaries.alert" else 1
    assert len(ours) == 2 * twice
    assert len({one["event_id"] for one in ours}) == 2

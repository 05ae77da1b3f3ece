"""Where nodes speak follows how far topics have moved."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onex_platform.domain.events import EVENT_TYPE_PREFIX, EnumEventKind
from onex_platform.simulate.fleet import Fleet
from onex_platform.simulate.profiles import PROFILES
from onex_platform.simulate.routes import routes_of
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform_tests.support.contracts import with_own_topics
from onex_platform_tests.support.moving_topics import intent
from onex_platform_tests.support.played_records import STORMY

_BEAT = EnumEventKind.NODE_HEARTBEAT


@pytest.mark.parametrize("phase", list(Phase))
def test_nodes_speak_on_a_legacy_name_until_it_is_left(phase: Phase) -> None:
    whole = load_catalogue()
    moved = whole.at(dict.fromkeys((old.topic for old in whole.legacy()), phase))
    profile = PROFILES["calm"].changed({"legacy_topics": 0.5, "both_topics": 0.5})
    plan = replace(STORMY, profile=profile, max_events=500)
    played = list(Fleet(plan, routes_of(moved)))
    assert {record.legacy for record in played} == ({False} if phase.has_moved else {False, True})
    assert {record.topic for record in played} <= {contract.topic for contract in moved}
    types = [json.loads(record.value or b"")["event_type"] for record in played]
    assert phase.has_moved == all(one.startswith(EVENT_TYPE_PREFIX) for one in types)


@pytest.mark.parametrize("phase", list(Phase))
def test_nodes_speak_in_the_version_that_a_topic_has_moved_to(phase: Phase) -> None:
    own = with_own_topics(load_catalogue(), _BEAT)
    old = own.for_kind(_BEAT)
    new = old.model_copy(update={"topic": f"{old.topic}1"})
    lift, back = {"rename": {"uptime_seconds": "up"}}, {"rename": {"up": "uptime_seconds"}}
    moves = {old.topic: intent(new.topic, lift=lift, back=back)}
    catalogue = Catalogue([*own, new], moves).at({old.topic: phase})
    route = routes_of(catalogue)[_BEAT, False]
    assert route.topic == (new if phase.has_moved else old).topic
    spoken = json.loads(route.spoken(b'{"payload": {"uptime_seconds": 1}}'))
    assert ("up" in spoken["payload"]) == phase.has_moved

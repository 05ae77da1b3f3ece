"""Intents of moves: what is refused, what each phase publishes, and how values are lifted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from onex_platform.base.errors import ConfigurationError
from onex_platform.domain.events import EnumEventKind
from onex_platform.topics.catalogue import Catalogue, load_catalogue
from onex_platform.topics.migration_intent import EnumMigrationPhase as Phase
from onex_platform.topics.migration_intent import Lift, MigrationIntent
from onex_platform_tests.support.contracts import event, legacy
from onex_platform_tests.support.moving_topics import BACK, LIFT, intent

_KIND = EnumEventKind.NODE_HEARTBEAT
_OLD, _V1, _V2, _V3 = "node.heartbeat", *(f"onex.node.heartbeat.published.v{n}" for n in (1, 2, 3))
_CHAIN = Catalogue(
    [event(topic=_V1), event(topic=_V2), event(topic=_V3), legacy()],
    {_OLD: intent(_V1), _V1: intent(_V2, lift=LIFT, back=BACK), _V2: intent(_V3)},
)


def _published(**phases: Phase) -> list[str]:
    names = {"old": _OLD, "v1": _V1, "v2": _V2}
    moved = _CHAIN.at({names[name]: phase for name, phase in phases.items()})
    return [outlet.topic for outlet in moved.outlets(_KIND)]


def test_what_is_published_follows_the_phase() -> None:
    assert _published() == [_V1]
    assert _published(v1=Phase.ASSESS) == [_V1]
    assert _published(v1=Phase.DUAL) == _published(v1=Phase.MOVE) == [_V1, _V2]
    assert _published(v1=Phase.FREEZE) == _published(v1=Phase.RETIRED) == [_V2]
    assert _published(v1=Phase.RETIRED, v2=Phase.DUAL) == [_V2, _V3]
    assert _published(v1=Phase.RETIRED, v2=Phase.FREEZE) == [_V3]
    assert _published(v2=Phase.DUAL) == [_V1]  # nothing has come to v2 yet


def test_a_legacy_name_is_written_while_both_sides_of_its_move_are() -> None:
    assert _published(old=Phase.ASSESS) == [_V1]
    assert _published(old=Phase.DUAL) == _published(old=Phase.MOVE) == [_V1, _OLD]
    assert _published(old=Phase.FREEZE) == _published(old=Phase.RETIRED) == [_V1]


def test_a_retired_topic_is_neither_listed_nor_read() -> None:
    moved = _CHAIN.at({_OLD: Phase.RETIRED})
    assert _OLD not in {contract.topic for contract in moved}
    assert len(moved) == len(_CHAIN) - 1
    assert _OLD not in {contract.topic for contract in moved.registration_inputs()}
    assert _OLD in {contract.topic for contract in _CHAIN.registration_inputs()}


def test_legacy_nodes_hear_introspection_requests_once_their_move_has_begun() -> None:
    catalogue, kind = load_catalogue(), EnumEventKind.INTROSPECTION_REQUESTED
    [old] = [c.topic for c in catalogue.legacy() if c.event_kind is kind]
    assert catalogue.intents[old].to == catalogue.for_kind(kind).topic
    topics = [outlet.topic for outlet in catalogue.at({old: Phase.DUAL}).outlets(kind)]
    assert topics == [catalogue.for_kind(kind).topic, old]


@pytest.mark.parametrize(
    ("source", "fields", "sentence"),
    [
        (_V1, {"to": "onex.node.heartbeat.published.v9"}, "there is no such contract"),
        (_V2, {"to": _V1}, "to a later version"),
        (_OLD, {"to": _V2}, "a legacy name moves to its twin"),
        (_V1, {"to": _V2, "lift": LIFT}, "back is missing"),
        (_V1, {"to": _V2, "window": "PT2H"}, "keeps records for 1:00:00"),
        (_V1, {"to": _V2, "groups": {"a": "a-v2"}}, "called <service>-onex-v2"),
        (_V1, {"to": _V2, "groups": {"a": "a-onex-v1"}}, "called <service>-onex-v2"),
        (_V1, {"to": _V2, "groups": {"a": "a-onex-v2"}, "left_behind": ["a"]}, "has a successor"),
        (_V1, {"to": _V2, "groups": {"a": "a-onex-v2"}, "complete": "target"}, "complete='target'"),
    ],
)
def test_a_move_that_leads_nowhere_is_refused(
    source: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Catalogue(list(_CHAIN), {source: intent(**fields)})


_RUN, _RUN2, _ELSE = (f"validator.evt.{name}" for name in ("run.v1", "run.v2", "other.v2"))
_WAIT, _WAIT2 = (f"validator.rty.run.v{n}" for n in (1, 2))
_CDC, _CDC2 = (f"registry.cdc.assets.v{n}" for n in (1, 2))
_KEPT = {
    "cleanup_policy": "compact",
    "retention": "unlimited",
    "compaction": {
        "min_lag": "PT1M",
        "max_lag": "PT5M",
        "segment_size": "1MiB",
        "tombstones_stay": "P1D",
    },
}


@pytest.mark.parametrize(
    ("pair", "fields", "sentence"),
    [
        ((_RUN, _RUN2), {}, None),
        ((_RUN, _RUN2), {"lift": {"function": "json:loads"}, "back": LIFT}, "back is a table"),
        ((_RUN2, _RUN), {}, "to a later version"),
        ((_RUN, _ELSE), {}, "to a later version"),
        ((_RUN, _V2), {}, "to a later version"),
        ((_WAIT, _WAIT2), {}, "it goes when its source does"),
        ((_CDC, _CDC2), {}, "is compacted"),
    ],
)
def test_a_topic_of_the_namespace_moves_to_a_later_version(
    pair: tuple[str, str], fields: dict[str, Any], sentence: str | None
) -> None:
    kept = _KEPT if pair[0] == _CDC else {}
    contracts = [event(topic=topic, registration_input=False, **kept) for topic in pair]
    moves = {pair[0]: intent(pair[1], **fields)}
    if sentence is None:
        assert Catalogue(contracts, moves).intents == moves
        return
    with pytest.raises(ConfigurationError, match=sentence):
        Catalogue(contracts, moves)


def test_of_the_namespace_each_tenants_topic_is_published_by_its_own_phase() -> None:
    contracts = [event(topic=topic, registration_input=False) for topic in (_RUN, _RUN2)]
    catalogue = Catalogue(contracts, {_RUN: intent(_RUN2)})
    moved = catalogue.at({f"dev.acme.{_RUN}": Phase.DUAL, f"dev.globex.{_RUN}": Phase.RETIRED})

    def written(tenant: str) -> list[str]:
        return [o.topic for o in moved.written(_RUN, lambda topic: f"dev.{tenant}.{topic}")]

    assert written("omnibase") == [_RUN]
    assert written("acme") == [_RUN, _RUN2]
    assert written("globex") == [_RUN2]
    assert _RUN in {contract.topic for contract in moved}  # the others' topics are there


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"signed": True}, "signed for"), ({"encryption": "envelope"}, "encrypted for")],
)
@pytest.mark.parametrize("bound", [_V1, _V2])
def test_records_that_are_bound_to_their_topic_do_not_move(
    bound: str, fields: dict[str, Any], sentence: str
) -> None:
    contracts = [event(topic=topic, **(fields if topic == bound else {})) for topic in (_V1, _V2)]
    with pytest.raises(ConfigurationError, match=f"{bound} are {sentence}"):
        Catalogue(contracts, {_V1: intent(_V2)})


def test_a_window_and_a_target_must_be_said() -> None:
    with pytest.raises(ValidationError, match="window"):
        MigrationIntent.model_validate({"to": _V2})
    with pytest.raises(ValidationError, match="either function or what happens to fields"):
        Lift.model_validate({})
    with pytest.raises(ValidationError, match="either function or what happens to fields"):
        Lift.model_validate({"drop": ["x"], "function": "json:dumps"})


_FIELDS = st.dictionaries(st.sampled_from(["mood", "a", "b"]), st.integers(), max_size=3)


@given(_FIELDS, st.booleans())
def test_what_is_lifted_finds_its_way_back(fields: dict[str, int], wrapped: bool) -> None:
    document = {"event_id": "e", "schema_version": 1, "payload": fields} if wrapped else fields
    value = json.dumps(document).encode()
    lifted = json.loads(Lift.model_validate(LIFT).apply(value))
    inner = lifted["payload"] if wrapped else lifted
    assert "mood" not in inner
    assert inner["unit"] == "s"
    assert inner.get("health") == fields.get("mood")
    back = json.loads(Lift.model_validate(BACK).apply(json.dumps(lifted).encode()))
    assert (back["payload"] if wrapped else {**back, "schema_version": 1}) == (
        fields if wrapped else {**fields, "schema_version": 1}
    )


@given(st.binary(max_size=20))
def test_what_is_no_json_object_is_carried_as_it_is(value: bytes) -> None:
    try:
        is_object = isinstance(json.loads(value), dict)
    except ValueError:
        is_object = False
    if not is_object:
        assert Lift.model_validate(LIFT).apply(value) == value


def upper(value: bytes) -> bytes:
    return value.upper()


def test_a_function_lifts_what_no_table_can() -> None:
    lift = Lift(function=f"{__name__}:upper")
    assert lift.apply(b"avro") == b"AVRO"
    with pytest.raises(ConfigurationError, match="function='nowhere:at_all'"):
        Lift(function="nowhere:at_all").apply(b"")

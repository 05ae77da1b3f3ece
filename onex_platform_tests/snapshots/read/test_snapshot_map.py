"""The map that a snapshot topic describes: which record counts, and who is found."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.payloads import ModelNodeCapabilities
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType, EnumRegistrationState
from onex_platform.snapshots.read.snapshot_map import (
    Draft,
    SnapshotMap,
    Trait,
)
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import snapshot

ACTIVE = Trait("state", "active")

# An entity's number, a version (None: a tombstone without one), and whether it is a tombstone.
Step = tuple[int, int | None, bool]

_versions = st.integers(1, 6)
_steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), _versions, st.just(False)),
        st.tuples(st.integers(0, 3), _versions | st.none(), st.just(True)),
    ),
    max_size=40,
)
_states = list(EnumRegistrationState)
_types = [*EnumNodeType, None]


def _shown(number: int, version: int) -> ModelRegistrationSnapshot:
    """What the entity was in this version: repeats of a version are equal, as in the topic."""
    flags = {"flag": version % 2 == 0, "active": True}
    operations = ("read", f"work-{(number + version) % 3}")
    return snapshot(
        number,
        version,
        current_state=_states[(number + version) % len(_states)],
        node_type=_types[(number * version) % len(_types)],
        capabilities=ModelNodeCapabilities.model_validate(
            {"supported_operations": operations, **flags}
        ),
    )


def _folded(base: SnapshotMap, steps: Iterable[Step]) -> SnapshotMap:
    draft = Draft(base, REGISTRATION_DOMAIN)
    for number, version, is_tombstone in steps:
        key = str(number_id(number)).encode()
        if is_tombstone:
            draft.bury(key, version)
        else:
            assert version is not None
            draft.put(key, _shown(number, version).model_dump_json().encode())
    return draft.finished()


def _plain_fold(steps: Iterable[Step]) -> dict[int, ModelRegistrationSnapshot]:
    """The same with a dictionary: entity -> version and snapshot, None where one was removed."""
    known: dict[int, tuple[int, ModelRegistrationSnapshot | None]] = {}
    for number, version, is_tombstone in steps:
        if version is None:
            known.pop(number, None)
            continue
        before, _ = known.get(number, (0, None))
        if is_tombstone and version >= before:
            known[number] = (version, None)
        elif not is_tombstone and version > before:
            known[number] = (version, _shown(number, version))
    return {number: shown for number, (_, shown) in known.items() if shown is not None}


@given(_steps, _steps, st.booleans())
def test_the_map_is_a_plain_fold_of_the_records_however_they_are_cut(
    early: list[Step], late: list[Step], asked_between: bool
) -> None:
    first = _folded(SnapshotMap(), early)
    if asked_between:  # what was asked of one map is kept up by the next
        _answers(first)
    last = _folded(first, late)
    expected = _plain_fold(early + late)
    assert {shown.entity_id: shown for shown in last.all()} == {
        number_id(number): shown for number, shown in expected.items()
    }
    assert len(last) == len(expected)
    assert _answers(last) == _expected_answers(expected.values())
    assert {s.entity_id for s in first.all()} == {
        number_id(number) for number in _plain_fold(early)
    }, "a map that was shown has changed"


@given(_steps)
def test_records_with_versions_make_the_same_map_in_any_order(steps: list[Step]) -> None:
    versioned = [step for step in steps if step[1] is not None]
    one, other = _folded(SnapshotMap(), versioned), _folded(SnapshotMap(), reversed(versioned))
    assert set(one.all()) == set(other.all())
    assert one.buried == other.buried


def _answers(asked: SnapshotMap) -> dict[Trait, set[Any]]:
    return {trait: {s.entity_id for s in asked.having(trait)} for trait in _traits()}


def _expected_answers(shown: Iterable[ModelRegistrationSnapshot]) -> dict[Trait, set[Any]]:
    answers: dict[Trait, set[Any]] = {trait: set() for trait in _traits()}
    for one in shown:
        answers[Trait("state", one.current_state)].add(one.entity_id)
        if one.node_type is not None:
            answers[Trait("node_type", one.node_type)].add(one.entity_id)
        assert one.capabilities is not None
        for name in one.capabilities.names():
            answers[Trait("capability", name)].add(one.entity_id)
    return answers


def _traits() -> list[Trait]:
    names = ("flag", "active", "read", "work-0", "work-1", "work-2", "nothing")
    return [
        *(Trait("state", state) for state in EnumRegistrationState),
        *(Trait("node_type", kind) for kind in EnumNodeType),
        *(Trait("capability", name) for name in names),
    ]


def test_what_was_removed_is_remembered_by_the_map_that_a_reload_begins_with() -> None:
    removed = _folded(SnapshotMap(), [(1, 1, False), (1, 5, True), (2, 1, False)])
    begun = removed.graves()
    assert len(begun) == 0
    assert len(_folded(begun, [(1, 4, False)])) == 0
    assert len(_folded(begun, [(1, 6, False)])) == 1


def test_a_batch_that_changes_nothing_leaves_the_map_as_it_is() -> None:
    before = _folded(SnapshotMap(), [(1, 3, False)])
    assert _folded(before, [(1, 3, False), (1, 2, False), (1, 2, True)]) is before


def test_capabilities_are_found_under_every_spelling_of_their_text() -> None:
    names = ["größe", 'a "quoted" one', "slash/ed", "back\\slash", "plain"]
    shown = snapshot(1, capabilities=ModelNodeCapabilities(protocols=tuple(names)))
    plain = shown.model_dump_json().encode()
    escaped = json.dumps(json.loads(plain)).replace("/", "\\/").encode()
    for value in (plain, escaped):
        draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
        assert draft.put(shown.to_kafka_key().encode(), value)
        found = draft.finished()
        for name in names:
            assert found.having(Trait("capability", name)) == (shown,), (name, value)
        assert found.having(Trait("capability", "protocols")) == ()


def test_a_capability_that_is_called_like_a_state_is_not_mixed_up_with_it() -> None:
    shown = snapshot(1, current_state="rejected", capabilities={"active": True})
    draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
    draft.put(shown.to_kafka_key().encode(), shown.model_dump_json().encode())
    found = draft.finished()
    assert found.having(ACTIVE) == ()
    assert found.having(Trait("capability", "active")) == (shown,)
    assert found.having(ACTIVE) == ()


def test_asking_for_many_names_does_not_fill_the_memory() -> None:
    asked = _folded(SnapshotMap(), [(1, 1, False)])
    for number in range(1000):
        assert asked.having(Trait("capability", f"unknown-{number}")) == ()
    assert 0 < len(asked.kept) <= 100


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_while_many_models_are_made(enabled: bool) -> None:
    many = _folded(SnapshotMap(), [(number, 1, False) for number in range(3000)])
    collections: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    gc.callbacks.append(note)
    try:
        assert len(many.all()) == 3000
        assert gc.isenabled() is enabled
    finally:
        gc.callbacks.remove(note)
        (gc.enable if before else gc.disable)()
    assert collections.count("start") <= 2  # one is due as soon as it goes on

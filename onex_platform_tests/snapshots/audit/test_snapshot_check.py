"""What is no snapshot: refused when it is read, or at the latest when somebody asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.domain.states import EnumNodeType
from onex_platform.snapshots.read.snapshot_map import (
    Draft,
    MalformedSnapshotError,
    SnapshotMap,
    Trait,
)
from onex_platform_tests.support.events import number_id
from onex_platform_tests.support.snapshot_records import snapshot

GOOD = snapshot(1, 3)
KEY = GOOD.to_kafka_key().encode()


def _changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(GOOD.model_dump_json()) | fields).encode()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (KEY, b"", "Invalid JSON"),
        (KEY, b"null", "the value"),
        (KEY, b"[]", "the value"),
        (KEY, GOOD.model_dump_json().encode()[:-1], "Invalid JSON"),
        (KEY, GOOD.model_dump_json().encode() + b"}", "Invalid JSON"),
        (KEY, _changed(current_state="asleep"), "current_state"),
        (KEY, _changed(node_type="wizard"), "node_type"),
        (KEY, _changed(snapshot_version=0), "snapshot_version"),
        (KEY, _changed(snapshot_version=None), "snapshot_version"),
        (KEY, _changed(domain="other"), "domain is not 'registration'"),
        (KEY, _changed(entity_id=str(number_id(2))), "entity_id is not the key"),
        (str(number_id(2)).encode(), _changed(), "entity_id is not the key"),
        (None, _changed(), "the key is no UUID"),
        (b"", _changed(), "the key is no UUID"),
        (KEY.upper(), _changed(entity_id=KEY.upper().decode()), "the key is no UUID"),
        (KEY.replace(b"-", b""), _changed(), "the key is no UUID"),
        (b"x" + KEY[1:], _changed(), "the key is no UUID"),
        (KEY[4:8] + KEY[:4] + b"-" + KEY[8:-1], _changed(), "the key is no UUID"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_a_reason_and_changes_nothing(
    key: bytes | None, value: bytes, reason: str
) -> None:
    draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
    with pytest.raises(MalformedSnapshotError) as refused:
        draft.put(key, value)
    assert reason in str(refused.value)
    assert len(draft.finished()) == 0


@pytest.mark.parametrize("key", [None, b"", b"node-1", KEY.upper()])
def test_a_tombstone_of_nobody_is_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedSnapshotError, match="the key is no UUID"):
        Draft(SnapshotMap(), REGISTRATION_DOMAIN).bury(key, 1)


def test_other_spellings_that_the_model_takes_are_taken() -> None:
    spelled = _changed(
        node_type="EFFECT", snapshot_version="3", last_state_change_at=1772366400, unknown=[1]
    )
    draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
    assert draft.put(KEY, spelled)
    assert draft.finished().all() == (ModelRegistrationSnapshot.model_validate_json(spelled),)


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        ["active", "EFFECT", "2026-03-01T12:00:00Z", "2026-03-01t12:00:00.1234567+23:59"]
    ),
)
_documents = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
_ODD_BYTES = (b"\xff", b"\\ud800", b"\\u00e9", "é".encode(), b"[" * 300 + b"]" * 300, b"9" * 5000)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*ModelRegistrationSnapshot.model_fields, "unknown"]),
        _documents,
        max_size=2,
    ),
    st.dictionaries(
        st.sampled_from(["protocols", "supported_operations", "max_concurrent_requests", "flag"]),
        _documents,
        max_size=2,
    ),
    st.sampled_from(_ODD_BYTES) | st.binary(max_size=2),
    st.integers(0, 2000),
)
def test_a_text_is_a_snapshot_if_the_model_says_so_sooner_or_later(
    fields: dict[str, Any], capabilities: dict[str, Any], odd: bytes, place: int
) -> None:
    document = json.dumps(
        json.loads(GOOD.model_dump_json()) | {"capabilities": capabilities} | fields,
        ensure_ascii=False,
    ).encode("utf-8", "surrogatepass")
    for value in (document, document[:place] + odd + document[place:], *_in_a_field(document, odd)):
        expected = _modelled(value)
        draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
        try:
            draft.put(KEY, value)
        except MalformedSnapshotError:
            assert expected is None, value
            continue
        shown = draft.finished()
        assert shown.get(GOOD.entity_id) == expected
        assert shown.all() == ((expected,) if expected else ())
        assert len(shown) == (expected is not None)
        assert len(shown.faulty) == (expected is None)
        if expected is not None:
            assert shown.having(Trait("state", expected.current_state)) == (expected,)
            for kind in EnumNodeType:
                found = shown.having(Trait("node_type", kind))
                assert bool(found) == (expected.node_type is kind)


def _modelled(value: bytes) -> ModelRegistrationSnapshot | None:
    """The snapshot of KEY that the model sees in a text."""
    try:
        model = ModelRegistrationSnapshot.model_validate_json(value)
    except ValidationError:
        return None
    is_ours = model.to_kafka_key().encode() == KEY and model.domain == REGISTRATION_DOMAIN
    return model if is_ours else None


def _faulty(**fields: Any) -> SnapshotMap:
    """A map with a text that only the model finds fault with, and a good one."""
    draft = Draft(SnapshotMap(), REGISTRATION_DOMAIN)
    draft.put(KEY, _changed(snapshot_created_at="yesterday", **fields))
    draft.put(snapshot(2).to_kafka_key().encode(), snapshot(2).model_dump_json().encode())
    return draft.finished()


def test_what_only_the_model_finds_fault_with_is_counted_when_it_is_found() -> None:
    for ask in (
        lambda found: found.get(GOOD.entity_id),
        lambda found: found.all(),
        lambda found: found.having(Trait("state", "active")),
        lambda found: found.having(Trait("capability", "read")),
    ):
        found = _faulty(capabilities={"read": True})
        ask(found)
        found.all()
        assert len(found) == 1
        assert "snapshot_created_at" in found.faulty[KEY]
        assert found.all() == found.having(Trait("state", "active")) == (snapshot(2),)
        assert found.having(Trait("capability", "read")) == ()


def test_a_newer_record_takes_the_place_of_a_faulty_one() -> None:
    found = _faulty()
    assert len(found.all()) == 1
    later = Draft(found, REGISTRATION_DOMAIN)
    later.put(KEY, snapshot(1, 4).model_dump_json().encode())
    assert len(later.finished()) == 2
    assert later.finished().faulty == {}
    gone = Draft(found, REGISTRATION_DOMAIN)
    gone.bury(KEY, None)
    assert len(gone.finished()) == 1
    assert gone.finished().faulty == {}
    other = Draft(found, REGISTRATION_DOMAIN)
    other.bury(snapshot(2).to_kafka_key().encode(), None)
    assert len(other.finished()) == 0
    assert len(other.finished().faulty) == 1


def _in_a_field(document: bytes, odd: bytes) -> list[bytes]:
    """The odd bytes as a number or list, and inside a text, of a field that nobody asked for."""
    return [
        document[:-1] + b', "extra": ' + odd + b"}",
        document[:-1] + b', "extra": "' + odd + b'"}',
        document.replace(b'"capabilities": {', b'"capabilities": {"extra": ' + odd + b", ", 1),
    ]

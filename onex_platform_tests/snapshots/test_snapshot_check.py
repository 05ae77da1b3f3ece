"""What is no snapshot: told apart when it is read, by a quick check that agrees with the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from onex_platform.domain.identity import REGISTRATION_DOMAIN
from onex_platform.domain.projection import ModelRegistrationSnapshot
from onex_platform.snapshots import snapshot_map
from onex_platform.snapshots.snapshot_map import Draft, MalformedSnapshotError, SnapshotMap
from onex_platform_tests.domain.builders import number_id
from onex_platform_tests.snapshots.records import snapshot

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
        (KEY, _changed(last_state_change_at="2026-03-01T12:00:00"), "last_state_change_at"),
        (KEY, _changed(snapshot_created_at="yesterday"), "snapshot_created_at"),
        (KEY, _changed(capabilities={"protocols": "one"}), "capabilities.protocols"),
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
def test_whatever_passes_the_quick_check_is_a_snapshot_to_the_model(
    fields: dict[str, Any], capabilities: dict[str, Any], odd: bytes, place: int
) -> None:
    document = json.dumps(
        json.loads(GOOD.model_dump_json()) | {"capabilities": capabilities} | fields,
        ensure_ascii=False,
    ).encode("utf-8", "surrogatepass")
    for value in (document, document[:place] + odd + document[place:], *_in_a_field(document, odd)):
        found = snapshot_map._checked(value)
        if found is None:
            continue
        try:
            model = ModelRegistrationSnapshot.model_validate_json(value)
        except ValidationError as error:
            if str(found.entity_id) == KEY.decode():  # else the key refuses it
                pytest.fail(f"{value!r} passed: {error}")
            continue
        assert (found.snapshot_version, found.current_state, found.node_type, found.domain) == (
            model.snapshot_version,
            model.current_state,
            model.node_type,
            model.domain,
        )


def _in_a_field(document: bytes, odd: bytes) -> list[bytes]:
    """The odd bytes as a number or list, and inside a text, of a field that nobody asked for."""
    return [
        document[:-1] + b', "extra": ' + odd + b"}",
        document[:-1] + b', "extra": "' + odd + b'"}',
        document.replace(b'"capabilities": {', b'"capabilities": {"extra": ' + odd + b", ", 1),
    ]

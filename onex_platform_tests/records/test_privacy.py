"""Private fields are sealed one by one, open only in their place, and not without their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import REDACTED
from onex_platform.domain.headers import PiiLevel
from onex_platform.records.key_folder import TENANTS, KeyFolder
from onex_platform.records.privacy import (
    EnumAudience,
    FieldCipher,
    Place,
    UnreadableFieldError,
    parse_sealed,
    redacted,
)
from onex_platform_tests.support.key_folders import filled, with_keys

LEVELS: dict[str, PiiLevel] = {"payload.email": "high", "payload.people.name": "high"}
EVENT = {"event_id": "e-1", "payload": {"email": "ada@example.org", "size": 3}}

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    chosen = with_keys(tmp_path_factory.mktemp("privacy"))
    filled(chosen, tenants=("acme", "other"))
    return chosen


def sealed(chosen: Settings, event: dict[str, Any] = EVENT, tenant: str = "acme") -> Any:
    return FieldCipher(KeyFolder(chosen)).protected(event, LEVELS, "topic", tenant)


def opened(chosen: Settings, value: Any, place: Place | None = None) -> Any:
    return FieldCipher(KeyFolder(chosen)).opened(value, place)


@given(
    email=_VALUES.filter(lambda v: not isinstance(v, list)),
    people=st.lists(st.fixed_dictionaries({"name": _VALUES, "n": st.integers()})),
)
@settings(max_examples=100, deadline=None)
def test_what_is_sealed_is_read_again_and_nothing_else_is_touched(
    known: Settings, email: Any, people: list[Any]
) -> None:
    event = {"event_id": "e", "payload": {"email": email, "people": people, "size": 1}}
    protected = sealed(known, event)
    assert FieldCipher(KeyFolder(known)).revealed(protected) == (event, [])
    assert sealed(known, protected) == protected
    assert protected["payload"]["size"] == 1
    assert [person["n"] for person in protected["payload"]["people"]] == [p["n"] for p in people]
    assert email is None or parse_sealed(protected["payload"]["email"]) is not None


def test_items_of_lists_are_sealed_one_by_one(known: Settings) -> None:
    event = {"event_id": "e", "payload": {"email": ["Ada", ["Bob"]]}}
    [first, [second]] = sealed(known, event)["payload"]["email"]
    assert parse_sealed(first) is not None
    assert parse_sealed(second) is not None


@pytest.mark.parametrize("ending", ["a:b:c:d:é", "a:b:c:d:no base64", "a:b", ""])
def test_a_text_that_only_begins_like_a_sealed_one_is_sealed_like_any_other(
    known: Settings, ending: str
) -> None:
    text = f"sealed:v1:{ending}"
    event = {"event_id": "e", "payload": {"email": text, "size": text}}
    protected = sealed(known, event)
    assert parse_sealed(protected["payload"]["email"]) is not None
    assert FieldCipher(KeyFolder(known)).revealed(protected) == (event, [])


def test_the_same_value_never_looks_the_same(known: Settings) -> None:
    assert sealed(known)["payload"]["email"] != sealed(known)["payload"]["email"]


@pytest.mark.parametrize("name", ["tenant", "topic", "event_id", "field"])
def test_a_value_opens_in_its_own_place_only(known: Settings, name: str) -> None:
    text = sealed(known)["payload"]["email"]
    place = Place("acme", "topic", "e-1", "payload.email")
    assert opened(known, text, place) == "ada@example.org"
    moved = place._replace(**{name: "other"})
    with pytest.raises(UnreadableFieldError, match="was sealed for"):
        opened(known, text, moved)
    # Nor does it help to write the new place into the text.
    found = parse_sealed(text)
    assert found is not None
    with pytest.raises(UnreadableFieldError):
        opened(known, str(found._replace(place=moved)), moved)


def test_rotation_rewrites_nothing(tmp_path: Path) -> None:
    chosen = with_keys(tmp_path)
    filled(chosen, tenants=("acme",))
    cipher = FieldCipher(KeyFolder(chosen))
    before = cipher.protected(EVENT, LEVELS, "topic", "acme")["payload"]["email"]
    new = KeyFolder(chosen).rotate(TENANTS, "acme").primary
    after = cipher.protected(EVENT, LEVELS, "topic", "acme")["payload"]["email"]
    assert cipher.opened(before) == cipher.opened(after) == "ada@example.org"
    found = parse_sealed(after)
    assert found is not None
    assert found.key_id == new


def test_once_its_key_is_destroyed_a_value_stays_as_it_is_and_names_the_key(tmp_path: Path) -> None:
    chosen = with_keys(tmp_path)
    filled(chosen, tenants=("acme", "other"))
    cipher = FieldCipher(KeyFolder(chosen))
    mine = cipher.protected(EVENT, LEVELS, "topic", "acme")
    yours = cipher.protected(EVENT, LEVELS, "topic", "other")
    [key_id] = KeyFolder(chosen).destroy("acme").keys
    document, reasons = cipher.revealed(mine)
    assert document == mine
    assert [str(key_id) in reason for reason in reasons] == [True]
    assert cipher.revealed(yours) == (EVENT, [])


def test_a_key_that_was_never_here_is_named(tmp_path: Path, known: Settings) -> None:
    elsewhere = with_keys(tmp_path)
    filled(elsewhere, tenants=("acme",))
    text = sealed(known)["payload"]["email"]
    found = parse_sealed(text)
    assert found is not None
    with pytest.raises(UnreadableFieldError, match=f"key id {found.key_id} of tenant 'acme'"):
        opened(elsewhere, text)


def test_levels_decide_who_sees_a_field() -> None:
    levels: dict[str, PiiLevel] = {"payload.email": "high", "payload.city": "low"}
    event = {"payload": {"email": "ada@example.org", "city": "London", "size": 3}}
    hidden = {"email": REDACTED, "city": REDACTED, "size": 3}
    assert redacted(event, levels, EnumAudience.TELEMETRY) == {"payload": hidden}
    assert redacted(event, levels, EnumAudience.SCREEN) == {"payload": hidden | {"city": "London"}}

"""What a schema calls private is hidden wherever it lies, and nothing else is."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onex_platform.base.settings import Settings
from onex_platform.base.telemetry import REDACTED
from onex_platform.domain.headers import PiiLevel
from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.privacy import EnumAudience, FieldCipher, redacted
from onex_platform.topics.schemas import schema_of
from onex_platform_tests.support.key_folders import filled, with_keys

# A schema is ("leaf", level), ("object", {name: schema}), ("map", schema) or ("list", schema).
_Tree = tuple[str, Any]
# The same few names for fields and entries, and names that look like signs of a path.
_NAMES = ["email", "name", "first"]
_ODD_NAMES = [*_NAMES, "a.b", "*", "%2E"]


def _trees(names: list[str]) -> st.SearchStrategy[_Tree]:
    def larger(inner: st.SearchStrategy[_Tree]) -> st.SearchStrategy[_Tree]:
        objects = st.dictionaries(st.sampled_from(names), inner, min_size=1, max_size=3)
        return (
            st.tuples(st.just("object"), objects)
            | st.tuples(st.just("map"), inner)
            | st.tuples(st.just("list"), inner)
        )

    leaves = st.tuples(st.just("leaf"), st.sampled_from(["none", "low", "high", "high"]))
    inner = st.recursive(leaves, larger, max_leaves=6)
    return st.dictionaries(st.sampled_from(names), inner, min_size=1).map(lambda f: ("object", f))


@st.composite
def _values(draw: st.DrawFn, tree: _Tree) -> tuple[Any, Any]:
    """A value that the schema takes, and the same as a screen may show it."""
    kind, inner = tree
    if kind == "leaf":
        value = draw(st.text("xyz", min_size=3))
        return value, REDACTED if inner == "high" else value
    if kind == "list":
        pairs = draw(st.lists(_values(inner), min_size=1, max_size=2))
        return [value for value, _ in pairs], [shown for _, shown in pairs]
    if kind == "map":
        entries = draw(
            st.dictionaries(st.sampled_from(_ODD_NAMES), _values(inner), min_size=1, max_size=3)
        )
    else:
        absent = draw(st.none() | st.sampled_from(sorted(inner)))
        entries = {name: draw(_values(inner[name])) for name in sorted(inner) if name != absent}
    return (
        {name: value for name, (value, _) in entries.items()},
        {name: shown for name, (_, shown) in entries.items()},
    )


def _json_schema(tree: _Tree) -> dict[str, Any]:
    kind, inner = tree
    if kind == "leaf":
        return {"type": "string", "pii": inner}
    if kind == "list":
        return {"type": "array", "items": _json_schema(inner)}
    if kind == "map":
        return {"type": "object", "additionalProperties": _json_schema(inner)}
    return {"type": "object", "properties": {n: _json_schema(t) for n, t in inner.items()}}


def _avro_schema(tree: _Tree, numbers: count[int]) -> dict[str, Any]:
    kind, inner = tree
    if kind == "leaf":
        return {"type": "string", "pii": inner}
    if kind == "list":
        return {"type": "array", "items": _avro_schema(inner, numbers)}
    if kind == "map":
        return {"type": "map", "values": _avro_schema(inner, numbers)}
    name = f"R{next(numbers)}"
    fields = [{"name": n, "type": _avro_schema(t, numbers)} for n, t in inner.items()]
    return {"type": "record", "name": name, "fields": fields}


def _levels(format: str, document: Any) -> dict[str, PiiLevel]:
    schema = schema_of(format, json.dumps(document))
    schema.parse()
    return {f.path: f.pii for f in schema.fields() if f.pii in ("low", "high")}  # type: ignore[misc]


@pytest.fixture(scope="module")
def cipher(tmp_path_factory: pytest.TempPathFactory) -> FieldCipher:
    chosen: Settings = with_keys(tmp_path_factory.mktemp("paths"))
    filled(chosen, tenants=("acme",))
    return FieldCipher(KeyFolder(chosen))


def _marked(document: Any) -> Any:
    """A document with a mark wherever something is sealed."""
    if isinstance(document, dict):
        return {name: _marked(item) for name, item in document.items()}
    if isinstance(document, list):
        return [_marked(item) for item in document]
    return REDACTED if str(document).startswith("sealed:") else document


@pytest.mark.parametrize("format", ["JSON", "AVRO"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_high_value_is_hidden_and_nothing_else_changes(
    cipher: FieldCipher, format: str, data: st.DataObject
) -> None:
    tree = data.draw(_trees(_ODD_NAMES if format == "JSON" else _NAMES))
    document = _json_schema(tree) if format == "JSON" else _avro_schema(tree, count())
    value, shown = data.draw(_values(tree))
    levels = _levels(format, document)
    assert redacted(value, levels, EnumAudience.SCREEN) == shown
    payload = {f"payload.{path}": level for path, level in levels.items()}
    event = {"event_id": "e-1", "payload": value}
    sealed = cipher.protected(event, payload, "topic", "acme")
    assert _marked(sealed) == {"event_id": "e-1", "payload": shown}
    assert cipher.revealed(sealed) == (event, [])


def test_an_entry_that_is_called_as_the_field_hides_no_other_entry() -> None:
    contact = {"properties": {"email": {"pii": "high"}}}
    levels = _levels("JSON", {"properties": {"contacts": {"additionalProperties": contact}}})
    assert list(levels) == ["contacts.*.email"]
    contacts = {"email": {"email": "ada@x.org"}, "bob": {"email": "bob@x.org"}}
    hidden = redacted({"contacts": contacts}, levels, EnumAudience.SCREEN)
    assert hidden == {"contacts": {name: {"email": REDACTED} for name in contacts}}


def test_an_absent_field_hides_no_deeper_one_of_its_name() -> None:
    event = {"payload": {"owner": {"name": "public"}}}
    assert redacted(event, {"payload.name": "high"}, EnumAudience.SCREEN) == event

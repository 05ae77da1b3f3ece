"""Changes of schemas in three formats, and who can still read whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onex_platform.base.settings import SchemasSettings, load_settings
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.topics.schemas.compatibility import breaks
from onex_platform.topics.schemas.formats import AvroSchema, JsonSchema, ProtobufSchema, Schema


def _avro(*fields: Any) -> AvroSchema:
    return AvroSchema(json.dumps({"type": "record", "name": "Page", "fields": list(fields)}))


def _field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _json(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> JsonSchema:
    return JsonSchema(
        json.dumps({"type": "object", "properties": properties, "required": list(required), **more})
    )


def _proto(*lines: str) -> ProtobufSchema:
    body = "\n".join(f"  {line}" for line in lines)
    return ProtobufSchema(f'syntax = "proto3";\npackage x;\nmessage Page {{\n{body}\n}}\n')


_A, _B = _field("a"), _field("b")
_OPTIONAL = _field("b", ["null", "string"], default=None)
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_CLOSED = {"additionalProperties": False}
_ENUM = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
_WIDER = _ENUM | {"symbols": ["RED", "BLUE", "GREEN"]}

# what changes, old, new, whether new reads old (backward), whether old reads new (forward)
_CHANGES: list[tuple[str, Schema, Schema, bool, bool]] = [
    ("avro: nothing", _avro(_A), _avro(_A), True, True),
    ("avro: field with default added", _avro(_A), _avro(_A, _OPTIONAL), True, True),
    ("avro: field without default added", _avro(_A), _avro(_A, _B), False, True),
    ("avro: field removed", _avro(_A, _B), _avro(_A), True, False),
    ("avro: field with default removed", _avro(_A, _OPTIONAL), _avro(_A), True, True),
    ("avro: int to long", _avro(_field("a", "int")), _avro(_field("a", "long")), True, False),
    ("avro: long to int", _avro(_field("a", "long")), _avro(_field("a", "int")), False, True),
    ("avro: string to long", _avro(_A), _avro(_field("a", "long")), False, False),
    ("avro: string to bytes", _avro(_A), _avro(_field("a", "bytes")), True, True),
    ("avro: union widened", _avro(_A), _avro(_field("a", ["null", "string"])), True, False),
    ("avro: symbol added", _avro(_field("a", _ENUM)), _avro(_field("a", _WIDER)), True, False),
    ("avro: symbol removed", _avro(_field("a", _WIDER)), _avro(_field("a", _ENUM)), False, True),
    ("avro: field renamed", _avro(_A), _avro(_B), False, False),
    ("avro: field renamed with alias", _avro(_A), _avro(_field("b", aliases=["a"])), True, False),
    ("json: nothing", _json({"a": _TEXT}), _json({"a": _TEXT}), True, True),
    (
        "json: optional field added, open",
        _json({"a": _TEXT}),
        _json({"a": _TEXT, "b": _TEXT}),
        False,
        True,
    ),
    (
        "json: optional field added, closed",
        _json({"a": _TEXT}, **_CLOSED),
        _json({"a": _TEXT, "b": _TEXT}, **_CLOSED),
        True,
        False,
    ),
    ("json: field required", _json({"a": _TEXT}), _json({"a": _TEXT}, ("a",)), False, True),
    ("json: field optional", _json({"a": _TEXT}, ("a",)), _json({"a": _TEXT}), True, False),
    ("json: type changed", _json({"a": _TEXT}), _json({"a": _NUMBER}), False, False),
    (
        "json: integer to number",
        _json({"a": _NUMBER}),
        _json({"a": {"type": "number"}}),
        True,
        False,
    ),
    (
        "json: minimum raised",
        _json({"a": {"type": "integer", "minimum": 0}}),
        _json({"a": {"type": "integer", "minimum": 1}}),
        False,
        True,
    ),
    (
        "json: text may be longer",
        _json({"a": {"type": "string", "maxLength": 5}}),
        _json({"a": {"type": "string", "maxLength": 9}}),
        True,
        False,
    ),
    (
        "json: value added to an enumeration",
        _json({"a": {"enum": ["x"]}}),
        _json({"a": {"enum": ["x", "y"]}}),
        True,
        False,
    ),
    ("json: opened", _json({"a": _TEXT}, **_CLOSED), _json({"a": _TEXT}), True, False),
    (
        "json: null allowed",
        _json({"a": _TEXT}),
        _json({"a": {"type": ["string", "null"]}}),
        True,
        False,
    ),
    ("protobuf: nothing", _proto("string a = 1;"), _proto("string a = 1;"), True, True),
    (
        "protobuf: field added",
        _proto("string a = 1;"),
        _proto("string a = 1;", "string b = 2;"),
        True,
        True,
    ),
    (
        "protobuf: field removed and reserved",
        _proto("string a = 1;", "string b = 2;"),
        _proto("string a = 1;", "reserved 2;"),
        True,
        True,
    ),
    (
        "protobuf: field removed, number free",
        _proto("string a = 1;", "string b = 2;"),
        _proto("string a = 1;"),
        False,
        True,
    ),
    ("protobuf: type changed", _proto("string a = 1;"), _proto("int32 a = 1;"), False, False),
    ("protobuf: int32 to int64", _proto("int32 a = 1;"), _proto("int64 a = 1;"), True, True),
    ("protobuf: renamed", _proto("string a = 1;"), _proto("string b = 1;"), True, True),
    ("protobuf: renumbered", _proto("string a = 1;"), _proto("string a = 2;"), False, True),
]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change[0])
def test_verdicts(change: tuple[str, Schema, Schema, bool, bool]) -> None:
    _, old, new, backward, forward = change
    assert (not breaks(old, new, "BACKWARD")) is backward
    assert (not breaks(old, new, "FORWARD")) is forward
    assert (not breaks(old, new, "FULL")) is (backward and forward)
    assert breaks(old, new, "NONE") == ()


def test_there_are_at_least_thirty_over_three_formats() -> None:
    assert len(_CHANGES) >= 30
    assert {old.format for _, old, _, _, _ in _CHANGES} == {"AVRO", "JSON", "PROTOBUF"}


def test_a_break_shows_the_values_that_would_break() -> None:
    [found] = breaks(_json({"a": _TEXT}), _json({"a": _NUMBER}), "BACKWARD")
    assert "can't be read" in found.reason
    assert "string" in found.reason


def test_another_format_is_a_break() -> None:
    [found] = breaks(_avro(_A), _json({"a": _TEXT}), "BACKWARD")
    assert "from AVRO to JSON" in found.reason


# Where the registry refuses what we allow, by change and mode, and why we allow it. The registry
# gives no reason beyond "not compatible"; it never allows what we refuse.
_SKIPPED = "readers skip numbers that they don't know"
_RESERVED = "the number is not used again; the registry refuses also with the name reserved"
_SAME_FORM = "both types have the same form on the wire"
_UNNAMED = "records carry numbers, not names"
_REGISTRY_DIFFERS = {
    ("protobuf: field added", "FORWARD"): _SKIPPED,
    ("protobuf: field removed and reserved", "BACKWARD"): _RESERVED,
    ("protobuf: field removed and reserved", "FORWARD"): _RESERVED,
    ("protobuf: int32 to int64", "BACKWARD"): _SAME_FORM,
    ("protobuf: int32 to int64", "FORWARD"): _SAME_FORM,
    ("protobuf: renamed", "BACKWARD"): _UNNAMED,
    ("protobuf: renamed", "FORWARD"): _UNNAMED,
    ("protobuf: renumbered", "FORWARD"): _SKIPPED,
}


@pytest.mark.servers
def test_our_verdict_is_the_registry_s_or_the_difference_is_listed(
    schemas: SchemasSettings,
) -> None:
    registry = SchemaRegistry(load_settings().model_copy(update={"schemas": schemas}))
    differences = {}
    for number, (change, old, new, *_) in enumerate(_CHANGES):
        for mode in ("BACKWARD", "FORWARD"):
            subject = f"compared-{number}-{mode.lower()}-value"
            registry.set_mode(subject, mode)
            registry.register(subject, old.canonical(), old.format)
            theirs = registry.is_compatible(subject, new.canonical(), new.format)
            if theirs is bool(breaks(old, new, mode)):
                differences[change, mode] = theirs
    assert differences == dict.fromkeys(_REGISTRY_DIFFERS, False)

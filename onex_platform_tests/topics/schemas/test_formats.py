"""What the three formats say of a value, and of their fields."""

from __future__ import annotations

import json

import pytest

from onex_platform.domain.envelope import PAYLOADS
from onex_platform.topics.catalogue import load_catalogue
from onex_platform.topics.schemas import SchemaError
from onex_platform.topics.schemas.formats import AvroSchema, JsonSchema, ProtobufSchema
from onex_platform.topics.schemas.generated import generated_schema

_AVRO = AvroSchema(
    json.dumps(
        {
            "type": "record",
            "name": "Page",
            "fields": [
                {"name": "page_id", "type": "string"},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "email", "type": ["null", "string"], "pii": "high"},
            ],
        }
    )
)
_PROTO = ProtobufSchema(
    'syntax = "proto3";\npackage x;\nmessage Page {\n  string page_id = 1;\n'
    "  // Of the author. pii: high\n  string email = 2;\n}\n"
)
_JSON = JsonSchema(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "page_id": {"type": "string"},
                "author": {"$ref": "#/$defs/Author"},
            },
            "required": ["page_id"],
            "$defs": {
                "Author": {
                    "type": "object",
                    "properties": {"email": {"type": "string", "pii": "high"}},
                }
            },
        }
    )
)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (_AVRO, {"page_id": "x", "at": 1, "email": None}, {"page_id": 1, "at": 1, "email": None}),
        (_PROTO, {"page_id": "x"}, {"pages": "x"}),
        (_JSON, {"page_id": "x"}, {"page_id": 1}),
    ],
)
def test_a_schema_takes_what_fits_and_refuses_the_rest(
    schema: AvroSchema | JsonSchema | ProtobufSchema, right: object, wrong: object
) -> None:
    schema.check(right)
    with pytest.raises(SchemaError, match=r"^\$"):
        schema.check(wrong)


@pytest.mark.parametrize(
    ("schema", "path"), [(_AVRO, "email"), (_PROTO, "email"), (_JSON, "author.email")]
)
def test_private_fields_are_found(
    schema: AvroSchema | JsonSchema | ProtobufSchema, path: str
) -> None:
    assert {field.path for field in schema.fields() if field.pii == "high"} == {path}


def _avro(*types: object) -> AvroSchema:
    """A record of the namespace x with one field for each type: f0, f1, …"""
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(types)]
    record = {"type": "record", "name": "Page", "namespace": "x", "fields": fields}
    return AvroSchema(json.dumps(record))


_PRIVATE_AUTHOR = {
    "type": "record",
    "name": "Author",
    "fields": [{"name": "email", "type": "string", "pii": "high"}],
}
_PRIVATE = {"type": "string", "pii": "high"}
_NESTED_PROTO = ProtobufSchema(
    'syntax = "proto3";\npackage x;\nmessage Page {\n  Author author = 1;\n'
    "  map<string, Author> others = 2;\n  message Author {\n    // pii: high\n"
    "    string email = 1;\n  }\n}\n"
)


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        (_avro(_PRIVATE_AUTHOR, "Author", ["null", "x.Author"]), "f0.email f1.email f2.email"),
        (_avro({"type": "map", "values": _PRIVATE_AUTHOR}), "f0.*.email"),
        (_NESTED_PROTO, "author.email others.*.email"),
        (JsonSchema(json.dumps({"additionalProperties": _PRIVATE})), "*"),
        (JsonSchema(json.dumps({"patternProperties": {"^x-": _PRIVATE}})), "*"),
        (JsonSchema(json.dumps({"properties": {"a": {"items": _PRIVATE}}})), "a"),
        (JsonSchema(json.dumps({"properties": {"a": {"anyOf": [_PRIVATE, {}]}}})), "a"),
        (JsonSchema(json.dumps({"properties": {"a.b": _PRIVATE}})), "a%2Eb"),
    ],
)
def test_every_place_of_a_private_field_has_its_path(
    schema: AvroSchema | JsonSchema | ProtobufSchema, paths: str
) -> None:
    schema.parse()
    assert {field.path for field in schema.fields() if field.pii == "high"} == set(paths.split())


def _circles(level: str) -> list[AvroSchema | JsonSchema | ProtobufSchema]:
    """A page has pages below it."""
    return [
        JsonSchema(
            json.dumps({"properties": {"by": {"pii": level}, "pages": {"items": {"$ref": "#"}}}})
        ),
        AvroSchema(
            json.dumps(
                {
                    "type": "record",
                    "name": "Page",
                    "fields": [
                        {"name": "by", "type": "string", "pii": level},
                        {"name": "pages", "type": {"type": "array", "items": "Page"}},
                    ],
                }
            )
        ),
        ProtobufSchema(
            f'syntax = "proto3";\npackage x;\nmessage Page {{\n  // pii: {level}\n'
            "  string by = 1;\n  repeated Page pages = 2;\n}\n"
        ),
    ]


@pytest.mark.parametrize("place", range(3))
def test_private_fields_without_a_path_that_ends_are_refused(place: int) -> None:
    _circles("none")[place].parse()
    with pytest.raises(SchemaError, match="no path that ends"):
        _circles("high")[place].parse()


@pytest.mark.parametrize(
    "schema", [AvroSchema("{"), AvroSchema("{}"), JsonSchema('{"type": 1}'), ProtobufSchema("x")]
)
def test_what_is_no_schema_is_refused(
    schema: AvroSchema | JsonSchema | ProtobufSchema,
) -> None:
    with pytest.raises(SchemaError):
        schema.parse()


@pytest.mark.parametrize("contract", list(load_catalogue()), ids=lambda found: found.topic)
def test_generated_schemas_refuse_what_the_models_refuse(contract: object) -> None:
    text = generated_schema(contract)  # type: ignore[arg-type]
    assert text is not None
    schema, kind = JsonSchema(text), contract.event_kind  # type: ignore[attr-defined]
    with pytest.raises(SchemaError):
        schema.check({})
    if kind is not None:
        inner = json.loads(text)["properties"]["payload"]
        assert inner["properties"] == PAYLOADS[kind].model_json_schema()["properties"]

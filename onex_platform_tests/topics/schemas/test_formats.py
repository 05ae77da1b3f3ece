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

"""Subjects on a real registry: known again, pinned, and told when somebody else moved on."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from onex_platform.base.settings import SchemasSettings, Settings, load_settings
from onex_platform.engines.schema_registry import SchemaRegistry
from onex_platform.governance.state import Subject
from onex_platform.governance.subjects import PinnedSchema, observe_subjects, pinned_schemas
from onex_platform.topics.schemas import Schema
from onex_platform.topics.schemas.formats import AvroSchema, JsonSchema, ProtobufSchema

pytestmark = pytest.mark.servers

_AVRO = {"type": "record", "name": "Page", "fields": [{"name": "page_id", "type": "string"}]}
_JSON = {"type": "object", "properties": {"page_id": {"type": "string"}}, "required": ["page_id"]}
_PROTO = 'syntax = "proto3";\npackage kb;\nmessage Page {\n  string page_id = 1;\n}\n'


@pytest.fixture(scope="module")
def settings(schemas: SchemasSettings) -> Settings:
    return load_settings().model_copy(update={"schemas": schemas})


def _wanted(schema: Schema) -> tuple[str, dict[str, Subject]]:
    name = f"kb.evt.page-{uuid4().hex}.v1-value"
    return name, {name: Subject(schema.canonical(), schema.format, "BACKWARD")}


@pytest.mark.parametrize(
    "schema",
    [AvroSchema(json.dumps(_AVRO)), JsonSchema(json.dumps(_JSON)), ProtobufSchema(_PROTO)],
    ids=lambda schema: schema.format,
)
def test_a_schema_is_known_again_however_a_registry_lays_it_out(
    settings: Settings, schema: Schema
) -> None:
    name, wanted = _wanted(schema)
    registry = SchemaRegistry(settings)
    assert observe_subjects(settings, wanted) == {}
    registry.set_mode(name, "BACKWARD")
    registry.register(name, schema.canonical(), schema.format)
    assert observe_subjects(settings, wanted) == wanted
    newest = registry.newest(name)
    assert newest is not None
    assert pinned_schemas(settings, wanted) == [PinnedSchema(name, 1, newest.id)]


def test_a_newer_version_leaves_the_pin_where_it_is(settings: Settings) -> None:
    schema = AvroSchema(json.dumps(_AVRO))
    name, wanted = _wanted(schema)
    registry = SchemaRegistry(settings)
    registry.set_mode(name, "BACKWARD")
    registry.register(name, schema.canonical(), schema.format)
    [before] = pinned_schemas(settings, wanted)
    wider = _AVRO | {
        "fields": [*_AVRO["fields"], {"name": "title", "type": "string", "default": ""}]
    }
    registry.register(name, json.dumps(wider), "AVRO")
    assert pinned_schemas(settings, wanted) == [before]
    assert observe_subjects(settings, wanted) == {
        name: Subject(schema.canonical(), "AVRO", "BACKWARD", newer=(2,))
    }


def test_without_a_registry_there_is_nothing_to_observe(settings: Settings) -> None:
    unknown = settings.model_copy(update={"schemas": SchemasSettings()})
    assert observe_subjects(unknown, {}) is None

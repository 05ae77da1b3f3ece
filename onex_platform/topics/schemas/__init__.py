"""Schemas of topics: three formats behind one interface, samples, generation, compatibility."""

from onex_platform.topics.schemas.annotated_fields import SchemaError
from onex_platform.topics.schemas.formats import (
    Schema,
    SchemaPair,
    read_schema,
    schema_of,
)

__all__ = ["Schema", "SchemaError", "SchemaPair", "read_schema", "schema_of"]

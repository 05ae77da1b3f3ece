"""The smallest value that a JSON Schema takes: a sample for people to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMATS = {
    "uuid": "00000000-0000-4000-8000-000000000001",
    "date-time": "2026-01-01T00:00:00Z",
}


def smallest_value(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """A value with the required fields only; knows what pydantic writes, no more."""
    root = schema if root is None else root
    if reference := schema.get("$ref"):
        target: Any = root
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        return smallest_value(target, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return smallest_value(schema["anyOf"][0], root)
    match schema.get("type"):
        case "object":
            return {
                name: smallest_value(schema["properties"][name], root)
                for name in schema.get("required", ())
            }
        case "array":
            return []
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            return low + ("exclusiveMinimum" in schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _FORMATS.get(schema.get("format", ""), "sample")

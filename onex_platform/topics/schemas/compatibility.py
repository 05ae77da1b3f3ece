"""Whether readers and writers of two versions of a schema understand each other, offline.

BACKWARD: what was written with the old schema is read with the new one. FORWARD: the other way
round. FULL: both. A verdict that the library can't reach counts as breaking, with the reason.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from jsonschema_rs.canonical import Containment

from onex_platform.topics.schemas.formats import (
    AvroSchema,
    JsonSchema,
    ProtobufSchema,
    Schema,
    run_buf,
)

_MOST_SHOWN = 400


@dataclass(frozen=True)
class Break:
    """One reason why two versions do not fit, in which direction, with the values if known."""

    direction: str
    reason: str

    def __str__(self) -> str:
        return f"{self.direction}: {self.reason}"


def breaks(old: Schema, new: Schema, mode: str) -> tuple[Break, ...]:
    """Everything that is wrong in the step from old to new under a mode; empty if nothing is."""
    base = mode.removesuffix("_TRANSITIVE")
    if base == "NONE":
        return ()
    if old.format != new.format:
        return (Break(base, f"the format changes from {old.format} to {new.format}"),)
    found: list[Break] = []
    if base in ("BACKWARD", "FULL"):
        found += (Break("BACKWARD", reason) for reason in _unreadable(old, new))
    if base in ("FORWARD", "FULL"):
        found += (Break("FORWARD", reason) for reason in _unreadable(new, old, is_forward=True))
    return tuple(found)


def _unreadable(writer: Schema, reader: Schema, *, is_forward: bool = False) -> Iterator[str]:
    match writer, reader:
        case JsonSchema(), JsonSchema():
            yield from _json(writer.document, reader.document)
        case AvroSchema(), AvroSchema():
            yield from _avro(writer, reader)
        case ProtobufSchema(), ProtobufSchema():
            yield from _protobuf(writer, reader, is_forward)


def _json(writer: Any, reader: Any) -> Iterator[str]:
    written, readable = jsonschema_rs.canonicalize(writer), jsonschema_rs.canonicalize(reader)
    verdict = readable.covers(written)
    if verdict is Containment.YES:
        return
    try:
        values = json.dumps(written.subtract(readable).to_json_schema(), sort_keys=True)
    except ValueError as error:
        values = f"unknown ({error})"
    shown = values if len(values) <= _MOST_SHOWN else f"{values[:_MOST_SHOWN]}…"
    what = (
        "can't be read" if verdict is Containment.NO else "may not be readable, which is undecided"
    )
    yield f"values {what}: {shown}"


def _avro(writer: AvroSchema, reader: AvroSchema) -> Iterator[str]:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    found = checker.get_compatibility(reader.parse(), writer.parse())
    if found.compatibility is not SchemaCompatibilityType.compatible:
        yield "; ".join(sorted(found.messages)) or "the schemas do not match"


# What breaks the wire or the JSON form; renames of files and packages are not about records.
_WIRE = ["WIRE"]
# Readers skip fields that they do not know, so forward a new field is no deletion.
_NOT_FORWARD = [
    "FIELD_NO_DELETE_UNLESS_NUMBER_RESERVED",
    "RESERVED_MESSAGE_NO_DELETE",
    "RESERVED_ENUM_NO_DELETE",
]


def _protobuf(writer: ProtobufSchema, reader: ProtobufSchema, is_forward: bool) -> Iterator[str]:
    rules = {"use": _WIRE, "except": _NOT_FORWARD if is_forward else []}
    with tempfile.TemporaryDirectory() as folder:
        for name, schema in (("old", writer), ("new", reader)):
            Path(folder, name).mkdir()
            Path(folder, name, "schema.proto").write_text(schema.text, encoding="utf-8")
        judged = run_buf(
            "breaking",
            f"{folder}/new",
            "--against",
            f"{folder}/old",
            "--config",
            json.dumps({"version": "v2", "breaking": rules}),
            "--error-format",
            "json",
        )
    for line in judged.stdout.decode().splitlines():
        yield json.loads(line)["message"]
    if judged.returncode not in (0, 100):
        yield f"undecided: {judged.stderr.decode().strip()}"

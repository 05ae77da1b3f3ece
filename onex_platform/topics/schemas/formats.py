"""JSON Schema, Avro and Protobuf behind one interface: is it one, does it take this value, which
fields does it have, and how private are they.

A field's privacy is an annotation: `pii` beside a JSON property or an Avro field, a comment
`pii: high` in front of a Protobuf field.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Literal

import avro.errors
import avro.io
import avro.schema
import jsonschema_rs
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from onex_platform.base.errors import PrerequisiteError
from onex_platform.topics.schemas.annotated_fields import (
    ANNOTATED,
    SchemaError,
    SchemaField,
    avro_fields,
    json_fields,
    protobuf_fields,
)

FormatName = Literal["JSON", "AVRO", "PROTOBUF"]
# The newest draft that registries compare; of a later one some only say that they don't know it.
DRAFT = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True)
class Schema(ABC):
    """One schema; `text` is what a registry stores."""

    format: ClassVar[FormatName]
    suffix: ClassVar[str]

    text: str

    @abstractmethod
    def parse(self) -> Any:
        """The schema in its library's terms; raises `SchemaError`."""

    @abstractmethod
    def check(self, value: Any) -> None:
        """Raise `SchemaError` with the JSON path if the schema refuses the value."""

    @abstractmethod
    def fields(self) -> Iterator[SchemaField]:
        """Every named field, at every depth."""

    def require_private_paths(self) -> None:
        """Raise `SchemaError` if a private field has a place that no path leads to."""
        if ANNOTATED.search(self.text):
            deque(self.fields(), maxlen=0)

    def canonical(self) -> str:
        """The same text for schemas that differ in layout only."""
        return self.text

    def is_same(self, other: Schema) -> bool:
        """Whether the other differs in layout at most."""
        return (self.format, self.canonical()) == (other.format, other.canonical())


@dataclass(frozen=True)
class _WrittenInJson(Schema):
    """A schema whose text is JSON."""

    @cached_property
    def document(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise SchemaError(f"is not JSON: {error}") from None

    def canonical(self) -> str:
        return json.dumps(self.document, sort_keys=True)


@dataclass(frozen=True)
class JsonSchema(_WrittenInJson):
    format = "JSON"
    suffix = ".json"

    def canonical(self) -> str:
        """With its draft: a registry takes a schema without one for some other format."""
        if not isinstance(self.document, Mapping):
            return super().canonical()
        return json.dumps({"$schema": DRAFT, **self.document}, sort_keys=True)

    def parse(self) -> Any:
        try:
            jsonschema_rs.meta.validate(self.document)
            self.require_private_paths()
            return jsonschema_rs.validator_for(self.document)
        except (ValueError, jsonschema_rs.ValidationError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"is no JSON Schema: {str(error).splitlines()[0]}") from None

    def check(self, value: Any) -> None:
        for error in self.parse().iter_errors(value):
            path = "".join(f"[{part!r}]" for part in error.instance_path)
            raise SchemaError(f"${path}: {error.message}")

    def fields(self) -> Iterator[SchemaField]:
        yield from json_fields(self.document)


@dataclass(frozen=True)
class AvroSchema(_WrittenInJson):
    format = "AVRO"
    suffix = ".avsc"

    def parse(self) -> avro.schema.Schema:
        try:
            parsed = avro.schema.parse(json.dumps(_without_logical_types(self.document)))
        except avro.errors.AvroException as error:
            raise SchemaError(f"is no Avro schema: {error}") from None
        self.require_private_paths()
        return parsed

    def check(self, value: Any) -> None:
        try:
            avro.io.validate(self.parse(), value, raise_on_error=True)
        except (avro.errors.AvroException, TypeError, AttributeError) as error:
            raise SchemaError(f"$: {error}") from None

    def encode(self, value: Any) -> bytes:
        """A value as Avro's binary form, without the schema."""
        encoded = BytesIO()
        avro.io.DatumWriter(self.parse()).write(value, avro.io.BinaryEncoder(encoded))
        return encoded.getvalue()

    def decode(self, value: bytes) -> Any:
        """A value that `encode` has written, by the same schema."""
        try:
            return avro.io.DatumReader(self.parse()).read(avro.io.BinaryDecoder(BytesIO(value)))
        except (avro.errors.AvroException, ValueError, struct.error) as error:
            raise SchemaError(f"$: {error}") from None

    def fields(self) -> Iterator[SchemaField]:
        yield from avro_fields(self.document)


@dataclass(frozen=True)
class ProtobufSchema(Schema):
    format = "PROTOBUF"
    suffix = ".proto"

    @cached_property
    def _file(self) -> descriptor_pb2.FileDescriptorProto:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "schema.proto").write_text(self.text, encoding="utf-8")
            built = run_buf("build", folder, "-o", "-#format=binpb")
        if built.returncode != 0:
            reason = built.stderr.decode().strip().splitlines()
            raise SchemaError(f"is no Protobuf schema: {reason[0] if reason else 'buf failed'}")
        files = descriptor_pb2.FileDescriptorSet.FromString(built.stdout).file
        return next(file for file in files if file.name == "schema.proto")

    def is_same(self, other: Schema) -> bool:
        if self.text == other.text or not isinstance(other, ProtobufSchema):
            return self.text == other.text
        mine, theirs = (_without_places(schema._file) for schema in (self, other))
        return bool(mine == theirs)

    def parse(self) -> Any:
        """The class of the file's first message, which is what a topic carries."""
        if not self._file.message_type:
            raise SchemaError("is no Protobuf schema of a topic: it has no message")
        self.require_private_paths()
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self._file)
        first = self._file.message_type[0].name
        name = f"{self._file.package}.{first}" if self._file.package else first
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    def check(self, value: Any) -> None:
        try:
            json_format.ParseDict(value, self.parse()())
        except (json_format.ParseError, TypeError, AttributeError) as error:
            raise SchemaError(f"$: {error}") from None

    def fields(self) -> Iterator[SchemaField]:
        yield from protobuf_fields(self._file)


_FORMATS: tuple[type[Schema], ...] = (JsonSchema, AvroSchema, ProtobufSchema)


def schema_of(format: str, text: str) -> Schema:
    """A schema as a registry has it."""
    kinds = {kind.format: kind for kind in _FORMATS}
    if format not in kinds:
        raise SchemaError(f"has the format {format!r}; expected one of {', '.join(kinds)}")
    return kinds[format](text)


def read_schema(path: Path) -> Schema:
    """The schema in a file, by the file's ending."""
    for kind in _FORMATS:
        if path.suffix == kind.suffix:
            try:
                return kind(path.read_text(encoding="utf-8"))
            except UnicodeDecodeError as error:
                raise SchemaError(f"is not UTF-8: {error.reason}") from None
    raise SchemaError(f"ends with {path.suffix!r}; expected .json, .avsc or .proto")


@dataclass(frozen=True)
class SchemaPair:
    """The files of a topic's schemas, by what they are about; there should be one of each."""

    value: tuple[str, ...]
    key: tuple[str, ...]
    files: Mapping[str, Path]

    @classmethod
    def of(cls, files: Mapping[str, Path]) -> SchemaPair:
        def named(part: str) -> tuple[str, ...]:
            return tuple(name for name in files if name.startswith(f"{part}.schema."))

        return cls(named("value"), named("key"), files)

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """By file name; those that can't be read at all are left out."""
        found = {}
        for name in (*self.value, *self.key):
            try:
                found[name] = read_schema(self.files[name])
            except SchemaError:
                continue
        return found

    def the(self, part: Literal["value", "key"]) -> Schema | None:
        names = getattr(self, part)
        return self.schemas.get(names[0]) if len(names) == 1 else None


def run_buf(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the Protobuf compiler that comes with the package."""
    beside = Path(sys.executable).with_name("buf")
    program = str(beside) if beside.exists() else shutil.which("buf")
    if program is None:
        raise PrerequisiteError(
            "There is no `buf` to judge Protobuf schemas with.", hint="Install buf-bin."
        )
    return subprocess.run([program, *arguments], capture_output=True, check=False, timeout=60)


def _without_places(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """The file without comments and line numbers."""
    bare = descriptor_pb2.FileDescriptorProto()
    bare.CopyFrom(file)
    bare.ClearField("source_code_info")
    return bare


def _without_logical_types(node: Any) -> Any:
    """Samples are JSON: a time in one is the number or text that travels."""
    if isinstance(node, list):
        return [_without_logical_types(item) for item in node]
    if isinstance(node, Mapping):
        return {
            name: _without_logical_types(item)
            for name, item in node.items()
            if name != "logicalType"
        }
    return node

"""Which fields a schema has, where, and how private each is.

A path leads to a field of that name, and to entries of a map by `*`; items of a list are not
counted. A schema that uses a definition twice has its fields twice. One whose private fields lie
within a reference to itself is refused: they have no path that ends.

Where an object has named fields beside its map, the path of the map's entries leads to all of them:
rather too much is hidden than too little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from onex_platform.domain.headers import path_below, path_of_entries

# A level above none, as any of the three formats writes it.
ANNOTATED = re.compile(r"""\bpii"?\s*:\s*"?(low|high)""")
_PII_COMMENT = re.compile(r"\bpii:\s*(\w+)")
_MAPS = ("additionalProperties", "patternProperties")
_SAME_PLACE = ("items", "prefixItems", "additionalItems", "anyOf", "oneOf", "allOf", "then", "else")
# Where descriptors have messages, messages in messages, and fields.
_MESSAGES, _NESTED, _FIELDS = 4, 3, 2


class SchemaError(ValueError):
    """A schema, or a value that its schema refuses; says where and why."""


class SchemaField(NamedTuple):
    """A field by its dotted path, with its annotation."""

    path: str
    pii: str


def json_fields(document: Any) -> Iterator[SchemaField]:
    """The fields of a JSON Schema."""
    yield from _JsonWalk(document).below(document, "", ("#",))


class _JsonWalk:
    def __init__(self, document: Any) -> None:
        self._document = document

    def below(self, node: Any, path: str, within: tuple[str, ...]) -> Iterator[SchemaField]:
        """What lies at a path and below; `within` are the definitions on the way there."""
        if path:
            yield SchemaField(path, _pii(node))
        if not isinstance(node, Mapping):
            return
        if isinstance(reference := node.get("$ref"), str):
            yield from self._referred(reference, path, within)
        for name, child in node.get("properties", {}).items():
            yield from self.below(child, path_below(path, name), within)
        for child in _children(node, _MAPS):
            yield from self.below(child, path_of_entries(path), within)
        for child in _children(node, _SAME_PLACE):
            yield from self.below(child, path, within)

    def _referred(
        self, reference: str, path: str, within: tuple[str, ...]
    ) -> Iterator[SchemaField]:
        if reference in within:
            circle = map(self._target, within[within.index(reference) :])
            _require_open(any(map(_is_annotated, circle)), path, reference)
            return
        yield from self.below(self._target(reference), path, (*within, reference))

    def _target(self, reference: str) -> Any:
        target = self._document
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        is_followed = reference == "#" or (reference.startswith("#/") and target is not None)
        if not is_followed and _is_annotated(self._document):
            raise SchemaError(f"has private fields, and a reference {reference!r} to nowhere in it")
        return target if is_followed else None


def _children(node: Mapping[str, Any], parts: Sequence[str]) -> Iterator[Any]:
    """The schemas that stand below some keywords, alone, in lists or by pattern."""
    for part in parts:
        child = node.get(part)
        if part == "patternProperties":
            yield from (child or {}).values()
        elif isinstance(child, list):
            yield from child
        elif isinstance(child, Mapping):
            yield child


def avro_fields(document: Any) -> Iterator[SchemaField]:
    """The fields of an Avro schema."""
    yield from _AvroWalk().below(document, "", "", ())


class _AvroWalk:
    def __init__(self) -> None:
        self._records: dict[str, Mapping[str, Any]] = {}

    def below(
        self, node: Any, path: str, space: str, within: tuple[str, ...]
    ) -> Iterator[SchemaField]:
        """What lies at a path and below; names without a namespace belong to `space`."""
        if path:
            yield SchemaField(path, _pii(node))
        if isinstance(node, list):
            for branch in node:
                yield from self.below(branch, path, space, within)
        elif isinstance(node, str):
            name = _full_name(node, space)
            if name in within:
                circle = map(self._records.__getitem__, within[within.index(name) :])
                _require_open(any(map(_is_annotated, circle)), path, name)
            elif name in self._records:
                yield from self._of_record(name, path, within)
        elif isinstance(node, Mapping) and "fields" in node:
            name = _full_name(str(node.get("name", "")), str(node.get("namespace") or space))
            self._records[name] = node
            yield from self._of_record(name, path, within)
        elif isinstance(node, Mapping):
            yield from self.below(node.get("items"), path, space, within)
            yield from self.below(node.get("type"), path, space, within)
            if "values" in node:
                yield from self.below(node["values"], path_of_entries(path), space, within)

    def _of_record(self, name: str, path: str, within: tuple[str, ...]) -> Iterator[SchemaField]:
        for field in self._records[name]["fields"]:
            below = path_below(path, field["name"])
            yield SchemaField(below, _pii(field))
            yield from self.below(
                field.get("type"), below, name.rpartition(".")[0], (*within, name)
            )


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def protobuf_fields(file: descriptor_pb2.FileDescriptorProto) -> Iterator[SchemaField]:
    """The fields of a file's first message, which is what a topic carries."""
    if file.message_type:
        space = f".{file.package}" if file.package else ""
        first = f"{space}.{file.message_type[0].name}"
        yield from _ProtobufWalk(file, space).below(first, "", ())


class _ProtobufWalk:
    def __init__(self, file: descriptor_pb2.FileDescriptorProto, space: str) -> None:
        self._messages = dict(_messages(space, file.message_type, (_MESSAGES,)))
        self._levels = {
            tuple(place.path): found.group(1)
            for place in file.source_code_info.location
            if (found := _PII_COMMENT.search(f"{place.leading_comments} {place.trailing_comments}"))
        }

    def below(self, name: str, path: str, within: tuple[str, ...]) -> Iterator[SchemaField]:
        """What lies below a path where a message of this name stands."""
        if name in within:
            circle = within[within.index(name) :]
            _require_open(any(map(self._is_annotated, circle)), path, name)
        elif name in self._messages:
            message, place = self._messages[name]
            for number, field in enumerate(message.field):
                at = path_below(path, field.name)
                yield SchemaField(at, self._levels.get((*place, _FIELDS, number), "none"))
                entry, _ = self._messages.get(field.type_name, (None, ()))
                if entry is not None and entry.options.map_entry:
                    of_value = entry.field[1].type_name
                    yield from self.below(of_value, path_of_entries(at), (*within, name))
                else:
                    yield from self.below(field.type_name, at, (*within, name))

    def _is_annotated(self, name: str) -> bool:
        message, place = self._messages[name]
        levels = (self._levels.get((*place, _FIELDS, n)) for n in range(len(message.field)))
        return any(level in ("low", "high") for level in levels)


def _messages(
    space: str, messages: Sequence[descriptor_pb2.DescriptorProto], place: tuple[int, ...]
) -> Iterator[tuple[str, tuple[descriptor_pb2.DescriptorProto, tuple[int, ...]]]]:
    """Messages by their full names, also those within others, and their places in the file."""
    for number, message in enumerate(messages):
        name, at = f"{space}.{message.name}", (*place, number)
        yield name, (message, at)
        yield from _messages(name, message.nested_type, (*at, _NESTED))


def _require_open(is_private: bool, path: str, name: str) -> None:
    if is_private:
        raise SchemaError(
            f"{path}: refers back to {name}, so that its private fields have no path that ends"
        )


def _is_annotated(node: Any) -> bool:
    return ANNOTATED.search(json.dumps(node)) is not None


def _pii(node: Any) -> str:
    return str(node.get("pii", "none")) if isinstance(node, Mapping) else "none"

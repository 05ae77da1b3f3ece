"""YAML files with the line of every value; what a plain parser lets pass is an error here.

PyYAML takes the last of two equal keys without a word. Here a key that stands twice, a tab and
bytes that are no UTF-8 are told with their line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# The C parser if PyYAML was built with it: eight times faster.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The way to a value: keys and list indices.
Route = tuple[str | int, ...]


@dataclass(frozen=True)
class Defect:
    """Why a file can't be read, or a key that stands twice."""

    line: int
    message: str
    is_repeated_key: bool = False


@dataclass
class Document:
    """What a file says, and where it says it."""

    path: Path
    data: Any = None
    lines: dict[Route, int] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)

    def line_of(self, *route: str | int) -> int:
        """The line of a value, or of the nearest value around it."""
        while route and route not in self.lines:
            route = route[:-1]
        return self.lines.get(route, 1)


def read_document(path: Path) -> Document:
    """The file; never raises for what is in it."""
    document = Document(path)
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as error:
        document.defects.append(Defect(1, f"can't be read: {error.strerror}"))
        return document
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        document.defects.append(Defect(line, f"is not UTF-8: byte {content[error.start]:#04x}"))
        return document
    try:
        node = yaml.compose(text, Loader=_LOADER)
        if node is not None:
            document.data = _value(node, (), document)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        document.defects.append(Defect(mark.line + 1 if mark else 1, f"is not YAML: {reason}"))
    return document


def _value(node: yaml.Node, route: Route, document: Document) -> Any:
    document.lines[route] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return dict(_items(node, route, document))
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*route, at), document) for at, item in enumerate(node.value)]
    return _scalar(node)


def _items(node: yaml.MappingNode, route: Route, document: Document) -> Iterator[tuple[Any, Any]]:
    seen: dict[Any, int] = {}
    for key_node, value_node in node.value:
        key, line = _scalar(key_node), key_node.start_mark.line + 1
        if key in seen:
            document.defects.append(
                Defect(line, f"has the key {key!r} twice, first in line {seen[key]}", True)
            )
        seen[key] = line
        value = _value(value_node, (*route, key), document)
        document.lines[(*route, key)] = line
        yield key, value


_constructor = yaml.constructor.SafeConstructor()
_CONSTRUCT: dict[str, Any] = {
    tag: method
    for tag, method in yaml.constructor.SafeConstructor.yaml_constructors.items()
    if tag is not None and not tag.endswith(("map", "seq", "omap", "pairs", "set"))
}


def _scalar(node: yaml.Node) -> Any:
    try:
        construct = _CONSTRUCT.get(node.tag)
        if construct is not None and isinstance(node, yaml.ScalarNode):
            return construct(_constructor, node)
    except ValueError as error:
        raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error
    raise yaml.constructor.ConstructorError(
        None, None, f"a value of the kind {node.tag} is not expected", node.start_mark
    )

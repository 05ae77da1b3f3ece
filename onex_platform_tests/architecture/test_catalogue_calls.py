"""The catalogue is handed in: it is loaded where a program begins, and nowhere deep inside."""

from __future__ import annotations

import ast

import pytest

from onex_platform_tests.support.source_tree import PACKAGE, modules_of

LOADERS = {"load_catalogue", "load_whole_catalogue"}
# Where programs begin: Dagster's code location, its storage, and the commands.
BEGINNINGS = (
    "onex_platform/definitions.py",
    "onex_platform/cli/",
    "onex_platform/stack/dagster_storage.py",
)
# Where the loaders are made.
HOME = "onex_platform/topics/catalogue.py"


def loads(tree: ast.AST) -> list[int]:
    """The lines on which a loader is named, by whatever import."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and LOADERS & {name.name for name in node.names})
        or (isinstance(node, ast.Attribute) and node.attr in LOADERS)
    ]


def test_only_programs_load_the_catalogue() -> None:
    found = {
        module.path: lines
        for module in modules_of(PACKAGE)
        if module.path != HOME
        and not module.path.startswith(BEGINNINGS)
        and (lines := loads(module.tree))
    }
    assert found == {}


def test_the_beginnings_do_load_it() -> None:
    loading = [module.path for module in modules_of(PACKAGE) if loads(module.tree)]
    assert all(any(path.startswith(place) for path in loading) for place in BEGINNINGS)


@pytest.mark.parametrize(
    "program",
    [
        "from onex_platform.topics.catalogue import Catalogue, load_catalogue",
        "from onex_platform.topics import catalogue\ncatalogue.load_whole_catalogue()",
    ],
)
def test_a_breach_is_found(program: str) -> None:
    assert loads(ast.parse(program))

"""The tree has room: few modules side by side, each with a name of its own, references apart."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict

from onex_platform_tests.support.source_tree import PACKAGE, ROOT, TESTS, modules_of

MOST_MODULES = 17
MOST_LINES = 400
# Modules of one name hold the same kind of thing, each for its station.
SAME_KIND = frozenset({"__init__", "defs", "checks", "config", "errors"})
REFERENCE = "onex_platform.domain.reference"


def _product() -> dict[str, list[str]]:
    """The names of the modules in each folder; a command's module is called as the command is."""
    folders = defaultdict(list)
    for module in modules_of(PACKAGE):
        folder, _, name = module.path.rpartition("/")
        folders[folder].append(name.removesuffix(".py"))
    return folders


def test_no_folder_has_too_many_modules_side_by_side() -> None:
    crowded = {
        folder: len(names) - 1
        for folder, names in _product().items()
        if len(names) - 1 > MOST_MODULES  # its `__init__` is no module of its own
    }
    assert crowded == {}


def test_no_module_is_too_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for folder in (PACKAGE, TESTS)
        for path in folder.rglob("*.py")
    }
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_two_modules_share_a_name_only_if_they_hold_the_same_kind_of_thing() -> None:
    names = Counter(
        name
        for folder, modules in _product().items()
        if folder != "onex_platform/cli"
        for name in modules
    )
    assert {name for name, count in names.items() if count > 1} - SAME_KIND == set()


def test_no_product_module_imports_the_reference() -> None:
    importers = [
        module.path
        for module in modules_of(PACKAGE)
        if "/domain/reference/" not in module.path
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(REFERENCE))
        or (isinstance(node, ast.Import) and any(n.name.startswith(REFERENCE) for n in node.names))
    ]
    assert importers == []

"""Rules of the tests tree: helpers have their place, nobody sleeps, nothing is skipped, and what is
private stays so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

import pytest

from onex_platform_tests.support.work_sharing import RARE

TESTS = Path(__file__).parent.parent
MODULES = sorted(TESTS.rglob("*.py"))
_SKIPS = {"skip", "skipif", "xfail", "importorskip"}
# Not private, whatever the first letter: what named tuples offer, and constants of libraries.
_PUBLIC = {"_asdict", "_fields", "_make", "_replace"}
_OWN = {"self", "cls"}
_LIBRARIES = {"KafkaError", "os", "sys"}
_BY_NAME = {"setattr", "getattr", "delattr", "hasattr"}


def imported_from(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def names_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name that is used, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)


def helpers_of_tests(tree: ast.AST) -> list[str]:
    """Imports from a test module or from a conftest."""
    return [
        name
        for name in imported_from(tree)
        if name.startswith(f"{TESTS.name}.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split(".")[:-1])
    ]


def sleeps(tree: ast.AST) -> list[str]:
    used = [f"line {line}" for line, name in names_of(tree) if name == "time.sleep"]
    return used + [name for name in imported_from(tree) if name == "time.sleep"]


def skips(tree: ast.AST) -> list[str]:
    return [
        f"line {line}: {name}"
        for line, name in names_of(tree)
        if name.startswith("pytest.") and name.rsplit(".", 1)[-1] in _SKIPS
    ]


def is_private(name: str) -> bool:
    """Whether an underscore begins the name, or a part of it behind a dot."""
    return any(
        part.startswith("_") and not part.endswith("__") and part not in _PUBLIC
        for part in name.split(".")
    )


def private_names(tree: ast.AST) -> list[str]:
    """Private names of the package that are imported, used, or given to `setattr` and its like;
    also in the programs that a test hands to another process."""
    found = [
        name
        for name in imported_from(tree)
        if name.startswith("onex_platform") and is_private(name)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in _OWN | _LIBRARIES:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in _BY_NAME:
            names = [argument.value for argument in node.args[:2] if is_text(argument)]
            found += [f"line {node.lineno}: {name}" for name in names if is_private(name)]
        elif is_text(node) and "\nfrom onex_platform" in node.value:
            with suppress(SyntaxError):  # a text that is no program
                found += private_names(ast.parse(node.value))
    return found


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize(
    "rule", [helpers_of_tests, sleeps, skips, private_names], ids=lambda rule: rule.__name__
)
def test_the_tests_keep_their_rules(rule: object) -> None:
    assert callable(rule)
    broken = {
        module.relative_to(TESTS).as_posix(): found
        for module in MODULES
        if (found := rule(ast.parse(module.read_text())))
    }
    assert broken == {}


@pytest.mark.parametrize(
    ("rule", "program"),
    [
        (helpers_of_tests, "from onex_platform_tests.log.test_store import keep"),
        (helpers_of_tests, "from onex_platform_tests.stack.conftest import onex"),
        (sleeps, "import time\ntime.sleep(1)"),
        (sleeps, "from time import sleep"),
        (skips, "import pytest\npytest.skip('later')"),
        (skips, "import pytest\n@pytest.mark.xfail\ndef test(): ..."),
        (private_names, "from onex_platform.log.store import _gist"),
        (private_names, "cache._reader.batch(1)"),
        (private_names, "monkeypatch.setattr(reducer, '_commit', None)"),
        (private_names, "monkeypatch.setattr('onex_platform.log.store._gist', None)"),
        (private_names, "PROGRAM = '\\nfrom onex_platform import x\\nx._once()'"),
    ],
)
def test_a_breach_is_found(rule: object, program: str) -> None:
    assert callable(rule)
    assert rule(ast.parse(program))


@pytest.mark.parametrize("word", RARE)
def test_a_rare_server_is_asked_for_by_more_than_one_file(word: str) -> None:
    asking = [file for file in TESTS.rglob("test_*.py") if word in file.read_text()]
    assert len(asking) > 1

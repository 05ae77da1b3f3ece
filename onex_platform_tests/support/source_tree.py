"""The package's own source, parsed: what the tests of the architecture look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import onex_platform

ROOT = Path(onex_platform.__file__).parent.parent
PACKAGE = ROOT / "onex_platform"
TESTS = ROOT / "onex_platform_tests"


class Module(NamedTuple):
    """A module by its path, `/` between the folders, as a failure names it."""

    path: str
    tree: ast.Module

    @property
    def station(self) -> str:
        """The folder below the package; empty for a module at its top."""
        _, *folders, _ = self.path.split("/")
        return folders[0] if folders else ""

    def strings(self) -> Iterator[str]:
        """Its string literals, those inside f-strings included, without docstrings."""
        docstrings = {
            id(node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docstrings
            ):
                yield node.value


@cache
def modules_of(folder: Path) -> tuple[Module, ...]:
    return tuple(
        Module(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for path in sorted(folder.rglob("*.py"))
    )

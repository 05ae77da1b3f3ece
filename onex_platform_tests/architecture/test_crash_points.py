"""Crash points are one table: each is in the code, and a test lets an accident happen there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from onex_platform.base import faults
from onex_platform.base.errors import ConfigurationError
from onex_platform_tests.support.source_tree import PACKAGE, TESTS, modules_of

NAMES = [point.name for point in faults.points()]


def _marked() -> Iterator[tuple[str, str]]:
    """Station and name of every crash point in the code."""
    for module in modules_of(PACKAGE):
        if module.path == "onex_platform/base/faults.py":
            continue
        for text in module.strings():
            if text in NAMES:
                yield module.station, text


def _armed_in_tests() -> set[str]:
    """Names that a test arms: written whole, behind their moment, or as a parameter."""
    return {
        text.rpartition(":")[2]
        for module in modules_of(TESTS)
        if not module.path.startswith("onex_platform_tests/architecture/")
        for text in module.strings()
    }


def test_every_crash_point_is_in_the_code_of_its_station() -> None:
    assert sorted(_marked()) == sorted((point.station, point.name) for point in faults.points())


def test_every_effect_is_named_by_a_literal_or_by_a_parameter_that_says_so() -> None:
    wrong = [
        f"{module.path}:{call.lineno}"
        for module in modules_of(PACKAGE)
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "effect"
        and module.station != "domain"
        and not _is_plain(call.args[0])
    ]
    assert wrong == []


def _is_plain(name: ast.expr) -> bool:
    return (isinstance(name, ast.Constant) and name.value in NAMES) or (
        isinstance(name, ast.Name) and name.id == "point"
    )


def test_every_crash_point_is_armed_by_a_test() -> None:
    assert set(NAMES) - _armed_in_tests() == set()


def test_every_crash_point_says_in_a_sentence_what_changes() -> None:
    for point in faults.points():
        assert point.effect[0].isupper(), point
        assert point.effect.endswith("."), point


def test_an_unknown_name_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"'ingest\.nowhere' is no crash point"),
        faults.effect("ingest.nowhere"),
    ):
        pass
    with pytest.raises(ConfigurationError, match=r"'ingest\.nowhere' is no crash point"):
        faults.arm("before:ingest.nowhere")
    with pytest.raises(ConfigurationError, match="neither before:NAME nor after:NAME"):
        faults.arm("ingest.commit_cut")

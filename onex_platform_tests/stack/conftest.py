"""Stacks that one test has for itself, and a Maven registry in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onex_platform import stack
from onex_platform.base.settings import Settings
from onex_platform_tests.support.own_stacks import (
    FolderRegistry,
    NewStack,
    write_ivy_settings,
)
from onex_platform_tests.support.stacks import embedded_settings


@pytest.fixture
def new_stack(tmp_path: Path) -> Iterator[NewStack]:
    """Settings of a stack in a folder of its own; nothing of it outlives the test."""
    made: list[Settings] = []

    def make(name: str = "stack", **changes: Any) -> Settings:
        made.append(embedded_settings(tmp_path / name, **changes))
        return made[-1]

    yield make
    for settings in made:
        stack.down(settings)


@pytest.fixture
def registry(tmp_path: Path) -> FolderRegistry:
    made = FolderRegistry(tmp_path / "registry")
    made.folder.mkdir()
    write_ivy_settings(made.ivy_settings, made.folder.as_uri())
    return made

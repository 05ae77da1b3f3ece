"""Java is looked for where the settings say, and refused when it is too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from onex_platform.base.errors import PrerequisiteError
from onex_platform.stack.java import find_java
from onex_platform_tests.support.own_stacks import NewStack


def install_java(home: Path, answer: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    command.chmod(0o755)
    return command


def test_a_machine_without_java_is_told_to_install_one(
    new_stack: NewStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="No Java was found on PATH") as caught:
        find_java(new_stack(java_home=None))
    assert "Install a JDK 17 or newer" in str(caught.value)


def test_a_java_home_without_java_is_named(new_stack: NewStack, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=rf"in JAVA_HOME='{tmp_path}'"):
        find_java(new_stack(java_home=tmp_path))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "version 11"),
        ('java version "1.8.0_292"', "version 8"),
        ("not a Java at all", "of an unknown version"),
    ],
)
def test_an_old_java_is_refused_with_its_version(
    new_stack: NewStack, tmp_path: Path, answer: str, found: str
) -> None:
    command = install_java(tmp_path / "jdk", answer)
    with pytest.raises(PrerequisiteError, match=f"{command} is {found}; .* need 17 or newer"):
        find_java(new_stack(java_home=tmp_path / "jdk"))


def test_the_settings_java_is_taken(new_stack: NewStack, tmp_path: Path) -> None:
    command = install_java(tmp_path / "jdk", 'openjdk version "17.0.15" 2025-04-15')
    assert find_java(new_stack(java_home=tmp_path / "jdk")) == str(command)


def test_a_java_that_can_not_be_run_is_named(new_stack: NewStack, tmp_path: Path) -> None:
    command = install_java(tmp_path / "jdk", "")
    command.write_text("#!/no/such/interpreter\n")
    with pytest.raises(PrerequisiteError, match="could not be run"):
        find_java(new_stack(java_home=tmp_path / "jdk"))

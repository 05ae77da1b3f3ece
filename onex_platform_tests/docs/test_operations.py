"""The tables of docs/operations.md say what the code says."""

from __future__ import annotations

import re

import click
import pytest

from onex_platform.base import errors
from onex_platform.base.environment import effective_values
from onex_platform.base.settings import Settings
from onex_platform.cli.topic_commands.topics_cluster import access_table
from onex_platform_tests.support.doc_pages import CHECKOUT

PAGE = CHECKOUT / "docs/operations.md"


def settings_table() -> str:
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for setting in effective_values(Settings.model_construct()):
        default = f"`{setting.value}`" if setting.value else ""
        rows.append(f"| `{setting.variable}` | {default} | {setting.description} |")
    return "\n".join(rows)


def test_the_page_has_every_setting_as_the_code_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert settings_table() in PAGE.read_text(), (
        "Replace the table by the output of "
        "`.venv/bin/python -m onex_platform_tests.docs.test_operations`."
    )


def test_the_page_has_the_platform_s_rights_as_the_policy_has_them() -> None:
    table = "\n".join(f"  {line}" for line in access_table("onex-platform", "prod").splitlines())
    assert table in PAGE.read_text(), (
        "Replace the table by the output of `onex topics access onex-platform`."
    )


def test_the_page_has_every_exit_code_as_the_code_has_it() -> None:
    named = dict(re.findall(r"^\| (\d+) \| `(\w+Error)`", PAGE.read_text(), re.MULTILINE))
    assert named == {
        str(kind.exit_code): kind.__name__
        for kind in errors.OnexError.__subclasses__()
        if kind.__module__ == errors.__name__
    }


if __name__ == "__main__":
    click.echo(settings_table())

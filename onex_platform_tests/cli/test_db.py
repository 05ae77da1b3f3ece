"""`onex db`: the real migrations, applied and shown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from onex_platform.base.paths import project_folder
from onex_platform.cli.main import cli

pytestmark = pytest.mark.servers


def test_the_command_migrates_and_reports_the_real_files(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEX_POSTGRES_URL", database_url)
    names = sorted(
        path.stem
        for path in project_folder("sql").glob("[0-9]*.sql")
        if ".rollback" not in path.name
    )

    def onex(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["db", *arguments], catch_exceptions=False).stdout

    assert onex("migrate").split() == [word for name in names for word in ("applied", name)]
    assert onex("migrate") == "The database is up to date.\n"
    rows = json.loads(onex("status", "--json"))
    assert [(row["name"], row["state"]) for row in rows] == [(name, "applied") for name in names]
    assert [line.split()[:2] for line in onex("status").splitlines()] == [
        ["applied", name] for name in names
    ]

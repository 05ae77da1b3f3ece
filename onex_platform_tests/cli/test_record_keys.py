"""`onex keys`: an operator makes, rotates and destroys keys, and is told what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onex_platform.cli.main import main
from onex_platform.records.key_folder import KeyFolder
from onex_platform.records.privacy import FieldCipher
from onex_platform_tests.support.key_folders import with_keys


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEX_RECORDS_KEYS", str(tmp_path / "keys"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["keys", *arguments])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["keys", *arguments])
    assert ended.value.code != 0
    return capsys.readouterr().err


def test_the_life_of_a_tenants_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no keys" in said(capsys, "list")
    assert "master.json is missing" in refused(capsys, "make", "--tenant", "acme")
    assert "was made" in said(capsys, "make")
    assert "was made" in said(capsys, "make", "--tenant", "acme")
    assert "is there already" in said(capsys, "make", "--tenant", "acme")
    cipher = FieldCipher(KeyFolder(with_keys(tmp_path)))
    event = {"event_id": "1", "email": "ada@example.org"}
    sealed = cipher.protected(event, {"email": "high"}, "topic", "acme")["email"]
    assert "2 keys read" in said(capsys, "rotate", "--tenant", "acme")
    assert said(capsys, "reveal", sealed) == '"ada@example.org"\n'
    assert "Would destroy" in said(capsys, "destroy", "acme")
    assert said(capsys, "reveal", sealed) == '"ada@example.org"\n'
    assert "was destroyed" in said(capsys, "destroy", "acme", "--yes")
    assert "was destroyed" in refused(capsys, "reveal", sealed)
    [row] = json.loads(said(capsys, "list", "--json"))
    assert row["destroyed_at"] is not None
    assert len(row["keys"]) == 2
    assert "destroyed" in said(capsys, "list")


def test_trust_is_handed_over_by_public_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said(capsys, "make")
    said(capsys, "make", "--actor", "node/a")
    public = tmp_path / "public.json"
    public.write_text(said(capsys, "public", "node/a"))
    assert "are taken" in said(capsys, "trust", "node/b", str(public))
    listed = json.loads(said(capsys, "list", "--json"))
    assert [row["name"] for row in listed if row["kind"] == "trusted"] == ["node/a", "node/b"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["rotate"], "--tenant or --actor"),
        (["make", "--tenant", "a", "--actor", "b"], "one of the two"),
        (["destroy", "nobody"], "'nobody'"),
        (["reveal", "plain"], "sealed:v1:"),
    ],
)
def test_a_wrong_call_says_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: list[str], names: str
) -> None:
    said(capsys, "make")
    assert names in refused(capsys, *arguments)

"""`onex topics`: what the catalogue holds as table, JSON and the docs' table, and its creation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onex_platform.base.settings import Settings
from onex_platform.cli.topics import command, markdown_table
from onex_platform.governance.governed import Governed
from onex_platform.topics.catalogue import load_whole_catalogue

_DOCS = Path(__file__).parents[2] / "docs" / "topics" / "README.md"


def _list(*arguments: str) -> Result:
    result = CliRunner().invoke(command, ["list", *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_table_has_a_line_for_every_topic() -> None:
    lines = _list().stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [c.topic for c in load_whole_catalogue()]


def test_legacy_names_are_noted_with_their_successor() -> None:
    assert "note: node.heartbeat is a legacy name" in _list("--dialect", "legacy").stderr
    assert _list("--dialect", "onex").stderr == ""


def test_filters_by_dialect_and_by_kind() -> None:
    snapshots = json.loads(_list("--dialect", "snapshot", "--json").stdout)
    assert [contract["snapshot_of"] for contract in snapshots] == ["registration"]
    heartbeats = json.loads(_list("--kind", "node.heartbeat.published", "--json").stdout)
    assert {contract["dialect"] for contract in heartbeats} == {"onex", "legacy"}
    both = json.loads(
        _list("--kind", "node.heartbeat.published", "--dialect", "legacy", "--json").stdout
    )
    assert [contract["topic"] for contract in both] == ["node.heartbeat"]


def test_json_has_the_contract_and_what_follows_from_it() -> None:
    contracts = {row["topic"]: row for row in json.loads(_list("--json").stdout)}
    assert len(contracts) == len(load_whole_catalogue())
    heartbeat = contracts["onex.node.heartbeat.published.v1"]
    assert heartbeat["retention"] == "PT1H"
    assert heartbeat["event_kind"] == "node.heartbeat.published"
    assert heartbeat["lag_seconds"] == {"acceptable": 30, "warning": 60, "critical": 120}
    assert heartbeat["direction"] == "node → registry"
    assert contracts["onex.snapshot.platform.registration-snapshots.v1"]["retention"] == "unlimited"


def test_an_unknown_filter_names_what_is_allowed() -> None:
    result = CliRunner().invoke(command, ["list", "--dialect", "klingon"])
    assert result.exit_code == 2
    assert "'onex', 'namespace', 'snapshot', 'legacy'" in result.output


def test_the_table_in_the_docs_is_the_catalogue_s() -> None:
    table = markdown_table(load_whole_catalogue())
    assert _list("--markdown").stdout.strip() == table
    assert table in _DOCS.read_text(encoding="utf-8"), (
        "docs/topics/README.md is out of date; paste the output of `onex topics list --markdown`"
    )


@pytest.mark.servers
def test_the_command_creates_and_reports(
    kafka_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEX_KAFKA_BOOTSTRAP_SERVERS", str(kafka_settings.kafka.bootstrap_servers))
    first = CliRunner().invoke(command, ["create"])
    assert first.exit_code == 0, first.output
    second = CliRunner().invoke(command, ["create", "--dry-run"])
    topics = sorted(Governed.of(kafka_settings, load_whole_catalogue()).topics)
    assert f"0 to create, {len(topics)} existed, 0 settings differ" in second.stdout
    report = json.loads(CliRunner().invoke(command, ["create", "--json"]).stdout)
    assert (report["created"], report["existing"]) == ([], topics)

"""One run over a tree: all violations, their lines, exceptions, and the forms of the report."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from onex_platform.base.paths import project_folder
from onex_platform.cli.topics import command
from onex_platform.topics.grammar import StreamName
from onex_platform.topics.lint.engine import RULES, Violation, lint
from onex_platform.topics.lint.report import as_sarif, rule_table
from onex_platform.topics.policy import load_policy
from onex_platform.topics.scaffold import TopicDraft, contract_text, files_of
from onex_platform_tests.support.contract_trees import write_tree

_TODAY = date(2026, 11, 18)
_MS = timedelta(milliseconds=1)
_DAY = timedelta(days=1)


def _topic(topic: str, stream_class: str = "evt") -> dict[str, str]:
    name = StreamName("kb", stream_class, topic, 1)
    draft = TopicDraft(name, "knowledge", "page_id", ("knowledge",), ("knowledge",), "A test.")
    return files_of(draft, load_policy())


def _spoilt(files: dict[str, str], **fields: Any) -> dict[str, str]:
    [path] = [name for name in files if name.endswith("contract.yaml")]
    return files | {path: contract_text({**yaml.safe_load(files[path]), **fields})}


def _found(root: Path) -> tuple[Violation, ...]:
    return lint(root, today=_TODAY).violations


def test_the_platform_s_own_contracts_pass() -> None:
    report = lint(project_folder("contracts"))
    assert report.errors == 0
    assert {violation.rule for violation in report.violations} == {"N006"}


def test_five_defects_in_three_files_are_five_violations(tmp_path: Path) -> None:
    unparsable = _topic("one-broken")
    [path] = [name for name in unparsable if name.endswith("contract.yaml")]
    unparsable[path] = "topic: [\n"
    root = write_tree(
        tmp_path,
        unparsable
        | _spoilt(_topic("two-wrong"), retention="P31D", owner="nobody")
        | _spoilt(_topic("two-more"), partitions=7, consumers=["prism"]),
    )
    found = _found(root)
    assert [violation.rule for violation in found] == ["F001", "A003", "R001", "O001", "C001"]
    assert len({violation.path for violation in found}) == 3


def test_a_violation_names_file_and_line(tmp_path: Path) -> None:
    files = _spoilt(_topic("page-changed"), retention="P31D")
    [path] = [name for name in files if name.endswith("contract.yaml")]
    line = files[path].splitlines().index("retention: P31D") + 1
    [found] = _found(write_tree(tmp_path, files))
    assert (found.path, found.line, found.rule) == (path, line, "C001")
    assert found.topic == "kb.evt.page-changed.v1"


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        (b"topic: a\ntopic: b\n", 2, "has the key 'topic' twice, first in line 1"),
        (b"topic: a\nsla:\n\tdelivery: PT1S\n", 3, "is not YAML"),
        (b"topic: a\nowner: \xff\n", 2, "is not UTF-8"),
    ],
)
def test_what_is_no_yaml_is_told_and_the_others_are_judged(
    tmp_path: Path, content: bytes, line: int, told: str
) -> None:
    files: dict[str, str | bytes] = {**_spoilt(_topic("page-changed"), partitions=7)}
    files["kb/evt/another-one/v1/contract.yaml"] = content
    found = _found(write_tree(tmp_path, files))
    assert any(told in violation.message and violation.line == line for violation in found)
    assert "R001" in {violation.rule for violation in found}


def test_a_sample_that_its_schema_refuses_is_told_with_file_path_and_reason(tmp_path: Path) -> None:
    root = project_folder("contracts")
    folder = "node/evt/heartbeat-published/v1"
    files: dict[str, str | bytes] = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for part in (folder, "node/dlt/heartbeat-published/v1")
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    sample = json.loads(files[f"{folder}/samples/typical.json"])
    sample["payload"]["uptime_seconds"] = -1
    files[f"{folder}/samples/typical.json"] = json.dumps(sample)
    [found] = _found(write_tree(tmp_path, files))
    assert (found.rule, found.path) == ("S004", f"{folder}/samples/typical.json")
    assert "$['payload']['uptime_seconds']" in found.message


# Specification 004's matrix, written anew: class, shortest, longest, whether it may be compacted.
_MATRIX = [
    ("evt", 7 * _DAY, 30 * _DAY, True),
    ("cmd", 3 * _DAY, 3 * _DAY, False),
    ("qrs", _DAY, _DAY, False),
    ("ctl", 2 * _DAY, 2 * _DAY, True),
    ("rty", 7 * _DAY, 7 * _DAY, False),
    ("dlt", 30 * _DAY, 90 * _DAY, False),
    ("cdc", 7 * _DAY, 14 * _DAY, True),
    ("met", 7 * _DAY, 7 * _DAY, True),
    ("aud", 90 * _DAY, 90 * _DAY, True),
    ("log", 3 * _DAY, 7 * _DAY, False),
]


def _iso(duration: timedelta) -> str:
    return f"PT{duration // _MS // 1000}.{duration // _MS % 1000:03}S"


@pytest.mark.parametrize(("stream_class", "low", "high", "compacted"), _MATRIX)
def test_class_retention_and_cleanup_are_exactly_the_matrix(
    tmp_path: Path, stream_class: str, low: timedelta, high: timedelta, compacted: bool
) -> None:
    def rules(**fields: Any) -> set[str]:
        write_tree(tmp_path, _spoilt(_topic("page-requests", stream_class), **fields))
        return {found.rule for found in _found(tmp_path)} - {"C008"}

    inside = {low, high, low + min(_MS, high - low), high - min(_MS, high - low)}
    for retention in inside:
        assert rules(retention=_iso(retention)) == set()
    for retention in (low - _MS, high + _MS):
        assert rules(retention=_iso(retention)) == {"C001"}
    compaction = {
        "min_lag": "PT1M",
        "max_lag": "PT5M",
        "segment_size": "100MiB",
        "tombstones_stay": "P1D",
    }
    policy = {"cleanup_policy": "compact,delete", "compaction": compaction, "tiered_storage": False}
    assert rules(**policy) == (set() if compacted else {"C002"})


def test_a_critical_event_stream_keeps_ninety_days(tmp_path: Path) -> None:
    for extra, expected in ((0 * _MS, []), (-_MS, ["C001"]), (_MS, ["C001"])):
        retention = _iso(90 * _DAY + extra)
        files = _spoilt(_topic("page-changed"), critical=True, retention=retention)
        assert [found.rule for found in _found(write_tree(tmp_path, files))] == expected


@pytest.mark.parametrize(("room", "expected"), [(8192, []), (8191, ["C010"]), (None, ["C010"])])
def test_dead_letters_need_room_for_a_record_and_its_failure(
    tmp_path: Path, room: int | None, expected: list[str]
) -> None:
    largest = 4 * 1024 * 1024
    taken = {} if room is None else {"max_message": largest + room}
    letters = _spoilt(_topic("page-changed", "dlt"), **taken)
    source = {"dead_letters": "kb.dlt.page-changed.v1", "max_message": largest}
    files = letters | _spoilt(_topic("page-changed"), **source)
    assert [found.rule for found in _found(write_tree(tmp_path, files))] == expected


def test_an_exception_excuses_until_its_last_day(tmp_path: Path) -> None:
    exception = {
        "rule": "R001",
        "topic": "kb.evt.page-changed.v1",
        "reason": "Measured lag needs more.",
        "owner": "knowledge",
        "expires": "2026-11-18",
    }
    files = _spoilt(_topic("page-changed"), partitions=7)
    root = write_tree(tmp_path, files | {"policy/exceptions.yaml": json.dumps([exception])})
    report = lint(root, today=_TODAY)
    assert (report.violations, report.excused) == ((), 1)
    later = lint(root, today=_TODAY + _DAY)
    assert [found.rule for found in later.violations] == ["R001", "E001"]


def test_the_command_ends_with_one_for_errors_and_speaks_json_and_sarif(tmp_path: Path) -> None:
    root = write_tree(tmp_path, _spoilt(_topic("page-changed"), partitions=7))
    result = CliRunner().invoke(command, ["lint", "--contracts", str(root)])
    assert result.exit_code == 1
    assert "error R001: partitions=7" in result.stdout
    document = json.loads(
        CliRunner().invoke(command, ["lint", "--contracts", str(root), "--format", "json"]).stdout
    )
    assert (document["errors"], document["violations"][0]["rule"]) == (1, "R001")
    sarif = json.loads(
        CliRunner().invoke(command, ["lint", "--contracts", str(root), "--format", "sarif"]).stdout
    )
    [run] = sarif["runs"]
    assert len(run["tool"]["driver"]["rules"]) == len(RULES)
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
    assert json.loads(as_sarif(lint(root), Path("contracts")))["version"] == "2.1.0"


def test_the_table_in_the_docs_is_the_rules() -> None:
    page = project_folder("contracts").parent / "docs" / "topics" / "rules.md"
    assert rule_table() in page.read_text(encoding="utf-8"), (
        "docs/topics/rules.md is out of date; paste the output of `onex topics lint --rules`"
    )

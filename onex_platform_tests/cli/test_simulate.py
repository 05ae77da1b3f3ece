"""`onex simulate` without servers: files, a look at the records, the lists, wrong options."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from onex_platform.cli import main as entry
from onex_platform.simulate.profiles import Rates
from onex_platform.simulate.scenarios import SCENARIOS

Onex = Callable[..., tuple[int, str, str]]


@pytest.fixture
def onex(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Onex:
    """Runs a command line in an empty folder; gives its exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            entry.main(["simulate", *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_a_file_is_written_with_its_summary(onex: Onex, tmp_path: Path) -> None:
    code, printed, _ = onex(
        "file", "history.parquet", "--events", "700", "--start", "2026-02-03", "--json"
    )
    table = pq.read_table(tmp_path / "history.parquet")
    summary = json.loads(printed)
    assert code == 0
    assert table.num_rows == summary["records"] == sum(summary["by_topic"].values()) == 700
    first = min(table["timestamp"].to_pylist())
    assert datetime(2026, 2, 3, tzinfo=UTC) <= first < datetime(2026, 2, 4, tzinfo=UTC)


def test_without_json_the_summary_is_readable(onex: Onex) -> None:
    _, printed, _ = onex("file", "history.ndjson", "--events", "100")
    assert "records: 100\n" in printed
    assert "by_kind:\n" in printed


def test_options_choose_rates_scenarios_and_the_part_of_the_registry(onex: Onex) -> None:
    _, printed, _ = onex(
        *("file", "history.ndjson", "--json", "--nodes", "4", "--duration", "2h", "--nodes-only"),
        *("--profile", "calm", "--rate", "duplicate=0.5", "--scenario", "rejected=1"),
    )
    summary = json.loads(printed)
    assert set(summary["scripts"]) == {"rejected"}
    assert summary["by_disturbance"]["duplicate"] > 0
    assert set(summary["by_kind"]) == {"node.introspection.published"}


def test_records_are_shown_with_what_is_known_about_them(onex: Onex) -> None:
    code, printed, _ = onex("show", "--events", "30", "--profile", "stormy", "--json")
    records = [json.loads(line) for line in printed.splitlines()]
    assert code == 0
    assert len(records) == 30
    assert {record["disturbance"] for record in records} > {None}

    _, again, _ = onex("show", "--events", "30", "--profile", "stormy")
    assert [line.split()[0] for line in again.splitlines() if not line.startswith(" ")] == [
        record["time"] for record in records
    ]


def test_twenty_records_are_shown_by_default(onex: Onex) -> None:
    _, printed, _ = onex("show", "--json")
    assert len(printed.splitlines()) == 20


def test_profiles_lists_every_rate_and_scenario(onex: Onex) -> None:
    _, printed, _ = onex("profiles")
    listed = {line.split()[0] for line in printed.splitlines() if line}
    assert listed >= {*Rates.model_fields, *SCENARIOS}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--duration", "soon"], "write 90s, 15m, 6h or 30d"),
        (["--rate", "late"], "write it like late=0.5"),
        (["--rate", "late=7"], "rates.late=7"),
        (["--scenario", "steadfast=1"], "no scenario steadfast"),
        (["--nodes", "0"], "nodes=0 leaves nothing to simulate"),
    ],
)
def test_a_wrong_option_is_named(onex: Onex, arguments: list[str], complaint: str) -> None:
    code, _, complaints = onex("show", *arguments)
    assert code == 2
    assert complaint in complaints

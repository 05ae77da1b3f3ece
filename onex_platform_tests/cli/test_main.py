"""The `onex` command as a whole: exit codes, one-sentence errors, quick help."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest

from onex_platform.base.errors import InfraConnectionError, InfraTimeoutError, OnexError
from onex_platform.cli import main as entry

_HEAVY = ("confluent_kafka", "dagster", "psycopg", "pyspark", "sqlalchemy", "structlog", "yaml")


def test_help_loads_no_heavy_library() -> None:
    program = (
        "import sys\n"
        "from onex_platform.cli.main import main\n"
        "main(['--help'])\n"
        f"print('loaded:', [name for name in {_HEAVY!r} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.stdout.endswith("loaded: []\n"), answer.stdout + answer.stderr


@pytest.mark.parametrize("argv", [["nonsense"], ["settings", "--nonsense"]])
def test_a_wrong_command_line_is_a_usage_error(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(argv)
    assert ended.value.code == 2
    assert "onsense" in capsys.readouterr().err


def test_an_error_is_one_sentence_its_hint_and_its_correlation_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InfraConnectionError("The broker is away.", hint="Start it.")
    _fail_settings_with(error, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        entry.main(["settings"])
    assert ended.value.code == InfraConnectionError.exit_code
    assert capsys.readouterr().err.splitlines() == [
        "error: The broker is away.",
        "  Start it.",
        f"  correlation id {error.correlation_id}",
    ]


def test_help_of_a_command_needs_no_valid_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONEX_LOG_LEVEL", "LOUD")
    entry.main(["settings", "--help"])
    assert "ONEX_LOG_LEVEL" in capsys.readouterr().out


def test_logs_go_to_stderr_in_the_style_of_the_settings() -> None:
    program = (
        "from onex_platform.cli import main, settings\n"
        "from onex_platform.base.telemetry import get_logger\n"
        "settings.load_settings = lambda: get_logger('test').info('seen', password='hunter2')\n"
        "settings.effective_values = lambda _: []\n"
        "main.main(['settings', '--json'])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEX_LOG_STYLE": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(answer.stdout) == []
    record = json.loads(answer.stderr)
    assert (record["event"], record["password"]) == ("seen", "***")


def test_an_interrupt_is_said_in_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fail_settings_with(KeyboardInterrupt(), monkeypatch)
    with pytest.raises(SystemExit) as ended:
        entry.main(["settings"])
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def _fail_settings_with(error: OnexError | KeyboardInterrupt, patch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    patch.setattr("onex_platform.cli.settings.load_settings", fail)


def test_the_command_line_prints_sentence_way_out_and_correlation_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InfraTimeoutError("The broker did not answer.", hint="Look at `onex stack status`.")

    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(entry, "cli", failing)
    with pytest.raises(SystemExit) as exit_:
        entry.main([])
    assert exit_.value.code == 4
    assert capsys.readouterr().err.splitlines() == [
        "error: The broker did not answer.",
        "  Look at `onex stack status`.",
        f"  correlation id {error.correlation_id}",
    ]


def test_the_command_line_hides_no_programming_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(entry, "cli", broken)
    with pytest.raises(ZeroDivisionError):
        entry.main([])

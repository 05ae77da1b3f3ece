"""The `onex` command as a whole: exit codes, one-sentence errors, quick help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onex_platform.cli import main as entry
from onex_platform.errors import InfraConnectionError, OnexError

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

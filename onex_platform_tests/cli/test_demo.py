"""`onex demo` in a folder of its own: it shows its verdict, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from onex_platform.cli.demo import show, show_capture
from onex_platform.domain.events import EnumEventKind
from onex_platform.simulate.captured_writer import CaptureSight
from onex_platform.simulate.kafka_player import PlayReport
from onex_platform.simulate.records import Summary

pytestmark = pytest.mark.long

_EQUAL = re.compile(r"(\d+) records produced, \1 consumed: equal, topic by topic\.")
_PROVEN = re.compile(
    r"Live rows and the replay of \d+ events: equal\.\nSnapshot topic and \d+ rows: equal\."
)
_CAPTURED = re.compile(r"(\d+) captured events and their replay: equal\.")
_LIVES = re.compile(
    r"announced .* awaiting_ack .* awaiting_ack \(v1\).*"
    r"acknowledged .* active .* active \(v2\).*"
    r"one shut down .* deregistered .* tombstone.*"
    r"one fell silent .* liveness_expired .* liveness_expired \(v3\)",
    re.DOTALL,
)


class Run(NamedTuple):
    """What a run printed, and which processes of its folder outlived it."""

    output: str
    left: list[str]


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run in an empty folder, where it has to start the servers."""
    folder = tmp_path_factory.mktemp("demo")
    output = _require_success(_start(folder, "demo", "--nodes", "30", "--seconds", "6"))
    return folder, Run(output, _processes_of(folder))


@pytest.mark.servers
def test_the_fleet_comes_back_as_it_was_played(first_run: tuple[Path, Run]) -> None:
    _, (output, _) = first_run
    assert _EQUAL.search(output)
    assert _PROVEN.search(output)
    assert "Lives per scenario" in output
    assert _LIVES.search(output)
    assert _CAPTURED.search(output)


@pytest.mark.servers
def test_a_demo_stops_what_it_started(first_run: tuple[Path, Run]) -> None:
    _, (_, left) = first_run
    assert left == []


@pytest.mark.servers
def test_servers_that_run_already_are_used_and_left_running(first_run: tuple[Path, Run]) -> None:
    folder, _ = first_run
    _require_success(_start(folder, "stack", "up"))
    try:
        # This run does not count what the first one wrote.
        output = _require_success(_start(folder, "demo", "--nodes", "10", "--seconds", "2"))
        assert _EQUAL.search(output)
        assert _PROVEN.search(output)
        _require_success(_start(folder, "stack", "status"))
    finally:
        _require_success(_start(folder, "stack", "down"))
    assert _processes_of(folder) == []


@pytest.mark.servers
@pytest.mark.parametrize(
    ("moment", "number"), [("Starting Kafka", signal.SIGTERM), ("Playing", signal.SIGINT)]
)
def test_an_interrupted_demo_stops_what_it_started(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    demo = _start(tmp_path, "demo", "--seconds", "120")
    assert demo.stderr is not None
    for line in demo.stderr:
        if line.startswith(moment):
            break
    demo.send_signal(number)
    output, progress = demo.communicate(timeout=120)
    assert demo.returncode == 130, output + progress
    assert progress.strip().endswith("Interrupted.")
    assert "Traceback" not in progress
    assert _processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("acknowledged", "consumed"),
    [({"a": 2}, {"a": 1}), ({"a": 2}, {"a": 1, "b": 1}), ({"a": 1}, {"a": 1})],
    ids=["lost", "on another topic", "never acknowledged"],
)
def test_a_difference_is_not_called_equal(
    acknowledged: dict[str, int], consumed: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    label = ("a", EnumEventKind.NODE_HEARTBEAT, "steady", None, None)
    played = PlayReport(
        summary=Summary(counts=Counter({label: 2})),
        acknowledged=Counter(acknowledged),
        interrupted=False,
        seconds=1,
    )
    assert not show(played, Counter(consumed))
    assert "not equal" in capsys.readouterr().out


def test_a_replay_that_lacks_an_event_is_not_called_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not show_capture(CaptureSight(120, 140, 300, 299, is_equal=False))
    assert "300 captured events and their replay: not equal." in capsys.readouterr().out


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ONEX_")}
    return subprocess.Popen(
        [f"{sys.prefix}/bin/onex", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _require_success(command: subprocess.Popen[str]) -> str:
    output, progress = command.communicate(timeout=240)
    assert command.returncode == 0, output + progress
    return output


def _processes_of(folder: Path) -> list[str]:
    """The command lines of processes that work in the folder or name it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or ())]
        if any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found

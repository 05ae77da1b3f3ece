"""Clients end before the servers do: found by their marker, asked in order, killed in time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from onex_platform.stack import client_programs
from onex_platform.stack.folders import ProcessIdentity
from onex_platform.stack.processes import wait_until

# What each program has in common: `listen` begins to handle SIGTERM by writing "asked" and ending.
_PREFACE = """
import os, signal, subprocess, sys, time
from pathlib import Path

note = Path(sys.argv[1])

def listen():
    def end(_number, _frame):
        note.write_text("asked")
        os._exit(0)
    signal.signal(signal.SIGTERM, end)

def say(word):
    draft = note.with_suffix(".new")
    draft.write_text(word)
    draft.replace(note)

"""
_LISTENER = "listen(); say('ready'); time.sleep(60)"
_LATE_LISTENER = "say('ready'); time.sleep(1); listen(); time.sleep(60)"
_DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(60)"
_ENDS_BY_ITSELF = "listen(); say('ready'); time.sleep(0.5)"
_RUN_WORKER = "--multiprocessing-fork"

Start = Callable[..., Path]


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    return tmp_path / str(uuid4())


@pytest.fixture
def start(stack: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a client that runs a program; gives the file that says what became of it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        program: str,
        *words: str,
        starter: ProcessIdentity | None = None,
        own_session: bool = True,
    ) -> Path:
        note = tmp_path / str(uuid4())
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", _PREFACE + program, str(note), *words],
                env={
                    **os.environ,
                    client_programs.VARIABLE: client_programs.marker(stack, starter),
                },
                start_new_session=own_session,
            )
        )
        assert wait_until(note.exists, 30)
        return note

    yield begin
    for process in client_programs.find(client_programs.marker(stack)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for child in started:
        child.wait()


def _pids(stack: Path) -> list[int]:
    return [process.pid for process in client_programs.find(client_programs.marker(stack))]


def _myself() -> ProcessIdentity:
    return ProcessIdentity.of(psutil.Process())


def test_a_client_is_asked_and_found_no_more(stack: Path, start: Start) -> None:
    note = start(_LISTENER)
    assert len(_pids(stack)) == 1
    assert client_programs.stop(client_programs.marker(stack))
    assert note.read_text() == "asked"
    assert not client_programs.stop(client_programs.marker(stack))


def test_a_process_whose_parent_has_ended_is_still_a_client(stack: Path, start: Start) -> None:
    orphan = f"{_PREFACE}{_LISTENER}"
    start(f"subprocess.Popen([sys.executable, '-c', {orphan!r}, sys.argv[1]])")
    assert wait_until(lambda: len(_pids(stack)) == 1, 30)
    assert client_programs.stop(client_programs.marker(stack))
    assert _pids(stack) == []


def test_another_starters_clients_are_left_alone(stack: Path, start: Start) -> None:
    other = ProcessIdentity(pid=1, started=1.0)
    note = start(_LISTENER, starter=other)
    assert not client_programs.stop(client_programs.marker(stack, _myself()))
    assert note.read_text() == "ready"
    assert client_programs.stop(client_programs.marker(stack))


def test_a_run_worker_is_not_asked_before_it_listens(stack: Path, start: Start) -> None:
    note = start(_LATE_LISTENER, _RUN_WORKER)
    assert client_programs.stop(client_programs.marker(stack))
    assert note.read_text() == "asked"


def test_a_run_worker_that_appears_meanwhile_is_asked_too(stack: Path, start: Start) -> None:
    worker = f"{_PREFACE}{_LISTENER}"
    late = (
        f"command = [sys.executable, '-c', {worker!r}, sys.argv[1], {_RUN_WORKER!r}]\n"
        "def end(*_):\n"
        "    subprocess.Popen(command).wait()\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "say('ready')\n"
        "time.sleep(60)"
    )
    note = start(late)
    assert client_programs.stop(client_programs.marker(stack))
    assert note.read_text() == "asked"
    assert _pids(stack) == []


@pytest.mark.parametrize("words", [(), (_RUN_WORKER,)])
def test_whoever_does_not_listen_is_killed(
    stack: Path, start: Start, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("RUNS_SECONDS", "OTHERS_SECONDS", "TOLD_SECONDS"):
        monkeypatch.setattr(client_programs, patience, 0.2)
    note = start(_DEAF, *words)
    assert client_programs.stop(client_programs.marker(stack))
    assert note.read_text() == "ready"
    assert _pids(stack) == []


def test_who_waits_for_a_deaf_run_worker_lives_to_note_its_end(
    stack: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("RUNS_SECONDS", "TOLD_SECONDS"):
        monkeypatch.setattr(client_programs, patience, 0.2)
    waiting = (
        "child = note.with_suffix('.child')\n"
        f"command = [sys.executable, '-c', {_PREFACE + _DEAF!r}, str(child), {_RUN_WORKER!r}]\n"
        "worker = subprocess.Popen(command)\n"
        "def end(*_):\n"
        "    worker.wait()\n"
        "    note.write_text('noted')\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "while not child.exists():\n"
        "    time.sleep(0.05)\n"
        "say('ready')\n"
        "time.sleep(60)"
    )
    note = start(waiting)
    assert client_programs.stop(client_programs.marker(stack))
    assert note.read_text() == "noted"


def test_the_daemon_is_not_asked(stack: Path, start: Start) -> None:
    starter = _myself()
    note = start(_LISTENER, "dagster._daemon", starter=starter, own_session=False)
    assert client_programs.stop(client_programs.marker(stack, starter), starter=starter)
    assert note.read_text() == "ready"
    assert _pids(stack) == []


def test_what_a_living_starter_has_told_to_end_is_not_told_again(stack: Path, start: Start) -> None:
    starter = _myself()
    told = start(_ENDS_BY_ITSELF, starter=starter, own_session=False)
    apart = start(_LISTENER, starter=starter)
    assert client_programs.stop(client_programs.marker(stack, starter), starter=starter)
    assert (told.read_text(), apart.read_text()) == ("ready", "asked")


def test_what_goes_on_although_it_was_told_is_asked_after_all(stack: Path, start: Start) -> None:
    starter = _myself()
    note = start(_LISTENER, starter=starter, own_session=False)
    assert client_programs.stop(client_programs.marker(stack, starter), starter=starter)
    assert note.read_text() == "asked"

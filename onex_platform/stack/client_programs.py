"""Programs that work on an embedded stack, Dagster's above all, and their orderly end.

A client carries a *marker* in its environment and hands it on to everything that it starts. So a
process is found whoever its parent is, also when that has ended, and also if it was started only a
moment ago. Clients end before the servers that they use:

1. Run workers are asked at once, and one that is just being started as soon as it listens. Dagster
   itself would let them finish their work.
2. Then the processes at the top are asked; they tell the ones below. Dagster's daemon is killed:
   asked, it takes the code locations away from sensors that it is still evaluating, and records
   them as failed, with tracebacks. Killed, it evaluates them again when it is back.
3. Whoever is left after its time is killed, run workers first: the code server, as long as it
   lives, records in Dagster that they are gone.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from onex_platform.base.environment import hand_to_children, inherited
from onex_platform.stack.folders import ProcessIdentity
from onex_platform.stack.processes import lives, wait_until

# Not one of the settings, and not named like one: nobody sets it by hand.
VARIABLE = "EMBEDDED_STACK_CLIENT"

# Together with the servers, which take a second, the end lasts less than ten.
RUNS_SECONDS = 5.5
OTHERS_SECONDS = 2.0
# Whoever has been told to end already is asked only if it goes on after this time.
TOLD_SECONDS = 1.5
_KILLED_SECONDS = 5.0
_LOOK_SECONDS = 0.1

# How Dagster's code server starts run workers: by Python's own `multiprocessing`.
_RUN_WORKER = "--multiprocessing-fork"
_DAEMON = "dagster._daemon"


def marker(stack: Path, starter: ProcessIdentity | None = None) -> str:
    """The word that marks the clients of the stack in that folder: one starter's, or all."""
    word = f"onex-client-{hashlib.sha256(bytes(stack)).hexdigest()[:16]}"
    return word if starter is None else f"{word}-{starter.pid}-{starter.started}"


def mark_children(word: str) -> None:
    """Whatever this process starts from now on is a client."""
    hand_to_children({VARIABLE: word})


def is_marked() -> bool:
    """Whether this process is a client, or starts them: the servers are somebody's already."""
    return inherited(VARIABLE) is not None


def find(word: str) -> list[psutil.Process]:
    """Every living client with this marker."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(VARIABLE, "").startswith(word) and lives(process)
    ]


def stop(word: str, *, starter: ProcessIdentity | None = None) -> bool:
    """End the clients with this marker; whether there was one.

    A `starter` that still lives has told those of its own session already, and so has Ctrl-C.
    """
    family = find(word)
    if not family:
        return False
    asked: set[int] = set()

    def ask(clients: Iterable[psutil.Process]) -> None:
        for process in clients:
            if process.pid not in asked:
                asked.add(process.pid)
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGTERM)

    def runs_have_ended() -> bool:
        workers = [process for process in find(word) if _has(process, _RUN_WORKER)]
        ask(filter(_listens, workers))
        return not workers

    def all_have_ended() -> bool:
        return runs_have_ended() and not find(word)

    runs_have_ended()
    session = _session(starter.pid) if starter is not None and starter.find() else None
    top = [process for process in _at_the_top(family) if not _has(process, _RUN_WORKER)]
    ask(process for process in top if _session(process.pid) != session)
    _kill(process for process in family if _has(process, _DAEMON))
    if wait_until(all_have_ended, TOLD_SECONDS, interval_seconds=_LOOK_SECONDS):
        return True
    ask(top)
    runs_seconds = RUNS_SECONDS - TOLD_SECONDS
    if not wait_until(runs_have_ended, runs_seconds, interval_seconds=_LOOK_SECONDS):
        _kill(process for process in find(word) if _has(process, _RUN_WORKER))
    if not wait_until(all_have_ended, OTHERS_SECONDS, interval_seconds=_LOOK_SECONDS):
        wait_until(lambda: not _kill(find(word)), _KILLED_SECONDS)
    return True


def _has(process: psutil.Process, word: str) -> bool:
    """Whether the word stands in the process's command line."""
    with suppress(psutil.Error):
        return word in process.cmdline()
    return False


def _listens(process: psutil.Process) -> bool:
    """Whether the process handles SIGTERM; before it does, it would die of it without a word.

    Where the system does not tell, it is taken to listen.
    """
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return True
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is None or bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def _at_the_top(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those whose parents are not clients themselves."""
    by_id = {process.pid: process for process in family}
    top = []
    for process in by_id.values():
        with suppress(psutil.NoSuchProcess):
            if process.ppid() not in by_id:
                top.append(process)
    return top


def _session(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def _kill(clients: Iterable[psutil.Process]) -> bool:
    """Kill these; whether there were any."""
    found = list(clients)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(found)

"""Starting, recognising and stopping the servers' processes.

A process is known in two ways. Its id together with its start time is what the state file
records, so that a recycled id is never mistaken for a server. A *marker*, a word made of the
stack's folder and the server's name, stands in the command line of every process of a server; it
finds the ones that no state file knows, such as those of a command killed half-way.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil

GRACE_SECONDS = 20.0

# psutil derives start times from the boot time, which moves when the clock is set.
_CLOCK_TOLERANCE_SECONDS = 2.0

# Our own children by id: asking them reaps the dead, which would linger as zombies otherwise.
_children: dict[int, psutil.Popen] = {}


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    log: Path | None = None,
) -> psutil.Popen:
    """Start a process in a session of its own, so that Ctrl-C reaches only us.

    Its output goes to `log`; without one, where ours goes.
    """
    with nullcontext() if log is None else log.open("ab") as output:
        child = psutil.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _children[child.pid] = child
    return child


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    log: Path,
    timeout_seconds: float,
    tick: Callable[[], None] = lambda: None,
) -> int | None:
    """Run a command to its end and give its exit code; none if it took too long and was stopped.

    `tick` is called a few times per second. The command never outlives this call.
    """
    child = start(command, environment=environment, cwd=cwd, log=log)

    def ended() -> bool:
        tick()
        return child.poll() is not None

    try:
        finished = wait_until(ended, timeout_seconds, interval_seconds=0.2)
    finally:
        stop([child])
    return child.returncode if finished else None


def recorded(pid: int, started: float) -> psutil.Process | None:
    """The process that had this id at that time, if it still lives."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - started) < _CLOCK_TOLERANCE_SECONDS and lives(process):
            return process
    return None


def marked(marker: str) -> list[psutil.Process]:
    """Every living process whose command line carries `marker`."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(marker in word for word in process.info["cmdline"] or ()) and lives(process)
    ]


def lives(process: psutil.Process) -> bool:
    """Whether the process still runs; a zombie does not."""
    if (child := _children.get(process.pid)) is not None and child.poll() is not None:
        del _children[process.pid]
        return False
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(processes: Iterable[psutil.Process], polite: signal.Signals = signal.SIGTERM) -> None:
    """End the processes: the leaders are asked, and whoever is left after a grace is killed."""
    family = {process.pid: process for process in processes}
    for process in list(family.values()):
        with suppress(psutil.NoSuchProcess):
            family.update({child.pid: child for child in process.children(recursive=True)})
    for process in family.values():
        with suppress(psutil.NoSuchProcess):
            if process.ppid() not in family:
                process.send_signal(polite)
    if wait_until(lambda: not any(map(lives, family.values())), GRACE_SECONDS):
        return
    for process in filter(lives, family.values()):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: not any(map(lives, family.values())), GRACE_SECONDS)


def wait_until(
    condition: Callable[[], bool], seconds: float, *, interval_seconds: float = 0.05
) -> bool:
    """Poll until `condition` holds; false if it did not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_seconds)
    return True

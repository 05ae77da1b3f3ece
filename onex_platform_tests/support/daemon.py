"""Dagster's daemon in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


@contextmanager
def running_daemon(environment: dict[str, str], log: Path) -> Iterator[psutil.Process]:
    """The daemon, with the code server and the run workers that it starts."""
    command = [str(Path(sys.executable).with_name("dagster-daemon")), "run"]
    with log.open("w") as output:
        daemon = psutil.Popen(
            [*command, "-m", "onex_platform.definitions"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield daemon
        finally:
            family = daemon.children(recursive=True)
            daemon.terminate()
            for process in psutil.wait_procs([daemon, *family], timeout=30)[1]:
                process.kill()

"""Python programs as processes of their own, which a test may stop or kill; they start in a moment.

What most of them do takes less time than what they import. So a server process imports it once, and
forks a process for each: it has the environment and the arguments that it is given, and shares
nothing else with the test.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from onex_platform.base.environment import child_environment

_PRELOADED = (
    "onex_platform.capture.compaction.compacting",
    "onex_platform.deadlines.scan",
    "onex_platform.governance.cluster",
    "onex_platform.pipeline",
    "onex_platform.projections.history.hourly_states",
    "onex_platform.projections.rebuild.rebuild",
    "onex_platform.snapshots.audit.sweep",
    "onex_platform_tests.support.snapshotter_process",
    "onex_platform_tests.support.stored_rows",
    "pyspark.sql.connect.session",
)
# There is one server for each process that runs tests, whoever asks for it first.
forking = multiprocessing.get_context("forkserver")
forking.set_forkserver_preload(list(_PRELOADED))


class ForkedProgram:
    """A process that runs what `python -c` would; its `output` ends with it."""

    def __init__(self, program: str, arguments: tuple[str, ...], environment: dict[str, str]):
        reader, writer = forking.Pipe(duplex=False)
        self._process = forking.Process(
            target=_run, args=(program, arguments, environment, writer), daemon=True
        )
        self._process.start()
        writer.close()
        self.output: TextIO = os.fdopen(os.dup(reader.fileno()))
        reader.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def wait(self, seconds: float = 120) -> int:
        """How it ended; as `subprocess` has it, less than zero by a signal."""
        self._process.join(seconds)
        if (code := self._process.exitcode) is None:
            self.kill()
            raise TimeoutError(f"A program has not ended within {seconds} s.")
        return code

    def kill(self) -> None:
        """SIGKILL, and its output is closed; one that has ended already is left alone."""
        self._process.kill()
        self._process.join()
        self.output.close()


def start_program(
    program: str, *arguments: str, variables: Mapping[str, str] | None = None
) -> ForkedProgram:
    """A process with this one's environment and the variables on top."""
    return ForkedProgram(program, arguments, child_environment(variables or {}))


def run_program(program: str, *arguments: str, variables: Mapping[str, str] | None = None) -> int:
    """Run it to its end, which is told as `ForkedProgram.wait` does."""
    started = start_program(program, *arguments, variables=variables)
    try:
        return started.wait()
    finally:
        started.kill()


def _run(
    program: str, arguments: tuple[str, ...], environment: dict[str, str], output: Any
) -> None:
    os.dup2(output.fileno(), sys.stdout.fileno())
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102

"""The process that stops servers and their clients when their starter is gone, whatever ended it.

Whoever starts servers names each one to a guardian first. When the starter closes the pipe, or
dies so that the system closes it, the guardian ends the starter's clients and then stops the
servers that were named, unless somebody else has started one anew or has asked for it to stay. So
an exception, a second Ctrl-C and SIGKILL of the starter all end alike. This is the starter's side;
the guardian itself is `guardian_process`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from onex_platform.base.errors import InfraUnavailableError
from onex_platform.stack import client_programs
from onex_platform.stack.folders import ProcessIdentity

_GUARDIAN = "onex_platform.stack.guardian_process"


class Guardian:
    """Used as a context, at whose end the watched servers are stopped."""

    def __init__(self, stack: Path) -> None:
        self.starter = ProcessIdentity.of(psutil.Process())
        self._stack = stack
        self._process: subprocess.Popen[str] | None = None

    def watch(self, server: str) -> None:
        """From now on `server` does not outlive us; said before it is started."""
        self._begin()
        self._tell(server)

    def client_marker(self) -> str:
        """What marks a client that does not outlive us; asked for before it is started."""
        self._begin()
        return client_programs.marker(self._stack, self.starter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise InfraUnavailableError(
                f"Servers of {self._stack} may have been left running.",
                hint=f"Stop them with `onex stack down`; the reason is in {self._log}.",
            )

    @property
    def _log(self) -> Path:
        return self._stack / "guardian.log"

    def _begin(self) -> None:
        if self._process is None:
            self._process = self._start()
            self._tell(self.starter.model_dump_json())

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("wb") as output:
            return subprocess.Popen(
                # -P: what lies in the working folder is not imported.
                [sys.executable, "-P", "-m", _GUARDIAN, str(self._stack)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise InfraUnavailableError(
                "The guardian process that stops the servers has ended.",
                hint=f"Nothing more is started; the reason is in {self._log}.",
            ) from error

"""The process that stops servers whose starter is gone, whatever ended it.

Whoever starts servers names each one to a guardian first. When the starter closes the pipe, or
dies so that the system closes it, the guardian stops what was named; unless it was released, the
word that the servers are meant to stay. So an exception, a second Ctrl-C and SIGKILL all end alike.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from onex_platform.errors import InfraUnavailableError

_RELEASED = "released"


class Guardian:
    """The starter's side: used as a context, at whose end the named servers are stopped."""

    def __init__(self, stack: Path) -> None:
        self._stack = stack
        self._process: subprocess.Popen[str] | None = None

    def watch(self, server: str) -> None:
        """From now on `server` does not outlive us; said before it is started."""
        if self._process is None:
            self._process = self._start()
        self._tell(server)

    def release(self) -> None:
        """The servers stay when we end."""
        self._tell(_RELEASED)

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

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                # -P: the folder of this file does not become a place to import from.
                [sys.executable, "-P", __file__, str(self._stack)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def _tell(self, word: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()


def _guard(stack: Path) -> None:
    watched = [line.strip() for line in sys.stdin]
    if _RELEASED in watched:
        return
    # Imported late: most guardians are released and need nothing of it.
    from onex_platform.settings import Settings, StackSettings
    from onex_platform.stack.lifecycle import down

    # Only the folder counts here, and a wrong variable must not keep servers running.
    down(Settings.model_construct(stack=StackSettings(folder=stack)), services=watched)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))

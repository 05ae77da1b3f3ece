"""The snapshotter as a process of its own, which a test may kill; it starts in a moment, because it
is forked from a process that has imported everything."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from onex_platform.base import faults
from onex_platform.capture.api.serving import run
from onex_platform.capture.read.kafka_relay import Relay
from onex_platform_tests.support.forked_programs import forking
from onex_platform_tests.support.plain_slots import (
    FileBroker,
    FolderIndex,
    FolderStorage,
    RefusingStorage,
)
from onex_platform_tests.support.snapshotters import config_for

RELAYED = "relayed"  # the topic that the process's relay sends to


class ServerProcess:
    """One process. `ports` waits until it serves; a point and a number of passes arm its death."""

    def __init__(
        self,
        folder: Path,
        sections: dict[str, Any],
        point: str | None = None,
        passes: int = 1,
    ) -> None:
        self._ports, sender = forking.Pipe(duplex=False)
        self._process = forking.Process(
            target=_serve, args=(folder, sections, point, passes, sender)
        )
        self._process.start()
        sender.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def ports(self) -> tuple[int, int]:
        """Where it listens, gRPC first."""
        grpc_port, http_port = self._ports.recv()
        return grpc_port, http_port

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def terminate(self) -> int | None:
        """SIGTERM, then how it ended; None if it has not within 20 s."""
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGTERM)
        self._process.join(20)
        return self._process.exitcode


def _serve(
    folder: Path, sections: dict[str, Any], point: str | None, passes: int, ports: Any
) -> None:
    if point is not None:
        _die_at(point, passes)
    config = config_for(folder, **sections)
    refuses = point is not None and point.endswith("dead_letter.add")
    storage = (RefusingStorage if refuses else FolderStorage)(folder / "pages")
    broker = FileBroker(folder / "broker")
    run(
        config,
        storage,
        FolderIndex(folder / "index"),
        lambda grpc_port, http_port: ports.send((grpc_port, http_port)),
        Relay([RELAYED], broker.send, broker),
    )


def _die_at(point: str, passes: int) -> None:
    """Kill this process at the n-th pass of a point."""

    def accident() -> None:
        nonlocal passes
        passes -= 1
        if passes:
            faults.arm(point, accident)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.arm(point, accident)

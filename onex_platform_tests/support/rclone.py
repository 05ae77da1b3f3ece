"""A real S3 server that overwrites without asking: rclone, on loopback, on a folder."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onex_platform.base.environment import child_environment
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import start, stop, wait_until

_PATIENCE_SECONDS = 60


@contextmanager
def running_rclone(folder: Path, *, access_key: str, secret_key: str) -> Iterator[str]:
    """The server's address for the block; the folders in `folder` are its buckets."""
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "rclone"),
        "serve",
        "s3",
        f"--addr={LOOPBACK}:{port}",
        f"--auth-key={access_key},{secret_key}",
        "--config=",
        str(folder),
    ]
    log = folder.parent / f"{folder.name}.log"
    server = start(command, environment=child_environment({}), log=log)
    try:
        assert wait_until(lambda: _listens(port) or server.poll() is not None, _PATIENCE_SECONDS)
        assert server.poll() is None, log.read_text()
        yield f"http://{LOOPBACK}:{port}"
    finally:
        stop([server])


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2):
            return True
    except OSError:
        return False

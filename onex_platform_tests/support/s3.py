"""A real S3 server for tests: SeaweedFS, on loopback, with data that nobody keeps."""

from __future__ import annotations

import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onex_platform.base.environment import child_environment
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import start, stop, wait_until

_BUCKET = "pages"
_PATIENCE_SECONDS = 60


def s3_environment(port: int) -> dict[str, str]:
    """How clients find the server, and what they know each other by."""
    return {
        "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "known-to-tests-only",
    }


@contextmanager
def running_s3(port: int, folder: Path) -> Iterator[str]:
    """The server for the block; the address of its bucket, which is made when it is first used."""
    own_ports = {
        "s3.port": port,
        **{
            f"{part}.port{suffix}": free_port()
            for part in ("master", "volume", "filer")
            for suffix in ("", ".grpc")
        },
        "s3.port.grpc": free_port(),
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
    }
    command = [
        str(Path(sys.executable).parent / "weed"),
        "server",
        "-s3",
        f"-dir={folder}",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        "-master.telemetry=false",
        *(f"-{name}={number}" for name, number in own_ports.items()),
    ]
    log = folder / "server.log"
    server = start(command, environment=child_environment(s3_environment(port)), log=log)
    try:
        answers = wait_until(
            lambda: _is_healthy(port) or server.poll() is not None, _PATIENCE_SECONDS
        )
        assert answers, log.read_text()
        assert server.poll() is None, log.read_text()
        yield f"s3://{_BUCKET}"
    finally:
        # Asked politely, it takes its time; nothing of it is kept.
        stop([server], polite=signal.SIGKILL)


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=2):
            return True
    except OSError:
        return False

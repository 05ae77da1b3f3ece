"""Azure's emulator for `make test-azure`: Azurite, on loopback, with data that nobody keeps."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import httpx

from onex_platform.base.environment import child_environment
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import start, stop, wait_until

# The account that every installation of the emulator has.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-12-02"
_PATIENCE_SECONDS = 60


@contextmanager
def running_azurite(program: str, folder: Path, container: str) -> Iterator[str]:
    """The account's address for the block, with an empty container."""
    port = free_port()
    command = [
        program,
        f"--blobHost={LOOPBACK}",
        f"--blobPort={port}",
        f"--location={folder}",
        "--skipApiVersionCheck",
        "--disableTelemetry",
    ]
    log = folder / "server.log"
    server = start(command, environment=child_environment({}), log=log)
    try:
        wait_until(lambda: _listens(port) or server.poll() is not None, _PATIENCE_SECONDS)
        assert server.poll() is None, log.read_text()
        _create_container(port, container)
        yield f"http://{LOOPBACK}:{port}/{ACCOUNT}"
    finally:
        stop([server])


def _create_container(port: int, container: str) -> None:
    """What an operator does once, in Azure's portal; the request is signed by hand."""
    path = f"/{ACCOUNT}/{container}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    standard = "\n" * 12  # of the headers that are signed always, none is set
    own = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = f"PUT{standard}{own}/{ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    httpx.put(
        f"http://{LOOPBACK}:{port}{path}?restype=container",
        headers=headers | {"Authorization": f"SharedKey {ACCOUNT}:{signature}"},
    ).raise_for_status()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2):
            return True
    except OSError:
        return False

